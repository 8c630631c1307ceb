"""Functions under a decorator of torch, as ``@torch.no_grad()``, that are what is compiled.

Dynamo begins at no code of torch's own. For such a function it begins at a frame around it
(``wrap_inline`` in torch/_dynamo/external_utils.py), and what is mended would be inlined, though
much of it has to be done where a call begins and ends. Here that frame and the decorator run in
plain Python, as hooks of modules do, and Dynamo begins at the function.
"""

from __future__ import annotations

import weakref
from types import CodeType, FunctionType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods, translators
from bcmend.patching import waiting


def _plain() -> None:
    """Stand for any function."""


def _place_of(code: CodeType) -> tuple[str, int]:
    """Return where code is written; it may have the name of a context."""
    return code.co_filename, code.co_firstlineno


#: Where functions are written that enter a context, and call another function in it.
_ENTERING: Final = frozenset(
    _place_of(decorate(_plain).__code__)
    for decorate in (torch.no_grad(), torch.autocast("cpu", enabled=False))
)
#: The code of the frame that Dynamo puts around what it does not begin at.
_AROUND: Final = compat.wrap_inline(_plain).__code__

_CALLED: Final = translators.skipped(
    "bcmend: Dynamo begins at the function that is decorated", with_calls=False
)

#: Functions that were found behind a decorator, of objects that were to be patched.
_FOUND: Final[weakref.WeakSet[FunctionType]] = weakref.WeakSet()


@hooks.watch(
    compat.convert_frame.ConvertFrameAssert,
    methods.CALL,
    "begin at functions that a context of torch decorates",
    is_lasting=True,
    is_needed=lambda: bool(_FOUND),
)
def _convert(convert: Any, converter: Any, frame: Any, *others: Any, **named: Any) -> Any:
    if frame.f_code is _AROUND and _is_mended_inside(frame.closure[0].cell_contents):
        return _CALLED
    return convert(converter, frame, *others, **named)


def entered_first(function: FunctionType) -> FunctionType:
    """Return where Dynamo is to begin in a function that it may enter first."""
    found = _undecorated(function)
    if found is not function:
        _FOUND.add(found)
    return found


def _undecorated(function: FunctionType) -> FunctionType:
    """Return the function that contexts of torch decorate; any other function as it is."""
    while _place_of(function.__code__) in _ENTERING:
        inner = getattr(function, "__wrapped__", None)
        if not isinstance(inner, FunctionType):
            break
        function = inner
    return function


def _is_mended_inside(called: Any) -> bool:
    """Return whether a function that is mended, or will be, is behind decorators only."""
    outer = called.forward if isinstance(called, torch.nn.Module) else called
    outer = getattr(outer, "__func__", outer)
    if not isinstance(outer, FunctionType):
        return False
    function = _undecorated(outer)
    is_ours = waiting.is_mended(function) or waiting.is_reached(function.__code__)
    return function is not outer and is_ours
