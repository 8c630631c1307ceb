"""A patched program that is exported: it gives what the program gives, and writes nothing.

Where stock `torch.export` takes a program, it has to take it patched.
"""

from __future__ import annotations

import copy
import itertools
import random
import re
import sys
import warnings
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
from torch import Tensor, nn

import bcmend
from tests.fuzz.programs import Program, factory_of, inputs_of, policy_of
from tests.observation import captured

_SEED = 20
_NUMBERS: Final = itertools.count()


#: What an exported program keeps as it was when it was exported, be it patched or not.
_FROM_THE_HOST: Final = re.compile(r"\b(random|time)\.")


class _AsModule(nn.Module):
    """What `torch.export` takes in the place of a function."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, *arguments: Any, **keywords: Any) -> Any:
        return self.function(*arguments, **keywords)


def found_in_export(program: Program) -> Iterator[str]:
    """Yield what is wrong with the exported program, or with the failure to export it."""
    strict = random.Random(program.text).random() < 0.5
    build, calls = factory_of(program), inputs_of(program)

    def make() -> Any:
        subject = build()
        forward = subject if isinstance(subject, FunctionType) else type(subject).forward
        _be_importable(forward.__globals__)
        return subject

    expected = _outcome(make(), calls()[0])
    if isinstance(expected, Exception):
        return
    stock = _exported(make(), calls()[0], strict)
    subject = make()
    with bcmend.patched(subject, policy=policy_of(program)):
        ours = _exported(subject, calls()[0], strict)
    if isinstance(ours, Exception):
        if not isinstance(stock, Exception):
            yield f"export: stock torch.export takes it, but {type(ours).__name__}: {ours}"[:300]
        return
    found = _outcome(ours, calls()[0])
    reference: Any = expected
    if not isinstance(stock, Exception):
        of_stock = _outcome(stock, calls()[0])
        if _is_like(of_stock, expected):
            reference = of_stock
        elif _is_like(found, of_stock):
            return  # a handler of the program may catch what torch raises while it exports
    if _FROM_THE_HOST.search(program.body) and not _is_like(found, expected):
        return
    if not isinstance(found, Exception) and not _is_like(found, reference):
        yield f"export: {str(reference)[:100]} and {str(found)[:100]}"


def _be_importable(names: dict[str, Any]) -> None:
    """Put a program where Dynamo looks for what its code names; it may not be there yet.

    Dynamo remembers a module by its name, so each gets another one.
    """
    names["__name__"] = f"exported_program_{next(_NUMBERS)}"
    module = ModuleType(names["__name__"])

    def attribute(name: str) -> Any:
        if name in names:
            return names[name]
        raise AttributeError(name)

    vars(module)["__getattr__"] = attribute
    sys.modules[module.__name__] = module


def _exported(subject: Any, call: Any, strict: bool) -> Any:
    module = subject if isinstance(subject, nn.Module) else _AsModule(subject)
    keywords = dict(call.keywords)
    try:
        with captured(), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(_SEED)
            return torch.export.export(
                module.eval(), tuple(call.arguments), keywords, strict=strict
            ).module()
    except Exception as error:
        return error


def _outcome(subject: Any, call: Any) -> Any:
    if isinstance(subject, nn.Module) and not isinstance(subject, torch.fx.GraphModule):
        subject = subject.eval()
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    try:
        with captured():
            return subject(*copy.deepcopy(call.arguments), **copy.deepcopy(dict(call.keywords)))
    except Exception as error:
        return error


def _is_like(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and torch.allclose(
            one.detach().float(), other.detach().float(), equal_nan=True
        )
    if isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)):
        return len(one) == len(other) and all(map(_is_like, one, other))
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(_is_like(one[key], other[key]) for key in one)
    if isinstance(one, (int, float, str)) and isinstance(other, (int, float, str)):
        return one == other or (one != one and other != other)
    return type(one).__name__ == type(other).__name__
