"""Which keys of a journaled dictionary no record has touched."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.merging.journaled_keys import untouched
from bcmend.tracing.output import record_builder
from tests.tracing.plain_trace import traced


def _tuple(*items: Any) -> Any:
    return compat.TupleVariable(list(items))


def _known(monkeypatch: pytest.MonkeyPatch, key: str, *records: Any) -> list[str] | None:
    """Return what is known of `key` in ``{"a": x}`` after records, written as functions of it."""
    found: list[list[str] | None] = []

    def step(tx: Any, x: Any) -> Any:
        owner = compat.ConstDictVariable(
            {constant("a"): x}, mutation_type=compat.ValueMutationNew()
        )
        inputs = [make(owner) for make in records]
        monkeypatch.setattr(record_builder, "records_until_now", lambda tx: inputs)
        known = untouched(tx, owner, owner, constant(key))
        names = known and [each.vt.as_python_constant() for each in known.items]
        found.append(names if known is None else list(names or []))
        return x

    traced(step, torch.ones(2))
    return found[0]


def test_a_key_that_no_record_names_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def sets_b(owner: Any) -> Any:
        return _tuple(owner, constant("__setitem__"), constant("b"), constant(1))

    assert _known(monkeypatch, "a") == ["a"]
    assert _known(monkeypatch, "b") == []
    assert _known(monkeypatch, "a", sets_b) == ["a"]
    assert _known(monkeypatch, "b", sets_b) is None


def test_a_refill_names_the_keys_that_it_removes_and_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refills(owner: Any) -> Any:
        return _tuple(owner, _tuple(constant("b")), _tuple(_tuple(constant("c"), constant(1))))

    assert _known(monkeypatch, "a", refills) == ["a"]
    assert _known(monkeypatch, "b", refills) is None
    assert _known(monkeypatch, "c", refills) is None


@pytest.mark.parametrize(
    "record",
    [
        lambda owner: _tuple(owner, constant("update"), _tuple()),
        lambda owner: _tuple(owner, constant("clear")),
        lambda owner: _tuple(constant(0), owner),
        lambda owner: _tuple(constant(0), constant("__setitem__"), constant("b"), owner),
    ],
)
def test_another_record_of_the_dictionary_may_touch_any_key(
    monkeypatch: pytest.MonkeyPatch, record: Any
) -> None:
    assert _known(monkeypatch, "a", record) is None


def test_records_of_others_touch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _known(monkeypatch, "a", lambda owner: _tuple(constant("clear"))) == ["a"]
    assert _known(monkeypatch, "a", lambda owner: constant("clear")) == ["a"]
