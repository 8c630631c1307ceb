"""What a traced call calls, and whether that writes anything.

Reads Dynamo's models of a callable, or of an object and the name of a method; answers by the table
of `bcmend.outputs`. A logger whose level is disabled writes nothing: that is settled while the call
is traced, and a guard has the frame traced again once the level is enabled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.variables.base import VariableTracker
from torch._guards import Guard, GuardBuilderBase

from bcmend import outputs

__all__ = ["install", "is_silent", "known_as"]

#: Attributes in which Dynamo's models of callables and objects keep the thing itself.
_HELD_IN: Final = ("value", "fn")


def known_as(callee: VariableTracker, method: str) -> outputs.Output | None:
    """Return what is known of the method of an object, or of a callable if ``method`` is empty."""
    callee = callee.realize()
    if method:
        owner = _object_behind(callee)
        return None if owner is None else outputs.of_method(owner, method)
    inner = getattr(callee, "func", None)  # of functools.partial
    if isinstance(inner, VariableTracker):
        return known_as(inner, "")
    owner, name = getattr(callee, "obj", None), getattr(callee, "name", None)
    if isinstance(owner, VariableTracker) and isinstance(name, str):  # an attribute not looked up
        return known_as(owner, name)
    value = _object_behind(callee)
    if isinstance(owner, VariableTracker) and value is not None:
        return known_as(owner, getattr(value, "__name__", ""))
    return None if value is None else outputs.of_callable(value)


def _object_behind(variable: VariableTracker) -> Any:
    for name in _HELD_IN:
        held = getattr(variable, name, None)
        if held is not None:
            return held
    return None


def is_silent(owner: VariableTracker, method: str, first: VariableTracker) -> bool:
    """Whether a method of a logger writes nothing now, since its level is disabled."""
    logger = _object_behind(owner.realize())
    given = first.realize()
    known = given.as_python_constant() if given.is_python_constant() else None
    level = outputs.level_of(logger, method, known)
    if level is None or logger.isEnabledFor(level):
        return False
    return _guarded(owner, logger, level)


def _guarded(owner: VariableTracker, logger: logging.Logger, level: int) -> bool:
    """Have the frame traced again when ``level`` is enabled; say whether that is possible."""
    if owner.source is None:
        return False
    install_guard(Guard(owner.source, _disabled(level)))
    return True


_DISABLED: Final[dict[int, Callable[[GuardBuilderBase, Guard], None]]] = {}


def _disabled(level: int) -> Callable[[GuardBuilderBase, Guard], None]:
    """Return what adds the guard that a logger is disabled for ``level``."""

    def is_disabled(logger: Any) -> bool:
        return not logger.isEnabledFor(level)

    def LOGGER_DISABLED(builder: GuardBuilderBase, guard: Guard) -> None:
        assert isinstance(builder, GuardBuilder)
        code = [f"not {guard.name}.isEnabledFor({level})"]
        builder.get_guard_manager(guard).add_lambda_guard(is_disabled, code, guard.user_stack)

    # One function for each level, so that equal guards are one.
    return _DISABLED.setdefault(level, LOGGER_DISABLED)


def install() -> None:
    """Tell Dynamo that a name always gives the same logger; tracing how it is found breaks off."""
    torch._dynamo.assume_constant_result(logging.getLogger)  # type: ignore[no-untyped-call]
