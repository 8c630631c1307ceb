"""Which tensors may be one object, or share memory, in eager execution."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.tracing.effects import sharing
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.site_table import LiveSite


class _Trace:
    def __init__(self) -> None:
        self.output: Any = SimpleNamespace()
        self.site = LiveSite("tests.site", "branch", (lambda: None).__code__)

    def result(self, name: str, *sides: Tensor, **known: Any) -> Tensor:
        example = torch.zeros(2)
        sharing.add_result(
            self,
            example,
            sides,
            Finding(Claim.SHARED, self.site, name),
            **known,  # type: ignore[arg-type]
        )
        return example

    @property
    def given_up(self) -> list[Any]:
        return self.site.all_found(Claim.SHARED)


@pytest.fixture
def trace() -> Any:
    return _Trace()


def test_results_that_are_one_object_on_one_side_are_given_up(trace: Any) -> None:
    one, other, third = torch.zeros(2), torch.zeros(2), torch.zeros(2)
    a, b = trace.result("a", one, other), trace.result("b", one, third)
    with pytest.raises(Falsified):
        sharing.require_known(trace, a, b)
    assert trace.given_up == ["b"]


def test_a_result_and_an_older_tensor_are_given_up(trace: Any) -> None:
    older = torch.zeros(2)
    a = trace.result("a", older, torch.zeros(2))
    with pytest.raises(Falsified):
        sharing.require_known(trace, older, a)
    assert trace.given_up == ["a"]


def test_a_result_of_results_may_be_what_they_may_be(trace: Any) -> None:
    older = torch.zeros(2)
    inner = trace.result("inner", older, torch.zeros(2))
    outer = trace.result("outer", inner, torch.zeros(2))
    with pytest.raises(Falsified):
        sharing.require_known(trace, outer, older)
    assert trace.given_up == ["outer"]


def test_what_both_sides_agree_on_is_known(trace: Any) -> None:
    a, b = (trace.result(name, torch.zeros(2), torch.zeros(2)) for name in "ab")
    sharing.require_known(trace, a, b)
    sharing.require_known(trace, a, a)
    sharing.require_known(trace, a, torch.zeros(2))
    sharing.require_known(trace, torch.zeros(2), torch.zeros(2))
    sharing.require_alone(trace, a)
    sharing.require_unread(trace, a)
    assert trace.given_up == []


@pytest.mark.parametrize("known", ["is_older", "is_any"])
def test_a_result_that_may_be_another_tensor_is_not_alone(trace: Any, known: str) -> None:
    a = trace.result("a", torch.zeros(2), **{known: True})
    with pytest.raises(Falsified):
        sharing.require_alone(trace, a)
    assert trace.given_up == ["a"]


def test_two_results_that_may_be_one_object_are_not_alone(trace: Any) -> None:
    one = torch.zeros(2)
    a, _ = trace.result("a", one, torch.zeros(2)), trace.result("b", one)
    with pytest.raises(Falsified):
        sharing.require_alone(trace, a)
    assert trace.given_up == ["a"]


def test_what_enters_an_iteration_may_be_any_tensor(trace: Any) -> None:
    a = trace.result("a", is_any=True)
    with pytest.raises(Falsified):
        sharing.require_known(trace, torch.zeros(2), a)
    assert trace.given_up == ["a"]


def test_gradients_that_come_by_another_way(trace: Any) -> None:
    a = trace.result("a", torch.zeros(2), is_read_before=True)
    sharing.require_alone(trace, a)
    with pytest.raises(Falsified):
        sharing.require_unread(trace, a)
    assert trace.given_up == ["a"]


def test_related_tensors_share_memory_in_eager_execution_alone(trace: Any) -> None:
    one, other, third = torch.zeros(4), torch.zeros(4), torch.zeros(4)
    assert not sharing.shares(trace, one, other)
    sharing.relate(trace, one, other)
    assert sharing.shares(trace, one, other) and sharing.shares(trace, other[:2], one[2:])
    assert not sharing.shares(trace, one, third)
    assert sharing.shares(trace, one, one) and not sharing.shares(trace, one[:2], one[2:])
    (known,) = sharing.related_to(trace, one[1])
    assert known is other
