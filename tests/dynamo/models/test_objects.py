"""Fields of models of objects, classes, functions and numbers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.values import constant

ONE, TWO = constant(1), constant(2)
TX: Any = SimpleNamespace()


def _object(**more: Any) -> compat.UserDefinedObjectVariable:
    return compat.UserDefinedObjectVariable(SimpleNamespace(), **more)


def test_the_names_of_models_are_classes() -> None:
    known = {each.__name__ for each in type(compat.VariableTracker).all_subclasses}  # type: ignore[attr-defined]
    assert {*objects.REBUILT, objects._SKIPPED} - known == set()


def test_an_attribute_is_read_by_the_slot() -> None:
    def read(tx: Any, name: str) -> Any:
        return tx, name

    owner: Any = SimpleNamespace(**{methods.GETATTR: read})
    assert objects.attribute_of(TX, owner, "width") == (TX, "width")


def test_a_field_that_a_model_declares_comes_before_the_slot() -> None:
    fields = {
        "width": SimpleNamespace(getter=lambda owner, tx: (owner, tx)),
        "height": SimpleNamespace(getter=lambda owner, tx: None),
    }
    slots = {methods.GETATTR: lambda tx, name: name, methods.FIND_FIELD: fields.get}
    owner: Any = SimpleNamespace(**slots)
    assert objects.attribute_of(TX, owner, "width") == (owner, TX)
    assert objects.attribute_of(TX, owner, "height") == "height"
    assert objects.attribute_of(TX, owner, "depth") == "depth"


def test_an_object_has_a_class_and_arguments_of_new() -> None:
    value = _object(init_args=[ONE])
    assert objects.class_of(value) is SimpleNamespace
    assert objects.arguments_of_new(value) == (ONE,)
    objects.set_arguments_of_new(value, [TWO])
    assert objects.arguments_of_new(value) == (TWO,)
    assert objects.arguments_of_new(_object()) == ()


def test_an_object_of_an_arm_becomes_one_of_the_trace() -> None:
    with compat.enter_new_scope():
        value: Any = _object(mutation_type=compat.AttributeMutationNew(None))
    assert value.mutation_type.scope > compat.current_scope_id()
    objects.make_of_this_scope(value)
    assert value.mutation_type.scope == compat.current_scope_id()


def test_what_a_variable_of_an_outer_scope_held() -> None:
    assert objects.contents_before(compat.CellVariable(ONE)) is ONE
    assert objects.contents_before(compat.CellVariable()) is None
    assert objects.contents_before(ONE) is None


def test_what_super_was_called_for() -> None:
    owner = _object()
    value = compat.SuperVariable(compat.UserDefinedClassVariable(SimpleNamespace), owner)
    assert objects.object_of_super(value) is owner


def test_the_code_that_makes_a_real_function() -> None:
    code = compat.NestedUserFunctionVariable._get_function_impl.__code__
    assert objects.makes_a_real_function(code)
    assert not objects.makes_a_real_function(objects.object_of_super.__code__)


def test_the_code_that_looks_for_subclasses_of_tensors() -> None:
    assert objects.looks_for_subclasses(compat.can_dispatch_torch_function.__code__)
    assert not objects.looks_for_subclasses(objects.object_of_super.__code__)


def test_a_value_that_was_not_looked_at() -> None:
    lazy = compat.LazyVariableTracker.create(3, compat.LocalSource("x"))
    assert objects.original_value(lazy) == 3 and objects.unguarded_value(lazy) == 3
    assert not lazy.is_realized()


def test_a_tensor_stands_for_a_number() -> None:
    number: Any = SimpleNamespace(_tensor_var=None)
    assert objects.tensor_of_number(number) is None
    objects.set_tensor_of_number(number, ONE)
    assert objects.tensor_of_number(number) is ONE
