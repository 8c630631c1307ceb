"""Code that runs once stands behind a test of what it, or its caller, sets itself."""

from __future__ import annotations

import dis
from collections.abc import Callable
from types import CodeType, SimpleNamespace
from typing import Any

import pytest

from bcmend.analysis.run_once import Place, Position, runs_once

STATE = SimpleNamespace(ready=False, other=False, step=0)
CACHE: dict[str, Any] = {}
READY = False


def stop(*_: object) -> None:
    """Stands for what Dynamo stops at."""


def _at_stop(code: CodeType, name: str = "stop") -> Position:
    """Return the place of the call of ``stop``."""
    instructions = list(dis.get_instructions(code))
    at = next(i for i, each in enumerate(instructions) if each.argval == name)
    call = next(each for each in instructions[at:] if each.opname.startswith("CALL"))
    assert call.positions is not None
    return tuple(call.positions)


def _attribute(x: Any) -> Any:
    if not getattr(STATE, "ready", False):
        stop(x)
        STATE.ready = True
    return x


def _early_return(x: Any) -> Any:
    if STATE.ready:
        return x
    stop(x)
    setattr(STATE, "ready", True)  # noqa: B010
    return x


def _cache(x: Any) -> Any:
    if "key" not in CACHE:
        stop(x)
        CACHE["key"] = x
    return x


def _in_a_handler(x: Any) -> Any:
    try:
        return CACHE["key"], STATE.ready
    except KeyError:
        if STATE.ready is False:
            stop(x)
            STATE.ready = True
    return x


def _global(x: Any) -> Any:
    global READY
    if not READY:
        stop(x)
        READY = True
    return x


def _inside_with(x: Any) -> Any:
    if not STATE.ready:
        with x:
            stop(x)
        STATE.ready = True
    return x


def _imports(x: Any) -> Any:
    import sys

    if "colorsys" not in sys.modules:
        __import__("colorsys")
        stop(x)
    return x


def _with_constants(x: Any) -> Any:
    if not STATE.ready and x not in ((), (1, "ready"), None, b"", 2.0):
        stop(x, (), ("a",), *())
        STATE.ready = True
    return x


ONCE = [
    _with_constants,
    _attribute,
    _early_return,
    _cache,
    _in_a_handler,
    _global,
    _inside_with,
    _imports,
]


def _always(x: Any) -> Any:
    stop(x)
    STATE.ready = True
    return x


def _another_test(x: Any) -> Any:
    if STATE.other:
        stop(x)
        STATE.ready = True
    return x


def _behind_the_block(x: Any) -> Any:
    if not STATE.ready:
        STATE.ready = True
    stop(x)
    return x


def _in_both_arms(x: Any) -> Any:
    y = 1 if STATE.ready else 2
    stop(x)
    STATE.ready = True
    return y


def _nothing_is_set(x: Any) -> Any:
    if not STATE.ready:
        stop(x)
    return x


OFTEN = [_always, _another_test, _behind_the_block, _in_both_arms, _nothing_is_set]


@pytest.mark.parametrize("function", ONCE)
def test_code_that_runs_once(function: Callable[[Any], Any]) -> None:
    code = function.__code__
    assert runs_once([Place(code, _at_stop(code))])


@pytest.mark.parametrize("function", OFTEN)
def test_code_that_runs_often(function: Callable[[Any], Any]) -> None:
    code = function.__code__
    assert not runs_once([Place(code, _at_stop(code))])


def test_the_caller_sets_what_it_tests() -> None:
    def inner(x: Any) -> None:
        stop(x)

    def outer(x: Any) -> Any:
        if not STATE.ready:
            inner(x)
            STATE.ready = True
        return x

    def other(x: Any) -> Any:
        inner(x)
        return x

    innermost = Place(inner.__code__, _at_stop(inner.__code__))
    assert runs_once([innermost, Place(outer.__code__, _at_stop(outer.__code__, "inner"))])
    assert not runs_once([innermost, Place(other.__code__, _at_stop(other.__code__, "inner"))])


def _install() -> None:
    setattr(STATE, "ready", True)  # noqa: B010


def _install_another() -> None:
    STATE.other = True


@pytest.mark.parametrize(("install", "is_once"), [(_install, True), (_install_another, False)])
def test_a_function_that_is_called_behind_the_stop_sets_what_is_tested(
    install: Callable[[], None], is_once: bool
) -> None:
    def inner(x: Any) -> None:
        if getattr(STATE, "ready", False):
            return
        stop(x)
        install_all()  # type: ignore[name-defined]  # noqa: F821

    place = inner.__code__, _at_stop(inner.__code__)
    assert runs_once([Place(*place, {"install_all": install})]) is is_once
    assert not runs_once([Place(*place)])
    outermost = Place(stop.__code__, (None,) * 4)
    assert not runs_once([outermost, Place(*place, {"install_all": install})])


def test_a_place_that_is_not_there() -> None:
    assert not runs_once([Place(_attribute.__code__, (1, 1, 0, 0))])
