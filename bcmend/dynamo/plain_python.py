"""Code that runs as plain Python, whatever compiles the frames around it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from types import FunctionType
from typing import Any, Final, TypeVar

from bcmend.dynamo import compat

T = TypeVar("T")


def run(function: Callable[..., T], /, *arguments: Any, **named: Any) -> T:
    """Call a function; nothing that it calls is compiled."""
    callback = compat.set_eval_frame(None)
    try:
        return function(*arguments, **named)
    finally:
        compat.set_eval_frame(callback)


def without_modes() -> AbstractContextManager[Any]:
    """Have no mode see the operators of a block, which costs nothing where there is none."""
    if any(count() for count in _COUNTS):
        modes: AbstractContextManager[Any] = compat._disable_current_modes()
        return modes
    return _NO_MODES


_NO_MODES: Final = nullcontext()
#: Each returns how many modes are active, of one kind.
_COUNTS: Final[tuple[Callable[[], int], ...]] = (
    compat._len_torch_dispatch_stack,
    compat._len_torch_dispatch_stack_pre_dispatch,
)


def depth_of_transforms() -> int:
    """Return how many transforms of ``torch.func`` are in force."""
    return compat.get_dynamic_layer_stack_depth()


def leave_transforms(depth: int) -> None:
    """Leave transforms of ``torch.func`` until no more than ``depth`` are in force."""
    if compat.get_dynamic_layer_stack_depth() > depth:
        compat.pop_dynamic_layer_stack_and_undo_to_depth(depth)


def have_dynamo_skip(*targets: Any) -> None:
    """Have Dynamo skip functions, and those that modules define."""
    for target in targets:
        if isinstance(target, FunctionType):
            compat.skip_code(target.__code__)
            continue
        for each in vars(target).values():
            if isinstance(each, FunctionType) and each.__module__ == target.__name__:
                compat.skip_code(each.__code__)


have_dynamo_skip(run, depth_of_transforms, leave_transforms)
