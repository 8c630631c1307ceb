"""The tables of side effects and of a trace have the names by which Dynamo has them."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.dynamo.models import effect_tables
from bcmend.dynamo.values import constant
from tests.dynamo.models import names_in_use

ONE = constant(1)


@pytest.mark.parametrize(
    ("kind", "tables"),
    [
        ("SideEffects", effect_tables.MERGED | effect_tables.NOTES),
        ("SideEffects", {effect_tables.TENSOR_HOOKS, effect_tables.SAVED_FOR_BACKWARD}),
        ("OutputGraph", effect_tables.FOUND_OUT | effect_tables.CHANGES_BY_STREAM),
    ],
)
def test_torch_has_the_tables(kind: str, tables: frozenset[str]) -> None:
    assert tables - names_in_use.names_in(kind, names_in_use.of_dynamo()) == set()


def test_a_store_is_noted_and_put_back() -> None:
    effects = SimpleNamespace(store_attr_mutations={}, attr_mutation_kinds={})
    before = SimpleNamespace(store_attr_mutations={}, attr_mutation_kinds={})
    effect_tables.add_stored(effects, ONE, "width", ONE)
    assert effects.store_attr_mutations == {ONE: {"width": ONE}}
    kind = compat.AttrMutationKind.GENERIC_SETATTR
    assert effects.attr_mutation_kinds == {ONE: {"width": kind}}
    effect_tables.put_back_stores(effects, before)
    assert effects.store_attr_mutations is before.store_attr_mutations
    assert effects.attr_mutation_kinds is before.attr_mutation_kinds


def test_the_trace_that_side_effects_belong_to() -> None:
    effects: Any = SimpleNamespace(output_graph_weakref=lambda: "output")
    assert effect_tables.output_of(effects) == "output"
    tx: Any = SimpleNamespace(symbolic_torch_function_state="state")
    assert effect_tables.tables_of_functions(tx) == "state"
