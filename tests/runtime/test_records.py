"""Delivery: in order, under predicates, once, and no further than the first failed guard."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.runtime.records import OUTLET, Buffer, deliver, settle_attribute, settle_item


def _writer(log: list[Any]) -> Any:
    return lambda *values: log.append(values)


def _raise(message: str) -> None:
    raise ValueError(message)


def test_records_are_delivered_in_order_and_the_buffer_is_left_empty() -> None:
    log: list[Any] = []
    buffer: Buffer = [("s", None, False, _writer(log), (number,)) for number in range(3)]
    deliver(buffer)
    assert log == [(0,), (1,), (2,)]
    assert buffer == []


def test_a_false_predicate_keeps_a_record_back() -> None:
    log: list[Any] = []
    write = _writer(log)
    deliver(
        [
            ("s", torch.tensor(False), False, write, ("not taken",)),
            ("s", torch.tensor(True), False, write, ("taken",)),
        ]
    )
    assert log == [("taken",)]


def test_nothing_after_a_failed_guard_is_delivered() -> None:
    log: list[Any] = []
    write = _writer(log)
    buffer: Buffer = [
        ("s", None, False, write, ("before",)),
        ("g", torch.tensor(False), True, _raise, ("holds",)),
        ("g", torch.tensor(True), True, _raise, ("failed",)),
        ("s", None, False, write, ("after",)),
    ]
    with pytest.raises(ValueError, match="failed"):
        deliver(buffer)
    assert log == [("before",)]
    assert buffer == []


def test_a_guard_that_does_not_raise_is_an_error_and_no_result() -> None:
    with pytest.raises(AssertionError, match=r"my\.site"):
        deliver([("my.site", torch.tensor(True), True, lambda: None, ())])


def test_assigning_to_the_outlet_delivers() -> None:
    log: list[Any] = []
    OUTLET.records = [("s", None, False, _writer(log), (1,))]
    assert log == [(1,)]


@pytest.mark.parametrize("taken", [True, False])
def test_settling_puts_the_very_object_of_the_taken_side(taken: bool) -> None:
    one, other, merged = torch.zeros(1), torch.ones(1), torch.full((1,), 2.0)
    module = torch.nn.Module()
    module.register_buffer("state", merged)
    items = {"state": merged}
    settle_attribute(module, "state", merged, torch.tensor(taken), one, other)
    settle_item(items, "state", merged, torch.tensor(taken), one, other)
    assert module.state is (one if taken else other)
    assert items["state"] is (one if taken else other)


def test_settling_leaves_alone_what_was_stored_since() -> None:
    newer, merged = torch.zeros(1), torch.ones(1)
    items = {"state": newer}
    settle_item(items, "state", merged, torch.tensor(True), merged, merged)
    assert items["state"] is newer
