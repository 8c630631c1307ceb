"""Where records go while a frame is traced, and what they take of values."""

from __future__ import annotations

import logging
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.variables import ConstantVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker

from bcmend.names import BUFFER
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite


def _tracer(**locals_: Any) -> Any:
    root, tracer = SimpleNamespace(symbolic_locals=locals_), SimpleNamespace()
    output = SimpleNamespace(root_tx=root, root_tracer=tracer, current_tracer=tracer)
    return SimpleNamespace(output=output, export=False)


def _constant(value: object) -> VariableTracker:
    return ConstantVariable.create(value)


def _site(kind: str = "guard") -> LiveSite:
    return LiveSite("module.f:1", kind, _site.__code__)


def _draft(*inputs: object) -> Draft:
    return Draft(
        _site(), _constant(0), None, TupleVariable(list(map(_constant, inputs))), Kind.OUTPUT
    )


def test_the_records_of_an_arm_stay_in_its_list_and_an_inner_arm_has_its_own() -> None:
    tx, first, second, third = _tracer(), _draft(1), _draft(2), _draft(3)
    with record_builder.open_arm(tx) as outer:
        record_builder.append(tx, first)
        with record_builder.open_arm(tx) as inner:
            record_builder.append(tx, second)
        record_builder.append(tx, third)
    assert outer == [first, third]
    assert inner == [second]


def test_an_arm_that_fails_is_closed() -> None:
    tx = _tracer()
    with pytest.raises(ValueError), record_builder.open_arm(tx):
        raise ValueError
    assert record_builder._stack(tx) == []


def test_the_records_until_now_are_those_of_the_buffer_then_those_of_the_open_arms() -> None:
    held = TupleVariable([_constant("key"), _constant("before")])
    buffer = ListVariable([held], mutation_type=ValueMutationNew())
    tx, draft = _tracer(**{BUFFER: buffer}), _draft(2)
    with record_builder.open_arm(tx):
        record_builder.append(tx, draft)
        assert list(record_builder.records_until_now(tx)) == [held.items[-1], draft.inputs]


def test_nothing_is_delivered_where_a_program_is_exported() -> None:
    assert record_builder.is_open(_tracer())
    assert not record_builder.is_open(SimpleNamespace(export=True))  # type: ignore[arg-type]


def test_the_outlet_is_stored_to_last_since_the_table_is_replayed_backwards() -> None:
    one, two, outlet = _constant(1), _constant(2), _constant(3)
    effects: Any = SimpleNamespace(id_to_variable={1: one, 2: two, 3: outlet})
    record_builder._replay_last(effects, outlet)
    assert list(effects.id_to_variable.items()) == [(3, outlet), (1, one), (2, two)]


def test_a_snapshot_of_a_container_is_another_one_with_the_same_items() -> None:
    inner = ListVariable([_constant(1)], mutation_type=ValueMutationNew())
    outer = TupleVariable([inner, _constant("text")])
    copy: Any = record_builder.snapshot(_tracer(), _site(), outer)
    assert copy is not outer and type(copy) is TupleVariable
    assert copy.items[0] is not inner
    inner.items.append(_constant(2))
    assert [each.value for each in copy.items[0].items] == [1]
    assert copy.items[1] is outer.items[1]


def test_a_value_that_cannot_be_built_again_is_refused() -> None:
    class FileVariable(VariableTracker):
        pass

    with pytest.raises(Refusal) as caught:
        record_builder.snapshot(_tracer(), _site(), FileVariable())
    assert (caught.value.slug, caught.value.detail) == ("cannot-snapshot", "FileVariable")


class _Plain:
    pass


class _WithText:
    def __str__(self) -> str:
        return "text"


class _WithFormat:
    def __format__(self, form: str) -> str:
        return "text"


class _WithRepr:
    def __repr__(self) -> str:
        return "text"


@pytest.mark.parametrize(
    ("cls", "expected"),
    [
        (_Plain, False),
        (torch.nn.Linear, False),
        (logging.Logger, False),
        (_WithText, True),
        (_WithFormat, True),
        (_WithRepr, True),
        (dict, True),
    ],
)
def test_a_class_shows_its_state_if_it_makes_its_own_text(cls: type, expected: bool) -> None:
    assert record_builder._shows_its_state(cls) is expected


def test_checks_see_objects_at_the_end_of_the_call() -> None:
    assert not record_builder.shows_moments(_site("guard"))


def test_a_record_in_the_body_of_another_operator_is_refused() -> None:
    tx = _tracer()
    draft = Draft(_site(), _constant(None), None, _constant(None), Kind.OUTPUT)
    with record_builder.open_arm(tx) as drafts:
        assert not record_builder.is_in_a_body(tx)
        tx.output.current_tracer = SimpleNamespace()
        assert record_builder.is_in_a_body(tx)
        with pytest.raises(Refusal, match="such as a checkpoint"):
            record_builder.append(tx, draft)
        with record_builder.open_arm(tx):
            assert not record_builder.is_in_a_body(tx), "an arm inside the body"
    assert drafts == []
    assert record_builder.is_in_a_body(tx)
