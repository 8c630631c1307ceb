"""Histories of gradients that the fake tensors of a trace have."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch


def saved_for_backward(starts: Iterable[Any]) -> Iterator[torch.Tensor | None]:
    """Yield the tensors that the backward of ``starts`` reads; ``None`` for one that is not known.

    One that was changed in place since is yielded too, as it is now.
    """
    return saved_by(functions_behind(starts))


def functions_behind(starts: Iterable[Any]) -> set[Any]:
    """Return the functions of autograd that ``starts`` lead to, and those themselves."""
    waiting = [start for start in starts if start is not None]
    seen = set()
    while waiting:
        function = waiting.pop()
        if function not in seen:
            seen.add(function)
            waiting += [each for each, _ in function.next_functions if each is not None]
    return seen


def saved_by(functions: Iterable[Any]) -> Iterator[torch.Tensor | None]:
    """Yield what functions of autograd have saved, as ``saved_for_backward`` does."""
    for function in functions:
        for name in dir(function):
            if name.startswith("_saved_") or name == "saved_tensors":
                yield from _saved_under(function, name)


def _saved_under(function: Any, name: str) -> Iterator[torch.Tensor | None]:
    try:
        value = getattr(function, name)
    except RuntimeError:  # changed in place since it was saved, or freed
        yield from _saved_and_changed(getattr(function, f"_raw_{name.lstrip('_')}", None))
        return
    for each in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(each, torch.Tensor):
            yield each


def _saved_and_changed(saved: Any) -> Iterator[torch.Tensor | None]:
    for each in saved if isinstance(saved, (list, tuple)) else (saved,):
        held = getattr(each, "data", None)
        yield held if isinstance(held, torch.Tensor) else None
