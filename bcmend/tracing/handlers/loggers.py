"""What a traced call calls, and whether that writes anything.

Reads Dynamo's models of a callable, or of an object and the name of a method; answers by the table
of ``bcmend.knowledge.output_callables``. A logger whose level is disabled writes nothing: that is
decided while the call is traced, with a guard on the level.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final

from bcmend.dynamo import compat, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.values import Value, constant, global_of, object_behind
from bcmend.knowledge import output_callables
from bcmend.tracing.sites import capture_mode


def known_as(callee: Value, method: str) -> output_callables.Output | None:
    """Return what is known of the method of an object, or of a callable if ``method`` is empty."""
    callee = callee.realize()
    value = _object_behind(callee)
    if method:
        return None if value is None else output_callables.of_method(value, method)
    inner = getattr(callee, "func", None)  # of functools.partial
    if isinstance(inner, Value):
        return known_as(inner, "")
    owner, name = objects.owner_of_method(callee), objects.name_of_method(callee)
    if isinstance(owner, Value):
        if name is not None:  # an attribute not looked up
            return known_as(owner, name)
        if value is not None:
            return known_as(owner, getattr(value, "__name__", ""))
    return None if value is None else output_callables.of_callable(value)


def _object_behind(variable: Value) -> Any:
    value = object_behind(variable)
    return object_behind(variable, "fn") if value is None else value


def is_silent(owner: Value, method: str, first: Value) -> bool:
    """Return whether a method of a logger writes nothing now, since its level is disabled."""
    logger = _object_behind(owner.realize())
    given = first.realize()
    known = given.as_python_constant() if given.is_python_constant() else None
    level = output_callables.level_of(logger, method, known)
    if level is None or owner.source is None or logger.isEnabledFor(level):
        return False
    _guard(owner.source, level, enabled=False)
    return True


_Create = Callable[[compat.GuardBuilderBase, compat.Guard], None]
_CREATE: Final[dict[tuple[int, bool], _Create]] = {}


def _guard(source: compat.Source, level: int, *, enabled: bool) -> None:
    """Have the frame traced again once a logger is enabled for ``level``, or is not any more."""
    compat.install_guard(compat.Guard(source, _create(level, enabled)))


def _create(level: int, enabled: bool) -> _Create:
    """Return what adds the guard to a frame; one function for each, so that equal ones are one."""

    def is_as_before(logger: Any) -> bool:
        return bool(logger.isEnabledFor(level)) is enabled

    def LOGGER_LEVEL(builder: compat.GuardBuilderBase, guard: compat.Guard) -> None:
        assert isinstance(builder, compat.GuardBuilder)
        code = [f"{guard.name}.isEnabledFor({level}) is {enabled}"]
        manager = builder.get_guard_manager(guard)
        manager.add_lambda_guard(is_as_before, code, guard.user_stack)

    return _CREATE.setdefault((level, enabled), LOGGER_LEVEL)


@handlers.method(compat.LoggingLoggerVariable, methods.CALL_METHOD, "questions to a logger")
def _call_method(call: Call) -> Answer:
    """Answer ``isEnabledFor``, with a guard, and ``getChild``."""
    tx, logger, (name, args, kwargs) = call.tx, call.owner, call.args
    if name == "isEnabledFor" and len(args) == 1 and not kwargs and capture_mode.in_mended_code(tx):
        level = args[0].as_python_constant() if args[0].is_python_constant() else None
        if type(level) is int and logger.source is not None:
            enabled = bool(logger.value.isEnabledFor(level))
            _guard(logger.source, level, enabled=enabled)
            return constant(enabled)
    if name == "getChild" and len(args) == 1 and args[0].is_python_constant():
        return _found(tx, logger.value.getChild(args[0].as_python_constant()))
    return PASS


def _found(tx: compat.Tracer, logger: logging.Logger) -> Value:
    """Return the model of a logger that a call has found, which is never another."""
    return Value.build(tx, logger, global_of(tx.output, logger)).realize()  # type: ignore[no-any-return]


@handlers.method(compat.UserFunctionVariable, methods.CALL_FUNCTION, "`logging.getLogger`")
def _call_function(call: Call) -> Answer:
    """Find a logger: a name always gives the same one, and the search cannot be traced.

    ``torch._dynamo.assume_constant_result`` would say so for all code of the process.
    """
    function, (args, kwargs) = call.owner, call.args
    if function.fn is not logging.getLogger:
        return PASS
    if not all(each.is_python_constant() for each in (*args, *kwargs.values())):
        return PASS
    names = [each.as_python_constant() for each in (*args, *kwargs.values())]
    return _found(call.tx, logging.getLogger(*names))
