"""Reading Dynamo's models of values, and making containers of them."""

from __future__ import annotations

from collections import namedtuple
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.utils import CleanupHook
from torch._dynamo.variables.base import ValueMutationNew
from torch._dynamo.variables.dicts import ConstDictVariable
from torch._dynamo.variables.lists import ListVariable, SizeVariable, TupleVariable

from bcmend.dynamo import compat, values
from bcmend.dynamo.models.containers import ARE_ONE

ONE, TWO, THREE = map(values.constant, (1, 2, 3))
Pair = namedtuple("Pair", "one other")


@pytest.fixture(autouse=True)
def _tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have keys of dictionaries find a translator, which constants do not ask for anything."""
    monkeypatch.setattr(compat.translator_tls, "current_tx", SimpleNamespace(), raising=False)


def _dictionary() -> ConstDictVariable:
    items = {values.constant("a"): ONE, values.constant("b"): TWO}
    return ConstDictVariable(items, mutation_type=ValueMutationNew())


def _named_tuple(value: Any, items: list[Any]) -> Any:
    given: Any = {"items": items} if ARE_ONE else {"tuple_vt": TupleVariable(items)}
    return compat.NamedTupleVariable(value, **given)


def test_a_constant_stands_for_its_value() -> None:
    for value in (3, "text", None, 1.5, (1, 2)):
        assert values.constant(value).as_python_constant() == value


def test_the_object_behind_a_model() -> None:
    def no_value(self: object) -> None:
        raise NotImplementedError

    unreadable: Any = type("Unreadable", (), {"value": property(no_value)})()
    readable: Any = SimpleNamespace(value=3, fn=4)
    assert values.object_behind(readable) == 3
    assert values.object_behind(readable, "fn") == 4
    assert values.object_behind(readable, "other") is None
    assert values.object_behind(unreadable) is None


class _Output:
    """What has the globals of a trace, as Dynamo's has them."""

    def __init__(self) -> None:
        self.global_scope: dict[str, object] = {"there": 1}
        self.cleanups: list[CleanupHook] = []

    def install_global(self, prefix: str, thing: object) -> str:
        name = f"{prefix}_{len(self.global_scope)}"
        self.cleanups.append(CleanupHook.create(self.global_scope, name, thing))
        return name


def test_an_object_is_one_global_of_a_trace() -> None:
    output: Any = _Output()
    one, other = object(), object()
    source = values.global_of(output, one)
    assert values.global_of(output, one) == source
    assert output.global_scope[source.global_name] is one
    assert output.global_scope[values.global_of(output, other).global_name] is other
    assert len(output.global_scope) == 3


def test_the_globals_of_a_failed_trace_are_removed() -> None:
    output: Any = _Output()
    output.cleanups.append(CleanupHook.create(output.global_scope, "of_torch", 2))
    values.global_of(output, object())
    values.global_of(output, object())
    values.remove_globals(output)
    assert output.global_scope == {"there": 1, "of_torch": 2}
    for each in output.cleanups:  # as where code for the trace has been compiled after all
        each()
    assert output.global_scope == {"there": 1}


def test_the_example_of_a_tensor_is_a_tensor() -> None:
    tensor = torch.ones(2)

    def model(example: object) -> Any:
        node = SimpleNamespace(meta={"example_value": example})
        return SimpleNamespace(as_proxy=lambda: SimpleNamespace(node=node))

    assert values.example_of(model(tensor)) is tensor
    with pytest.raises(AssertionError):
        values.example_of(model(3))


def test_items_of_containers() -> None:
    assert values.items_in(ListVariable([ONE, TWO])) == [ONE, TWO]
    assert values.items_in(TupleVariable([ONE])) == [ONE]
    assert values.items_in(_dictionary()) == [ONE, TWO]
    assert values.items_in(ONE) is None
    assert values.items_in(SizeVariable([ONE])) is None


@pytest.mark.parametrize("make", [ListVariable, TupleVariable])
def test_a_sequence_is_made_anew_with_other_items(make: Any) -> None:
    model = make([ONE, TWO])
    found = values.made_of(model, [TWO, THREE])
    assert type(found) is make and found is not model
    assert values.items_in(found) == [TWO, THREE]
    assert values.items_in(model) == [ONE, TWO]


def test_a_dictionary_is_made_anew_with_its_keys() -> None:
    model = _dictionary()
    found = values.made_of(model, [TWO, THREE])
    assert found is not model and found.as_python_constant() == {"a": 2, "b": 3}
    assert isinstance(found.mutation_type, ValueMutationNew)
    with pytest.raises(ValueError):
        values.made_of(model, [ONE])


def test_a_list_that_is_made_may_be_changed() -> None:
    found = values.made_of(ListVariable([ONE]), [ONE])
    assert isinstance(found.mutation_type, ValueMutationNew)


def test_a_named_tuple_stays_one_and_its_heir_with_attributes_is_an_object() -> None:
    class Heir(Pair):
        """Has a ``__dict__``."""

    plain = TupleVariable([ONE, TWO])
    model = _named_tuple(Pair(1, 2), [ONE, TWO])
    assert values.is_named_tuple(model) and values.items_in(model) == [ONE, TWO]
    found = values.made_of(model, [TWO, THREE])
    assert type(found) is type(model) and values.items_in(found) == [TWO, THREE]
    heir = _named_tuple(Heir(1, 2), [ONE, TWO])
    assert not values.is_named_tuple(heir) and values.items_in(heir) is None
    assert not values.is_named_tuple(plain)
