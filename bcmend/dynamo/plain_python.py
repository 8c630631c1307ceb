"""Code that runs as plain Python, whatever compiles the frames around it."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from bcmend.dynamo import compat

T = TypeVar("T")


def run(function: Callable[..., T], /, *arguments: Any, **named: Any) -> T:
    """Call a function; nothing that it calls is compiled."""
    callback = compat.set_eval_frame(None)
    try:
        return function(*arguments, **named)
    finally:
        compat.set_eval_frame(callback)


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
