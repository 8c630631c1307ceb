"""Which callables write something."""

from __future__ import annotations

import functools
import io
import logging
import pprint
import sys
import types
import warnings
from collections.abc import Iterator
from typing import Any

import pytest

import bcmend
from bcmend import outputs


@pytest.fixture(autouse=True)
def _nothing_stays_registered() -> Iterator[None]:
    before = outputs.registered()
    yield
    for target in outputs.registered():
        if not any(target is each for each in before):
            outputs.unregister(target)


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
    assert outputs.of_callable(value) is not None


@pytest.mark.parametrize(
    "value", [len, note, Meter().update, LOGGER.setLevel, [].append, io.StringIO().read, 3, None]
)
def test_a_callable_that_does_not(value: Any) -> None:
    assert outputs.of_callable(value) is None


def test_a_function_of_the_same_name_is_another() -> None:
    def pp(value: object) -> None: ...

    assert outputs.of_callable(pp) is None


def test_what_is_written_may_be_counted() -> None:
    found = outputs.of_callable(sys.stdout.write)
    assert found is not None and not found.returns_none


def test_a_stream_of_any_class_is_one_while_sys_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    class Tee:
        def write(self, text: str) -> None: ...

    tee = Tee()
    assert outputs.of_method(tee, "write") is None
    monkeypatch.setattr(sys, "stdout", tee)
    assert outputs.of_method(tee, "write") is not None


# --- what the user registers


def test_a_registered_function() -> None:
    bcmend.register_output(note)
    bcmend.register_output(note)
    assert sum(each is note for each in outputs.registered()) == 1
    found = outputs.of_callable(note)
    assert found is not None and not found.returns_none
    bcmend.register_output(note, returns_none=True)
    found = outputs.of_callable(note)
    assert found is not None and found.returns_none


def test_a_method_of_all_instances() -> None:
    bcmend.register_output(Meter.update)
    assert outputs.of_method(FineMeter(), "update") is not None
    assert outputs.of_method(FineMeter(), "read") is None


def test_a_method_of_one_instance() -> None:
    one, other = Meter(), Meter()
    bcmend.register_output(one.update)
    bcmend.register_output(one.update)
    assert outputs.of_method(one, "update") is not None
    assert outputs.of_callable(one.update) is not None
    assert outputs.of_method(other, "update") is None


def test_names_before_their_modules_are_imported() -> None:
    module = types.ModuleType("registered_by_name")
    bcmend.register_output("registered_by_name.send")
    bcmend.register_output("registered_by_name.Sender.send")

    class Sender:
        def send(self) -> None: ...

    def send() -> None: ...

    Sender.__module__, Sender.__qualname__ = module.__name__, "Sender"
    module.send, module.Sender = send, Sender  # type: ignore[attr-defined]
    assert outputs.of_callable(send) is None
    sys.modules[module.__name__] = module
    try:
        assert outputs.of_callable(send) is not None
        assert outputs.of_method(module, "send") is not None
        assert outputs.of_method(Sender(), "send") is not None
    finally:
        del sys.modules[module.__name__]


@pytest.mark.parametrize("target", [3, None, Meter, "name", "a b.c", "", "a..b"])
def test_what_cannot_be_registered(target: Any) -> None:
    with pytest.raises(bcmend.OutputError):
        bcmend.register_output(target)
    assert not any(each is target for each in outputs.registered())
