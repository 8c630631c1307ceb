"""Dynamo's models of values: constants, the fake tensor behind a tensor, containers.

Containers that are copied item by item are lists, tuples, dictionaries, named tuples and structure
sequences. What has attributes beside its items counts as an object.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias, TypeGuard

import torch

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.slots import Slot

#: Dynamo's models of a value, and of a tensor.
Value: TypeAlias = compat.VariableTracker
TensorValue: TypeAlias = compat.TensorVariable
#: Dynamo's models of exceptions of the program.
EXCEPTIONS: Final = (compat.ExceptionVariable, compat.UserDefinedExceptionObjectVariable)


def object_behind(variable: compat.VariableTracker, name: str = "value") -> Any:
    """Return the object that a model stands for, its attribute ``name``; else ``None``."""
    try:
        return getattr(variable, name, None)
    except NotImplementedError:  # a model of a list makes the list when asked
        return None


def constant(value: object) -> compat.VariableTracker:
    """Return Dynamo's model of a constant."""
    result = compat.ConstantVariable.create(value)
    assert isinstance(result, compat.VariableTracker)
    return result


def with_items(
    value: compat.TupleVariable, items: list[compat.VariableTracker]
) -> compat.TupleVariable:
    """Return a tuple of ``items``; the very one that is given if they are its own."""
    pairs = zip(items, value.items, strict=True)
    are_its_own = all(one.unwrap() is other.unwrap() for one, other in pairs)
    return value if are_its_own else compat.TupleVariable(items)


def function_of(tx: compat.Tracer, function: Callable[..., Any]) -> compat.VariableTracker:
    """Return Dynamo's model of a function of bcmend."""
    source = global_of(tx.output, function)
    return compat.VariableTracker.build(tx, function, source)  # type: ignore[no-any-return]


#: The names that objects have among the globals of the frame being traced, by identity.
_NAMES: Final[Slot[dict[int, str]]] = Slot(dict, rolls_back=False)


def global_of(output: compat.OutputGraph, thing: object) -> compat.GlobalSource:
    """Return the source of an object that is to be a global as long as the compiled code lives."""
    names = _NAMES.of(output)
    if id(thing) not in names:
        names[id(thing)] = output.install_global("__bcmend", thing)
    return compat.GlobalSource(names[id(thing)])


def remove_globals(output: compat.OutputGraph) -> None:
    """Remove these globals after a trace that failed, of which Dynamo leaves all.

    What would remove each with code that is compiled for the trace goes as well: it would look for
    a name that is not there.
    """
    names = {*_NAMES.of(output).values()}
    of_names = [each for each in output.cleanups if getattr(each, "name", None) in names]
    dropped = {*map(id, of_names)}
    output.cleanups[:] = [each for each in output.cleanups if id(each) not in dropped]
    for each in of_names:
        if each.name in output.global_scope:
            each()
    _NAMES.put(output, {})


def load_global(codegen: Any, thing: object) -> None:
    """Write the load of such an object."""
    codegen(global_of(codegen.tx.output, thing))


def example_of(value: compat.TensorVariable) -> torch.Tensor:
    """Return the fake tensor behind ``value``."""
    example = value.as_proxy().node.meta["example_value"]
    assert isinstance(example, torch.Tensor)
    return example


_CLASSES_OF_TENSORS: Final = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)


def is_of_derived_class(value: compat.TensorVariable) -> bool:
    """Return whether a tensor is of a class that somebody has derived from ``torch.Tensor``."""
    kind = value.python_type()
    return issubclass(kind, torch.Tensor) and kind not in _CLASSES_OF_TENSORS


def has_own_operators(tensor: object) -> bool:
    """Return whether a tensor is of a class with ``__torch_dispatch__``, as nested ones are.

    Operators that call graphs, such as ``torch.cond``, have no rule for such a class.
    """
    if not isinstance(tensor, torch.Tensor) or isinstance(tensor, compat.FakeTensor):
        return False
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def is_batched(tensor: torch.Tensor) -> bool:
    """Return whether a tensor stands for one of many, in a call that ``torch.func.vmap`` makes."""
    while compat.is_functorch_wrapped_tensor(tensor):
        if compat.is_batchedtensor(tensor):
            return True
        tensor = compat.get_unwrapped(tensor)
    return False


def has_hooks(tensor: torch.Tensor | None) -> bool:
    """Return whether autograd calls hooks of the program with the gradient of a tensor."""
    hooks = getattr(tensor, "_backward_hooks", None)
    return bool(hooks or getattr(tensor, "_post_accumulate_grad_hooks", None))


def fake_mode_of(tx: compat.Tracer) -> compat.FakeTensorMode:
    """Return the mode in which the operations of a trace run on fake tensors."""
    mode = tx.fake_mode
    assert mode is not None
    return mode


def is_unbacked(value: Any) -> TypeGuard[compat.SymNodeVariable]:
    """Return whether a value is a symbolic number that depends on the data of tensors."""
    return isinstance(value, compat.SymNodeVariable) and bool(
        compat.free_unbacked_symbols(value.sym_num)
    )


def is_symbolic_int(value: Any) -> TypeGuard[compat.SymNodeVariable]:
    """Return whether a value is a symbolic integer: a size, or what was computed from one."""
    return isinstance(value, compat.SymNodeVariable) and isinstance(value.sym_num, torch.SymInt)


def kind_of_number(value: Any) -> type | None:
    """Return ``int`` or ``float`` for a number of Python's, known or symbolic."""
    known: type | None = None
    if isinstance(value, compat.ConstantVariable):
        known = type(value.value)
    elif isinstance(value, compat.SymNodeVariable):
        known = {torch.SymInt: int, torch.SymFloat: float}.get(type(value.sym_num))
    return known if known in (int, float) else None


def number_in(value: Any) -> Any:
    """Return the number that a value stands for: Python's, or a symbolic one."""
    return value.as_python_constant() if value.is_python_constant() else value.sym_num


def with_known_number(value: Any) -> Any:
    """Return a symbolic number as the constant that it is now, under a guard; others as they are.

    The graph breaks where the number depends on the data of tensors.
    """
    is_symbolic = isinstance(value, compat.SymNodeVariable)
    return constant(value.evaluate_expr()) if is_symbolic else value


def is_named_tuple(value: compat.VariableTracker) -> bool:
    """Return whether a value is a tuple of named items without other attributes."""
    if not isinstance(value, (compat.NamedTupleVariable, compat.StructSequenceVariable)):
        return False
    return not hasattr(value.value, "__dict__")


def items_in(value: Any) -> list[compat.VariableTracker] | None:
    """Return the items of a container, the values of a dictionary; ``None`` for anything else."""
    if type(value) in (compat.ListVariable, compat.TupleVariable) or is_named_tuple(value):
        return list(value.items)
    return list(value.items.values()) if type(value) is compat.ConstDictVariable else None


def made_of(value: Any, items: Sequence[compat.VariableTracker]) -> compat.VariableTracker:
    """Return a new container like ``value`` with other items."""
    if type(value) is compat.ListVariable:
        return containers.new_list(items)
    if type(value) in containers.DICTIONARIES:
        containers.guard_keys(value)
        pairs = dict(zip(value.items, items, strict=True))
        return containers.new_dictionary_like(value, pairs)
    plain = compat.TupleVariable(list(items))
    if type(value) is compat.TupleVariable:
        return plain
    return containers.named_tuple_like(value, items)
