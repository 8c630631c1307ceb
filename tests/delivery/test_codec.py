"""Values that travel through compiled code as tuples, and what they are decoded to."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import pytest
import torch
from torch import Tensor
from torch.fx import Graph

from bcmend.delivery.codec import (
    CHOICE,
    LABELED,
    LATE,
    MARK,
    TEXT,
    decoded,
    encoded,
    formatted,
    kind_of,
)
from bcmend.delivery.lazy_values import GRAPHS, LazyGraph

YES, NO = torch.tensor(True), torch.tensor(False)


class Pair(NamedTuple):
    one: Any
    other: Any


@dataclass(frozen=True)
class Box:
    content: Any


def _choice(condition: Tensor, one: object, other: object) -> tuple[Any, ...]:
    return encoded(CHOICE, condition, one, other)


@pytest.mark.parametrize(("condition", "expected"), [(YES, 1), (NO, None)])
def test_a_choice_is_made_wherever_it_stands(condition: Tensor, expected: int | None) -> None:
    choice = _choice(condition, 1, None)
    assert decoded(choice) == expected
    assert decoded((0, choice)) == (0, expected)
    assert decoded(Pair(choice, 2)) == Pair(expected, 2)
    assert decoded([choice, {"key": choice}]) == [expected, {"key": expected}]
    assert decoded(Box(choice)) == Box(expected)


def test_choices_within_choices() -> None:
    inner = _choice(NO, "a", "b")
    assert decoded(_choice(YES, inner, "c")) == "b"
    assert decoded(_choice(NO, inner, "c")) == "c"
    assert decoded(_choice(YES, (inner, 1), None)) == ("b", 1)


def test_what_holds_no_choice_stays_the_same_object() -> None:
    for value in ((1, [2]), [1, (2,)], {"key": (1,)}, Box((1,)), Pair(1, 2), (1, YES, 2, 3)):
        assert decoded(value) is value
    cyclic: list[Any] = [1]
    cyclic.append(cyclic)
    assert decoded(cyclic) is cyclic


def test_a_tuple_of_the_programs_own_is_no_choice() -> None:
    assert not kind_of((CHOICE, YES, 1, 2))
    assert not kind_of(Pair(MARK, CHOICE))
    assert not kind_of([MARK, CHOICE, YES, 1, 2])


def test_every_kind_is_told_apart() -> None:
    for kind in (CHOICE, LATE, LABELED, TEXT):
        assert kind_of(encoded(kind, 1, 2)) == kind
    assert kind_of(torch.ones(3)) == kind_of((torch.ones(3), "choice", 1)) == ""


def _graph_of_two() -> LazyGraph:
    graph = Graph()
    given = graph.placeholder("given")
    doubled = graph.call_method("mul", (given, 2))
    graph.output((doubled, graph.call_method("sum", (doubled,))))
    return LazyGraph(graph)


def test_a_late_value_is_computed_once_for_all_that_read_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lazy, runs = _graph_of_two(), []
    right = LazyGraph.__call__

    def counted(self: LazyGraph, *inputs: Any) -> Any:
        runs.append(inputs)
        return right(self, *inputs)

    monkeypatch.setattr(LazyGraph, "__call__", counted)
    number = GRAPHS.add(lazy)
    given = (torch.tensor([1.0, 2.0]),)
    vector, total = decoded(
        (encoded(LATE, number, 0, False, given), encoded(LATE, number, 1, True, given))
    )
    assert vector.tolist() == [2.0, 4.0]
    assert (total, type(total)) == (6.0, float)
    assert len(runs) == 1


def test_a_late_value_of_the_side_that_is_not_taken_is_not_computed() -> None:
    missing = encoded(LATE, -1, 0, False, ())
    assert decoded(_choice(YES, 1, missing)) == 1
    with pytest.raises(KeyError):
        decoded(_choice(NO, 1, missing))


def test_a_graph_goes_with_what_holds_it() -> None:
    lazy = _graph_of_two()
    before = len(GRAPHS)
    number = GRAPHS.add(lazy)
    assert GRAPHS[number] is lazy
    del lazy
    assert len(GRAPHS) == before


def test_a_labeled_tensor_shows_its_history() -> None:
    shown = decoded([encoded(LABELED, "MulBackward0", torch.ones(1))])
    assert repr(shown) == "[tensor([1.], grad_fn=<MulBackward0>)]"


def test_texts_are_left_to_be_formatted_in_their_own_time() -> None:
    owner = [1]
    text = encoded(TEXT, "{}: {name}", (owner,), (("name", "x"),))
    assert decoded(text) is text
    owner.append(2)
    assert formatted(("head", text)) == ("head", "[1, 2]: x")


@dataclass(slots=True)
class _Slotted:
    first: Any
    second: Any = None


@dataclass(frozen=True, slots=True)
class _Frozen:
    first: Any
    second: Any = None


@pytest.mark.parametrize("kind", [_Slotted, _Frozen])
def test_a_choice_is_made_in_a_slot(kind: Any) -> None:
    found = decoded(kind([_choice(YES, 1, 2)], _choice(NO, 3, 4)))
    assert (found.first, found.second) == ([1], 4)


@pytest.mark.parametrize("kind", [_Slotted, _Frozen])
def test_a_slot_that_holds_nothing_is_passed_over(kind: Any) -> None:
    empty = kind.__new__(kind)
    assert decoded(empty) is empty
    assert not hasattr(empty, "first")
