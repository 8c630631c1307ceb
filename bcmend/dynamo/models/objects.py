"""Models of objects, classes, functions and numbers: fields that are private or have other names.

``attribute_of`` reads an attribute as the program does; all others read fields of the model.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from inspect import getattr_static
from types import FunctionType, MemberDescriptorType, MethodDescriptorType
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers, exceptions, methods

#: Models of objects that Dynamo makes again after the graph from what is stored in them.
FROM_ATTRIBUTES: Final = (
    compat.UserDefinedObjectVariable,
    compat.UserDefinedDictVariable,
    *containers.WITH_ATTRIBUTES,
    compat.FrozenDataClassVariable,
    compat.UserDefinedExceptionObjectVariable,
)
#: The names of models of objects made in a trace that Dynamo builds again after the graph.
REBUILT: Final = frozenset(
    """
    DefaultDictVariable ExceptionVariable FrozensetVariable NamedTupleVariable
    NestedUserFunctionVariable OrderedDictVariable RangeVariable SetVariable SizeVariable
    SliceVariable UserDefinedDictVariable UserDefinedExceptionObjectVariable
    UserDefinedObjectVariable
    """.split()
).union(each.__name__ for each in FROM_ATTRIBUTES)


#: The name of the model of a function that Dynamo does not trace.
_SKIPPED: Final = "SkipFunctionVariable"


def is_skipped(function: Any) -> bool:
    """Return whether Dynamo does not trace a function."""
    return type(function).__name__ == _SKIPPED


def attribute_of(tx: compat.Tracer, owner: Any, name: str) -> compat.VariableTracker:
    """Return an attribute of a value, which may run code of the program.

    As in Dynamo, a field that the class of the model declares comes first: not every class that
    has another way to read attributes looks for fields.
    """
    field = getattr(owner, methods.FIND_FIELD, _no_field)(name)
    found: compat.VariableTracker | None = None if field is None else field.getter(owner, tx)
    return getattr(owner, methods.GETATTR)(tx, name) if found is None else found


def _no_field(name: str) -> None:
    """Return what is declared under a name in torch 2.13, where classes declare no fields."""


def class_of(value: Any) -> Any:
    """Return the class of an object of the program."""
    return value.value_type


def class_from_outside(value: Any) -> type | None:
    """Return a class that was there before the call, or that of an object which the call makes.

    It is ``None`` for any other value, and where the call may have made the class.
    """
    if isinstance(value, compat.UserDefinedClassVariable):
        kind: type | None = None if value.source is None else value.value
        return kind
    made = value.mutation_type
    is_made = isinstance(made, compat.AttributeMutationNew) and made.cls_source is not None
    kind = class_of(value) if is_made else None
    return kind


def is_made_in_the_call(value: Any) -> bool:
    """Return whether an object of the program is one that the call makes."""
    is_object = isinstance(value, compat.UserDefinedObjectVariable)
    return is_object and isinstance(value.mutation_type, compat.AttributeMutationNew)


def is_slot(value: Any, name: str) -> bool:
    """Return whether an attribute of an object of the program is one that ``__slots__`` name."""
    if not isinstance(value, compat.UserDefinedObjectVariable):
        return False
    return isinstance(getattr_static(class_of(value), name, None), MemberDescriptorType)


def arguments_of_new(value: Any) -> tuple[compat.VariableTracker, ...]:
    """Return what ``__new__`` got when the trace made an object."""
    return tuple(value.init_args or ())


def set_arguments_of_new(value: Any, arguments: list[compat.VariableTracker]) -> None:
    """Give an object that the trace has made other arguments of ``__new__``."""
    value.init_args = arguments


def make_of_this_scope(value: Any) -> None:
    """Have an object, which an arm made, count as made where the trace is now."""
    made = value.mutation_type
    given = [made.cls_source] if isinstance(made, compat.AttributeMutationNew) else []
    value.mutation_type = type(made)(*given)


def contents_before(cell: Any) -> compat.VariableTracker | None:
    """Return what a variable of an outer scope held when the call began, if it is known."""
    found: compat.VariableTracker | None = getattr(cell, "pre_existing_contents", None)
    return found


# Methods


def owner_of_method(function: Any) -> Any:
    """Return the model of what a function is a method of; ``None`` for any other function."""
    owner = getattr(function, "obj", None)  # also of an attribute that was not looked up
    return getattr(function, "im_self", None) if owner is None else owner


def name_of_method(function: Any) -> str | None:
    """Return by which name a method was looked up; ``None`` where it is not known."""
    name = getattr(function, "name", None)
    name = getattr(function, "method_name", None) if name is None else name
    return name if isinstance(name, str) else None


def method_objects(tx: compat.Tracer, function: Any) -> Iterator[Any]:
    """Yield what a method is of which Dynamo holds only owner and name: bound, and in its class."""
    model, name = owner_of_method(function), name_of_method(function)
    if isinstance(model, compat.RandomVariable) and function.source is not None:
        yield tx.output.resolve_source_value(function.source)  # the model holds another generator
    owner = object_held(model)
    found = None if owner is None or name is None else getattr_static(type(owner), name, None)
    if isinstance(found, (FunctionType, MethodDescriptorType)):
        yield found.__get__(owner, type(owner))  # without its type CPython 3.11 may crash
        yield found
    elif isinstance(model, compat.ExceptionVariable) and name is not None:
        yield getattr_static(exceptions.class_of(model), name, None)


def object_held(model: Any) -> Any:
    """Return the object of the program that a model holds in a field; ``None`` for any other model.

    No property is asked: a model of a list makes the list then, and guards all that is in it.
    """
    fields = getattr(model, "__dict__", {})
    held = fields.get("value")
    # Of a context variable the field is another one; torch 2.13 has none.
    return fields.get("cv_obj") if held is None else held


# ``super()``


def object_of_super(value: Any) -> Any:
    """Return the object that ``super()`` was called for; ``None`` if there is none."""
    return value.objvar


def method_of_super(tx: compat.Tracer, value: Any, name: str) -> Any:
    """Return the function that ``super().name`` finds."""
    found, _ = value._resolved_getattr_and_source(tx, name)
    return found


# Functions


def makes_a_real_function(code: Any) -> bool:
    """Return whether code of Dynamo makes a real function of the model of a nested one."""
    return bool(code.co_name == "_get_function_impl")


def looks_for_subclasses(code: Any) -> bool:
    """Return whether code of Dynamo looks for tensors of a class of their own among arguments."""
    return bool(code.co_filename == compat.can_dispatch_torch_function.__code__.co_filename)


# Values that were not looked at yet

#: Settings of Dynamo's by which values are known before anything is guarded, and what turns that
#: off. While an arm is traced, what becomes of such a value is not what Dynamo expects.
WITHOUT_UNGUARDED_VALUES: Final = {
    name: 0 for name in ("computed_lazy_constant_max_nodes",) if hasattr(compat.dynamo_config, name)
}


def unguarded_value(lazy: Any) -> Any:
    """Return the object that an argument is, without a guard on it."""
    return lazy.peek_value()


def original_value(lazy: Any) -> Any:
    """Return the object that a value was made for which the trace has not looked at."""
    return lazy.original_value()


_LAZY: Final = sys.modules[compat.LazyVariableTracker.__module__]
_COMPUTED: Final = getattr(_LAZY, "ComputedLazyConstantVariable", None)


def is_a_text_to_be(lazy: Any) -> bool:
    """Return whether a value that the trace has not looked at is a text with a number in it.

    Dynamo has a class of its own for what is to become one.
    """
    is_lazy = type(lazy) is compat.LazyVariableTracker
    return is_lazy and type(original_value(lazy)).__module__ == _LAZY.__name__


def guard_computed(held: Iterable[Any], effects: Any) -> None:
    """Have Dynamo guard the values in ``held`` that it computed from what it did not look at."""

    def note(value: Any) -> None:
        if type(value) is _COMPUTED:
            value.realize()

    if _COMPUTED is not None:
        compat.VariableTracker.visit(note, list(held), side_effects=effects)


# Numbers


def tensor_of_number(number: Any) -> Any:
    """Return the tensor that stands for a symbolic number outside of the graph, if there is one."""
    return number._tensor_var


def set_tensor_of_number(number: Any, tensor: Any) -> None:
    """Have a tensor stand for a symbolic number outside of the graph."""
    number._tensor_var = tensor
