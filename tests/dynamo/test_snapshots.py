"""Models of objects are put back as they were, in place, whatever was done to them."""

from __future__ import annotations

from typing import Any

import pytest
from torch._dynamo.variables import ConstantVariable, ListVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.iter import IteratorVariable
from torch._dynamo.variables.lists import ListIteratorVariable

from bcmend.dynamo import compat, snapshots


def _constants(*values: object) -> list[VariableTracker]:
    return [ConstantVariable.create(value) for value in values]


def _list(*values: object) -> ListVariable:
    return ListVariable(_constants(*values), mutation_type=ValueMutationNew())


def test_a_list_gets_its_items_back_and_stays_the_same_list() -> None:
    variable = _list(1, 2)
    items, before = variable.items, list(variable.items)
    remembered = snapshots.remember(variable)
    assert not remembered.has_changed()
    variable.items.append(before[0])
    assert remembered.has_changed()
    remembered.restore()
    assert variable.items is items and items == before and not remembered.has_changed()


def test_a_list_that_got_other_items_gets_its_own_back() -> None:
    variable = _list(1, 2)
    items, before = variable.items, list(variable.items)
    remembered = snapshots.remember(variable)
    variable.items = _constants(3)
    remembered.restore()
    assert variable.items is items and items == before


def test_what_was_added_to_a_variable_goes() -> None:
    variable = _list(1)
    remembered = snapshots.remember(variable)
    variable.note = 1  # type: ignore[attr-defined]
    assert remembered.has_changed()
    remembered.restore()
    assert not hasattr(variable, "note")


def test_an_iterator_is_where_it_was() -> None:
    variable = ListIteratorVariable(_constants(1, 2, 3), mutation_type=ValueMutationNew())
    variable.index = 1
    remembered = snapshots.remember(variable)
    variable.index = 3
    assert remembered.has_changed()
    remembered.restore()
    assert variable.index == 1


@pytest.mark.parametrize(
    "iterable",
    [[1, 2, 3], (1, 2, 3), {1, 2, 3}, {1: 4, 2: 5, 3: 6}, {0: 1, 1: 2}.values()],
    ids=str,
)
def test_an_iterator_of_python_gives_again_what_it_gave_since(iterable: Any) -> None:
    variable = IteratorVariable(mutation_type=ValueMutationNew())
    variable.inner = iter(iterable)  # type: ignore[attr-defined]
    next(variable.inner)  # type: ignore[attr-defined]
    rest = list(iterable)[1:]
    remembered = snapshots.remember(variable)
    for _ in range(2):  # it can be put back more than once
        assert list(variable.inner) == rest  # type: ignore[attr-defined]
        remembered.restore()
    assert list(variable.inner) == rest  # type: ignore[attr-defined]


def test_iterators_hold_no_items_of_their_own() -> None:
    iterator = ListIteratorVariable(_constants(1), mutation_type=ValueMutationNew())
    assert snapshots.is_consumable(iterator) and not snapshots.holds_items(iterator)
    assert snapshots.holds_items(_list(1)) and not snapshots.is_consumable(_list(1))


def test_two_states_of_a_dictionary_differ_in_the_order_of_their_keys() -> None:
    assert snapshots.is_same({"a": 1, "b": 2}, {"a": 1, "b": 2})
    assert not snapshots.is_same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert not snapshots.is_same({"a": 1}, {"a": 2})
    assert snapshots.is_same([1], [1])


def test_a_generator_of_random_numbers_draws_the_same_again() -> None:
    variable = compat.RandomVariable(seed=ConstantVariable.create(3))
    generator, remembered = variable.random, snapshots.remember(variable)
    drawn = generator.random()
    assert remembered.has_changed()
    remembered.restore()
    assert not remembered.has_changed()
    assert variable.random is generator and generator.random() == drawn


def test_what_nothing_has_looked_at_is_not_looked_at() -> None:
    lazy = compat.LazyVariableTracker.create(3, compat.LocalSource("x"))
    held = ListVariable([ConstantVariable.create(1), lazy])
    classes: list[bool] = []
    snapshots.visit(lambda one: classes.append(isinstance(one, ListVariable)), [held])
    assert classes == [True, False]  # the list, and the number
    assert not lazy.is_realized()
    found: list[Any] = []
    snapshots.visit(found.append, [held], lazily=True)
    assert found == [held, held.items[0], lazy]
    assert not lazy.is_realized()
