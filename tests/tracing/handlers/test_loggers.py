"""Loggers that traced code finds by name: constant in mended code, and nowhere else."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.source import AttrSource
from torch._dynamo.utils import counters

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.values import constant
from bcmend.knowledge import output_callables
from bcmend.tracing.handlers import loggers
from tests import new_process
from tests.tracing.in_trace import during_trace

X = torch.tensor([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _says(x: Tensor) -> Tensor:
    logging.getLogger("tests.found").warning("found")
    return x * 2


_UNPATCHED = """
import logging, sys, torch
from torch._dynamo.utils import counters

if sys.argv[1] == "imported":
    import bcmend
    bcmend.compile(lambda x: print(x) or x, backend="eager")(torch.ones(1))
    torch._dynamo.reset()
    counters.clear()

def program(x):
    logger = logging.getLogger("tests.found")
    return x * 2 if logger is not None else x

torch.compile(program, backend="eager")(torch.ones(1))
print(counters["stats"]["unique_graphs"], *counters["graph_break"])
"""


def test_code_that_is_not_patched_is_traced_as_without_bcmend() -> None:
    found = []
    for word in ("imported", "stock"):
        run = new_process.run("-c", _UNPATCHED, word)
        assert run.returncode == 0, run.stderr
        found.append(run.stdout.removeprefix("tensor([1.])\n"))
    assert found[0] == found[1] != ""


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_logger_found_in_mended_code_costs_no_graph(
    fullgraph: bool, caplog: pytest.LogCaptureFixture
) -> None:
    compiled: Any = bcmend.compile(_says, backend="eager", fullgraph=fullgraph)
    compiled(X)
    assert counters["stats"]["unique_graphs"] == 1
    assert [each.getMessage() for each in caplog.records if each.name == "tests.found"] == ["found"]


def test_a_logger_found_behind_a_graph_break(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        logging.getLogger("tests.found").warning("after")
        return x + 1

    bcmend.compile(program, backend="eager")(X)
    assert counters["stats"]["unique_graphs"] == 2
    assert [each.getMessage() for each in caplog.records if each.name == "tests.found"] == ["after"]


# The handlers, called directly

LOGGER = logging.getLogger("tests.direct")


def _model(tx: Any, value: Any = LOGGER, name: str = "LOGGER") -> Any:
    source = AttrSource(tx.import_source(__name__), name)
    return compat.VariableTracker.build(tx, value, source).realize()


def _asked(tx: Any, name: str, *args: Any) -> Any:
    call = HandlerCall(tx, "call_method", _model(tx), (name, list(map(constant, args)), {}), {})
    return loggers._call_method(call)


@pytest.mark.parametrize("level", [logging.DEBUG, logging.WARNING])
def test_whether_a_level_is_enabled_is_a_constant(level: int) -> None:
    found = during_trace(lambda tx, x: _asked(tx, "isEnabledFor", level), X)
    assert found.as_python_constant() is LOGGER.isEnabledFor(level)


@pytest.mark.parametrize("level", ["INFO", True, None])
def test_a_level_that_is_no_integer_is_passed_on(level: Any) -> None:
    assert during_trace(lambda tx, x: _asked(tx, "isEnabledFor", level), X) is PASS


def test_other_methods_of_a_logger_are_passed_on() -> None:
    assert during_trace(lambda tx, x: _asked(tx, "getEffectiveLevel"), X) is PASS


def test_a_child_is_the_logger_itself() -> None:
    found = during_trace(lambda tx, x: _asked(tx, "getChild", "child").value, X)
    assert found is logging.getLogger("tests.direct.child")


def test_a_logger_is_found_by_its_name() -> None:
    def body(tx: Any, x: Any) -> Any:
        functions = (logging.getLogger, logging.getLevelName)
        models = [compat.VariableTracker.build(tx, each).realize() for each in functions]
        given = ([constant("tests.direct")], {})
        calls = [HandlerCall(tx, "call_function", each, given, {}) for each in models]
        found, other = map(loggers._call_function, calls)
        return found.value, other

    assert during_trace(body, X) == (LOGGER, PASS)


@pytest.mark.parametrize(
    ("level", "enabled", "is_silent"),
    [("debug", logging.WARNING, True), ("error", logging.WARNING, False), ("name", 0, False)],
)
def test_a_method_is_silent_if_its_level_is_disabled(
    level: str, enabled: int, is_silent: bool
) -> None:
    def body(tx: Any, x: Any) -> Any:
        return loggers.is_silent(_model(tx), level, constant("text"))

    LOGGER.setLevel(enabled)
    try:
        assert during_trace(body, X) is is_silent
    finally:
        LOGGER.setLevel(logging.NOTSET)


def test_what_is_known_of_a_callee() -> None:
    def body(tx: Any, x: Any) -> Any:
        printing = compat.VariableTracker.build(tx, print)
        length = compat.VariableTracker.build(tx, len)
        return (
            loggers.known_as(printing, ""),
            loggers.known_as(length, ""),
            loggers.known_as(_model(tx), "info"),
            loggers.known_as(_model(tx), "getChild"),
        )

    expected = (
        output_callables.of_callable(print),
        None,
        output_callables.of_method(LOGGER, "info"),
        None,
    )
    found = during_trace(body, X)
    assert found == expected and found[0] and found[2]


def test_equal_guards_on_a_level_are_one() -> None:
    assert loggers._create(10, True) is loggers._create(10, True)
    assert loggers._create(10, True) is not loggers._create(10, False)
