"""What a traced call calls, and whether that writes anything.

Reads Dynamo's models of a callable, or of an object and the name of a method; answers by the table
of `bcmend.outputs`. A logger whose level is disabled writes nothing: that is settled while the call
is traced, and a guard has the frame traced again once the level is enabled.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import ConstantSource, GlobalStateSource
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.functions import UserFunctionVariable, invoke_and_store_as_constant
from torch._dynamo.variables.misc import LoggingLoggerVariable
from torch._guards import Guard, GuardBuilderBase, Source

from bcmend import outputs
from bcmend.names import BUFFER, NAMESPACE
from bcmend.runtime import scalars
from bcmend.runtime.merge import constant, object_behind

__all__ = ["install", "is_mended", "is_silent", "known_as"]

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
        held = object_behind(variable, name)
        if held is not None:
            return held
    return None


def is_silent(owner: VariableTracker, method: str, first: VariableTracker) -> bool:
    """Whether a method of a logger writes nothing now, since its level is disabled."""
    logger = _object_behind(owner.realize())
    given = first.realize()
    known = given.as_python_constant() if given.is_python_constant() else None
    level = outputs.level_of(logger, method, known)
    if level is None or owner.source is None or logger.isEnabledFor(level):
        return False
    _guard(owner.source, logger, level, enabled=False)
    return True


_Create = Callable[[GuardBuilderBase, Guard], None]
_CREATE: Final[dict[tuple[int, int, bool], _Create]] = {}


def _guard(source: Source, logger: Any, level: int, *, enabled: bool) -> None:
    """Have the frame traced again once a logger is enabled for ``level``, or is not any more."""
    if isinstance(source, ConstantSource):  # a logger that a call has found; it stays the same
        create = _create(id(logger), level, enabled, logger)
        install_guard(Guard(GlobalStateSource(), create))
    else:
        install_guard(Guard(source, _create(0, level, enabled, None)))


def _create(number: int, level: int, enabled: bool, known: Any) -> _Create:
    """Return what adds the guard to a frame; one function for each, so that equal ones are one."""

    def is_as_before(given: Any) -> bool:
        logger = given if known is None else known
        return bool(logger.isEnabledFor(level)) is enabled

    def LOGGER_LEVEL(builder: GuardBuilderBase, guard: Guard) -> None:
        assert isinstance(builder, GuardBuilder)
        place = builder.get_guard_manager(guard) if known is None else builder.guard_manager.root
        code = [f"{known or guard.name}.isEnabledFor({level}) is {enabled}"]
        place.add_lambda_guard(is_as_before, code, guard.user_stack)

    return _CREATE.setdefault((number, level, enabled), LOGGER_LEVEL)


_CALL_METHOD: Final = LoggingLoggerVariable.call_method


def _call_method(
    self: LoggingLoggerVariable,
    tx: Any,
    name: str,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    """Answer questions to a logger in mended code; the frame has a guard on ``isEnabledFor``."""
    if name == "isEnabledFor" and len(args) == 1 and not kwargs and scalars.may_take(tx):
        level = args[0].as_python_constant() if args[0].is_python_constant() else None
        if type(level) is int and self.source is not None:
            enabled = bool(self.value.isEnabledFor(level))
            _guard(self.source, self.value, level, enabled=enabled)
            return constant(enabled)
    if name == "getChild" and len(args) == 1 and args[0].is_python_constant() and is_mended(tx):
        child = self.value.getChild(args[0].as_python_constant())
        found: VariableTracker = tx.output.register_attr_or_module(
            child, child.name, source=ConstantSource(child.name)
        )
        return found
    return _CALL_METHOD(self, tx, name, args, kwargs)


_CALL_FUNCTION: Final = UserFunctionVariable.call_function


def _call_function(
    self: UserFunctionVariable,
    tx: Any,
    args: list[VariableTracker],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker:
    """Find a logger in mended code: a name always gives the same one, and tracing how breaks off.

    ``torch._dynamo.assume_constant_result`` would say so for all code of the process.
    """
    if self.fn is logging.getLogger and is_mended(tx):
        return invoke_and_store_as_constant(tx, self.fn, self.get_name(), args, kwargs)
    return _CALL_FUNCTION(self, tx, args, kwargs)


def is_mended(tx: Any) -> bool:
    """Whether a frame being traced is of mended code, or inside of such."""
    while tx is not None:
        if BUFFER in tx.symbolic_locals or NAMESPACE in tx.f_code.co_names:
            return True
        tx = getattr(tx, "parent", None)
    return False


def install() -> None:
    """Tell Dynamo what it needs to know of loggers in mended code."""
    UserFunctionVariable.call_function = _call_function  # type: ignore[method-assign]
    LoggingLoggerVariable.call_method = _call_method  # type: ignore[method-assign]
