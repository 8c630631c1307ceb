"""Which values a record inside the graph can be made of, and what makes them again."""

from __future__ import annotations

import collections
from typing import Any

import pytest
import torch

from bcmend.delivery.emission import Plan
from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import constant
from bcmend.tracing.inline.inline_values import Gathered, modified, require_there_before
from bcmend.tracing.merging.lazy_phi import LazyPhi
from bcmend.tracing.sites.refusal import Refusal
from tests.tracing.merging.joins import site
from tests.tracing.plain_trace import traced

Point = collections.namedtuple("Point", "x y")
VECTOR = torch.tensor([1.0, 2.0])


class Box:
    """An object with attributes."""

    def __init__(self, held: Any = None) -> None:
        self.held = held


def test_containers_are_made_again_with_the_tensors_of_the_operator() -> None:
    def step(tx: Any, x: Any) -> Any:
        gathered = Gathered(tx, Plan())
        items: Any = {constant("t"): x, constant("n"): compat.TupleVariable([constant(1), x])}
        value = containers.new_dictionary(items)
        make = gathered.maker(containers.new_list([value, x]))
        assert [each.node for each in gathered.tensors] == [x.as_proxy().node] * 3
        one, two, three = (torch.tensor(number) for number in (1, 2, 3))
        made = make([one, two, three], [])
        assert type(made) is list and list(made[0]) == ["t", "n"]
        assert made[0]["t"] is one and made[0]["n"] == (1, two) and made[1] is three
        assert make([one, two, three], []) is not made
        return x

    traced(step, VECTOR)


def test_tuples_with_names_and_sizes_keep_their_kind() -> None:
    def step(tx: Any, x: Any, point: Any) -> Any:
        gathered = Gathered(tx, Plan())
        sized = gathered.maker(compat.SizeVariable([constant(2), constant(3)]))([], [])
        assert type(sized) is torch.Size and sized == (2, 3)
        named = containers.named_tuple_like(point, [x, constant(2)])
        assert gathered.maker(named)([x], []) == Point(x, 2)
        return x

    traced(step, VECTOR, Point(1, 2))


def test_text_is_formatted_when_the_record_runs() -> None:
    def step(tx: Any, x: Any) -> Any:
        text = compat.StringFormatVariable("{}/{last}", [x], {"last": constant("end")})
        make = Gathered(tx, Plan()).maker(text)
        assert make([torch.tensor(4)], []) == "4/end"
        return x

    traced(step, VECTOR)


def test_an_object_is_found_where_dynamo_found_it() -> None:
    def step(tx: Any, x: Any, box: Any) -> Any:
        plan = Plan()
        make = Gathered(tx, plan).maker(box)
        assert plan.sources == [box.source] and not Gathered(tx, plan).tensors
        assert make([], ["the object"]) == "the object"
        return x

    traced(step, VECTOR, Box())


def test_an_object_that_the_call_has_changed_is_refused() -> None:
    def step(tx: Any, x: Any, box: Any) -> Any:
        effects = tx.output.side_effects
        assert modified(tx) == []
        effects.store_attr(box, "held", x)
        assert modified(tx) == [box]
        gathered = Gathered(tx, Plan())
        with pytest.raises(Refusal, match="an object that the call has changed"):
            gathered.maker(box)
        gathered.is_up_to_date = True  # its changes have been made by then
        assert gathered.maker(box)([], [box]) is box
        del effects.store_attr_mutations[box]
        return x

    traced(step, VECTOR, Box())


def test_what_no_record_inside_the_graph_is_made_of() -> None:
    def step(tx: Any, x: Any, box: Any, ordered: Any, queue: Any) -> Any:
        gathered = Gathered(tx, Plan())
        with pytest.raises(Refusal, match="one form on each side"):
            gathered.maker(LazyPhi(site(), 0, tx.output))
        with pytest.raises(Refusal, match="an object with tensors"):
            gathered.maker(box)
        with pytest.raises(Refusal, match="a dictionary of a class of its own"):
            gathered.maker(containers.new_dictionary_like(containers.contents_of(ordered), {}))
        with pytest.raises(Refusal, match="an object made in the call"):
            gathered.maker(containers.new_deque_like(queue, [x]))
        return x

    traced(step, VECTOR, Box(VECTOR), collections.OrderedDict(), collections.deque([1]))


def test_a_source_has_to_be_known_before_the_graph_runs() -> None:
    argument = compat.LocalSource("x")
    require_there_before(argument)
    require_there_before(compat.AttrSource(compat.GlobalSource("g"), "a"))
    with pytest.raises(Refusal, match="an object from RandomValueSource"):
        require_there_before(compat.RandomValueSource(0))
