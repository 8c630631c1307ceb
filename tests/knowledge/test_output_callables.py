"""Which callables write something."""

from __future__ import annotations

import functools
import io
import logging
import pprint
import sys
import types
import warnings
from typing import Any

import pytest

import bcmend
from bcmend.knowledge import output_callables


class Meter:
    def update(self, value: object) -> None: ...

    @staticmethod
    def count(value: object) -> None: ...

    def read(self) -> int:
        return 0


class FineMeter(Meter):
    pass


def note(text: str) -> None: ...


LOGGER = logging.getLogger(__name__)


@pytest.mark.parametrize(
    "value",
    [
        print,
        pprint.pp,
        warnings.warn,
        logging.info,
        LOGGER.info,
        sys.stderr.write,
        io.StringIO().write,
        logging.LoggerAdapter(LOGGER, {}).error,
        functools.partial(functools.partial(print, end=""), sep=""),
    ],
)
def test_a_callable_that_writes(value: Any) -> None:
    assert output_callables.of_callable(value) is not None


@pytest.mark.parametrize(
    "value", [len, note, Meter().update, LOGGER.setLevel, [].append, io.StringIO().read, 3, None]
)
def test_a_callable_that_does_not(value: Any) -> None:
    assert output_callables.of_callable(value) is None


def test_a_function_of_the_same_name_is_another() -> None:
    def pp(value: object) -> None: ...

    assert output_callables.of_callable(pp) is None


def test_what_is_written_may_be_counted() -> None:
    found = output_callables.of_callable(sys.stdout.write)
    assert found is not None and not found.returns_none


def test_a_stream_of_any_class_is_one_while_sys_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tee:
        def write(self, text: str) -> None: ...

    tee = Tee()
    assert output_callables.of_method(tee, "write") is None
    monkeypatch.setattr(sys, "stdout", tee)
    assert output_callables.of_method(tee, "write") is not None


# --- what the user registers


def test_a_registered_function() -> None:
    bcmend.register_output(note)
    bcmend.register_output(note)
    assert sum(each is note for each in output_callables.REGISTERED.targets()) == 1
    found = output_callables.of_callable(note)
    assert found is not None and not found.returns_none
    bcmend.register_output(note, returns_none=True)
    found = output_callables.of_callable(note)
    assert found is not None and found.returns_none


def test_a_method_of_all_instances() -> None:
    bcmend.register_output(Meter.update)
    assert output_callables.of_method(FineMeter(), "update") is not None
    assert output_callables.of_method(FineMeter(), "read") is None


def test_a_method_of_one_instance() -> None:
    one, other = Meter(), Meter()
    bcmend.register_output(one.update)
    bcmend.register_output(one.update)
    assert output_callables.of_method(one, "update") is not None
    assert output_callables.of_callable(one.update) is not None
    assert output_callables.of_method(other, "update") is None


def test_names_before_their_modules_are_imported() -> None:
    module = types.ModuleType("registered_by_name")
    bcmend.register_output("registered_by_name.send")
    bcmend.register_output("registered_by_name.Sender.send")

    class Sender:
        def send(self) -> None: ...

    def send() -> None: ...

    Sender.__module__, Sender.__qualname__ = module.__name__, "Sender"
    module.send, module.Sender = send, Sender  # type: ignore[attr-defined]
    assert output_callables.of_callable(send) is None
    sys.modules[module.__name__] = module
    try:
        assert output_callables.of_callable(send) is not None
        assert output_callables.of_method(module, "send") is not None
        assert output_callables.of_method(Sender(), "send") is not None
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("target", [3, None, Meter, "name", "a b.c", "", "a..b", "sys.no"])
def test_what_cannot_be_registered(target: Any) -> None:
    with pytest.raises(bcmend.OutputError):
        bcmend.register_output(target)
    assert not any(each is target for each in output_callables.REGISTERED.targets())


@pytest.mark.parametrize(
    ("name", "given", "expected"),
    [
        ("info", None, logging.INFO),
        ("critical", None, logging.CRITICAL),
        ("log", 15, 15),
        ("log", None, None),
        ("log", "INFO", None),
        ("setLevel", None, None),
    ],
)
def test_the_level_of_a_method_of_a_logger(name: str, given: object, expected: int | None) -> None:
    logger = logging.getLogger("levels")
    assert output_callables.level_of(logger, name, given) == expected
    assert output_callables.level_of(logging.LoggerAdapter(logger), name, given) == expected


def test_a_logger_that_decides_by_itself_has_no_known_level() -> None:
    class Deciding(logging.Logger):
        def isEnabledFor(self, level: int) -> bool:
            return False

    assert output_callables.level_of(Deciding("deciding"), "info") is None
    own = logging.Logger("own")
    own.info = print  # type: ignore[method-assign, assignment]
    assert output_callables.level_of(own, "info") is None
    assert output_callables.level_of(own, "error") == logging.ERROR
    assert output_callables.level_of(sys.stdout, "write") is None


def test_names_whose_result_is_none_whatever_has_them() -> None:
    for name in ("info", "warning", "add_scalar", "writelines"):
        assert output_callables.always_none(name)
    for name in ("log", "write", "print", "flush", "rule", "relu"):
        assert not output_callables.always_none(name)


def test_names_by_which_outputs_are_found() -> None:
    names = output_callables.last_names()
    assert {"print", "warn", "info", "write", "echo", "add_scalar"} <= names
    assert "relu" not in names
