"""What is given to ``torch.compile``, wherever in the process: a function hears of it first."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from bcmend import meta_keys

Act = Callable[[Any], None]


def listen(act: Act) -> None:
    """Have ``act`` called with each object before ``torch.compile`` gets it.

    Decorators, ``nn.Module.compile`` and libraries call ``torch.compile`` by this name; what was
    imported by another name before is not seen.
    """
    leave()
    inner = torch.compile

    @functools.wraps(inner)
    def compile(model: Any = None, *others: Any, **options: Any) -> Any:
        if model is not None:
            act(model)
        return inner(model, *others, **options)

    setattr(compile, meta_keys.STANDS_BEFORE, inner)
    torch.compile = compile


def leave() -> bool:
    """Give ``torch.compile`` back as it was; return whether anything stood before it.

    Whoever has replaced it since stays in place.
    """
    inner = getattr(torch.compile, meta_keys.STANDS_BEFORE, None)
    if inner is None:
        return False
    torch.compile = inner
    return True


@contextmanager
def without() -> Iterator[None]:
    """Compile as ``torch.compile`` alone does in a block."""
    before = torch.compile
    leave()
    try:
        yield
    finally:
        torch.compile = before
