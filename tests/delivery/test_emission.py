"""Records that run inside a graph."""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
import torch

from bcmend.delivery import emission
from bcmend.delivery.emission import Plan, Statement


def _statement(action: Callable[..., Any], **settings: Any) -> Statement:
    """Return a record that calls ``action`` with its first tensor and its first object."""
    return Statement(
        "site",
        lambda tensors, objects: action,
        lambda tensors, objects: (tensors[0].item(), objects[0]),
        settings.pop("raises", False),
        **settings,
    )


def _emit(statement: Statement, *objects: Any) -> None:
    call = emission.begin(Plan([statement]), *objects)
    emission.emit(call, 0, [torch.tensor(3)])


def test_a_record_is_made_of_the_tensors_and_the_objects_of_its_call() -> None:
    log: list[Any] = []
    _emit(_statement(lambda *values: log.append(values)), "logger")
    assert log == [(3, "logger")]


def test_calls_do_not_share_their_objects() -> None:
    log: list[Any] = []
    plan = Plan([_statement(lambda *values: log.append(values))])
    one, other = emission.begin(plan, "one"), emission.begin(plan, "other")
    for call in (other, one):
        emission.emit(call, 0, [torch.tensor(1)])
    assert log == [(1, "other"), (1, "one")]


def test_a_call_has_a_value_that_says_nothing() -> None:
    call = emission.begin(Plan())
    assert call.shape == () and call.dtype is torch.int64 and call.is_cpu


def test_what_a_check_has_to_do_first_is_done_first() -> None:
    log: list[Any] = []

    def fail(*values: Any) -> None:
        raise ValueError("failed")

    before = (lambda tensors, objects: log.append((tensors[0].item(), objects[0])),)
    with pytest.raises(ValueError, match="failed"):
        _emit(_statement(fail, raises=True, before=before), "object")
    assert log == [(3, "object")]


def test_a_check_that_does_not_raise_is_an_error() -> None:
    with pytest.raises(AssertionError, match="site: this code raised"):
        _emit(_statement(lambda *values: None, raises=True), "object")


@pytest.mark.parametrize(("before", "expected"), [((), 1), (None, 0)])
def test_records_behind_which_a_call_is_not_made_again_are_counted(
    before: tuple[()] | None, expected: int
) -> None:
    start = emission.emitted()
    _emit(_statement(lambda *values: None, before=before), 1)
    assert emission.emitted() - start == expected


def test_each_thread_counts_for_itself() -> None:
    start = emission.emitted()
    statement = _statement(lambda *values: None)
    thread = Thread(target=_emit, args=(statement, 1))
    thread.start()
    thread.join()
    assert emission.emitted() == start


@pytest.mark.parametrize("gradients", [True, False])
def test_the_grad_mode_is_that_of_the_statement(gradients: bool) -> None:
    seen: list[bool] = []
    statement = _statement(lambda *_: seen.append(torch.is_grad_enabled()), gradients=gradients)
    with torch.set_grad_enabled(not gradients):
        _emit(statement, 1)
    assert seen == [gradients]


def test_a_source_has_one_place_in_a_plan() -> None:
    plan = Plan()
    assert [plan.slot(each) for each in ("a", "b", "a", "c")] == [0, 1, 0, 2]
    assert plan.sources == ["a", "b", "c"]


def test_a_plan_counts_for_nothing_in_a_key_of_a_cache() -> None:
    plan = Plan([_statement(print)], ["source"])
    again = copy.copy(plan)
    assert again.statements == [] and again.sources == []
