"""A choice inside ``torch.utils.checkpoint``, as torch traces it for a back end that compiles.

A checkpoint notes in a mode of its own what each operator returns, and gives that back where the
backward runs the same operators again. Torch has no rule there for operators with graphs as
arguments, though the mode itself asks nothing of an operator but its arguments.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from bcmend.dynamo import compat, hooks
from bcmend.tracing.backends import traced_choices

_COND: Final = torch.ops.higher_order.cond
_PURPOSE: Final = "choices in a checkpoint"


def _noted(inner: Callable[..., Any] | None, mode: Any, *arguments: Any, **named: Any) -> Any:
    """Have the mode treat a choice like any other operator."""
    if inner is not None:
        return inner(mode, *arguments, **named)
    if not traced_choices.is_remembering():  # no patched code is being compiled
        return _refused_by_torch(mode, *arguments, **named)
    return mode.__torch_dispatch__(_COND, [], arguments, named)


def _refused_by_torch(mode: Any, *arguments: Any, **named: Any) -> Any:
    """Raise what torch raises where there is no rule."""
    kind = type(mode)
    rule = _COND.python_key_table.pop(kind)
    try:
        with mode:
            return _COND(*arguments, **named)
    finally:
        _COND.python_key_table[kind] = rule


for _mode in (compat._CachingTorchDispatchMode, compat._CachedTorchDispatchMode):
    hooks.kernel(_COND, _PURPOSE, key=_mode)(_noted)
