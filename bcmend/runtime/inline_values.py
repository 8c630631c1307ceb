"""What a record that runs inside the graph is made of, as the tracer finds it.

Reads values as Dynamo models them; produces functions that make each of them again at run time, of
the tensors that the operator is given and of the objects of the call (see ``emission``). A constant
is part of such a function; a tensor is an argument of the operator, with the contents of that
moment; an object is found where Dynamo found it, before the graph runs. A symbolic number travels
as a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import FunctionType
from typing import Any, Final

import torch
from torch._dynamo.source import GlobalSource, LocalSource
from torch._dynamo.variables import (
    ConstantVariable,
    ConstDictVariable,
    ListVariable,
    NestedUserFunctionVariable,
    TensorVariable,
    TupleVariable,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.lists import SizeVariable
from torch._dynamo.variables.misc import NewGlobalVariable, StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._guards import ChainedSource, Source
from torch.fx import Proxy

from bcmend.runtime import containers, doubles, scalars
from bcmend.runtime.emission import Make, Plan
from bcmend.runtime.marks import Marks
from bcmend.runtime.merge import example_of, object_behind

__all__ = ["CannotRunInside", "Gathered", "modified", "require_there_before"]

_DTYPES: Final = {
    torch.SymBool: torch.bool,
    torch.SymInt: torch.int64,
    torch.SymFloat: torch.float64,
}


class CannotRunInside(Exception):
    """A record needs what a graph cannot have."""


def modified(tx: Any) -> list[VariableTracker]:
    """Return the objects from before the call of which the trace has changed something."""
    effects = tx.output.side_effects
    return [
        variable
        for variable in effects.id_to_variable.values()
        if (
            isinstance(variable, NewGlobalVariable)
            or (variable.source is not None and variable.mutation_type is not None)
        )
        and _is_modified(effects, variable)
    ]


def _is_modified(effects: Any, variable: VariableTracker) -> bool:
    if isinstance(variable, NewGlobalVariable):
        return variable in effects.store_attr_mutations
    return bool(effects.is_modified(variable))


class Gathered:
    """The tensors of one record, and what makes its values."""

    def __init__(self, tx: Any, plan: Plan) -> None:
        self._tx, self.plan = tx, plan
        self.tensors: list[Proxy] = []
        self.is_up_to_date = False  # whether the effects of the call until then have been had

    def tensor(self, proxy: Proxy) -> int:
        """Return the position of a tensor among those of the operator."""
        self.tensors.append(proxy)
        return len(self.tensors) - 1

    def maker(self, value: VariableTracker) -> Make:
        """Return what makes ``value`` as it is now. Raises ``CannotRunInside``."""
        value = value.realize()
        if hasattr(value, "as_recorded"):
            raise CannotRunInside("a value with one form on each side of a branch")
        if containers.is_named_tuple(value) and value.source is None:
            return self.of_named_tuple(value)
        for kind, make in _MAKERS.items():
            if type(value) is kind:
                return make(self, value)
        if isinstance(value, TensorVariable):
            raise CannotRunInside("a tensor of a class of its own")
        if value.source is not None:
            return self.object_of(value)
        try:
            return _constant(value.as_python_constant())
        except NotImplementedError:
            name = type(value).__name__
            raise CannotRunInside(f"an object made in the call: {name}") from None

    def of_constant(self, value: Any) -> Make:
        return _constant(value.value)

    def of_tensor(self, value: Any) -> Make:
        example = example_of(value)
        if type(example).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
            raise CannotRunInside("a tensor that is not a fake one")
        position = self.tensor(value.as_proxy())
        marks = Marks.of(example)
        return lambda tensors, objects: marks.put_on(tensors[position])

    def of_number(self, value: Any) -> Make:
        known: Any = scalars.tensor_behind(self._tx, value.as_proxy())
        if known is None and isinstance(value.sym_num, torch.SymFloat):
            known = doubles.as_tensor(self._tx, value.as_proxy())
        elif known is None:
            proxy = self._tx.output.create_proxy(
                "call_function",
                torch.scalar_tensor,
                (value.as_proxy(),),
                {"dtype": _DTYPES[type(value.sym_num)]},
            )
            known = wrap_fx_proxy(self._tx, proxy)
        position = self.tensor(known.as_proxy())
        return lambda tensors, objects: tensors[position].item()

    def of_list(self, value: Any) -> Make:
        items = self._all(value.items)
        return lambda tensors, objects: [make(tensors, objects) for make in items]

    def of_tuple(self, value: Any) -> Make:
        items = self._all(value.items)
        return lambda tensors, objects: tuple([make(tensors, objects) for make in items])

    def of_named_tuple(self, value: Any) -> Make:
        items, construct = self._all(value.items), value.get_construct_fn()
        return lambda tensors, objects: construct([make(tensors, objects) for make in items])

    def of_size(self, value: Any) -> Make:
        items = self._all(value.items)
        return lambda tensors, objects: torch.Size([make(tensors, objects) for make in items])

    def of_dict(self, value: Any) -> Make:
        if value.user_cls is not dict:
            raise CannotRunInside("a dictionary of a class of its own")
        keys = self._all([key.vt for key in value.items])
        items = self._all(list(value.items.values()))
        return lambda tensors, objects: {
            key(tensors, objects): make(tensors, objects)
            for key, make in zip(keys, items, strict=True)
        }

    def of_text(self, value: Any) -> Make:
        items = self._all(value.sym_args)
        names = list(value.sym_kwargs)
        named = self._all(list(value.sym_kwargs.values()))
        return lambda tensors, objects: value.format_string.format(
            *[make(tensors, objects) for make in items],
            **{name: make(tensors, objects) for name, make in zip(names, named, strict=True)},
        )

    def of_function(self, value: Any) -> Make:
        """Make a function of this module's writing; those of the program may hold anything."""
        closure = value.closure
        if value.defaults is not None or value.kwdefaults is not None or value.wrapped_fn:
            raise CannotRunInside("a function with defaults")
        if closure is not None and closure.items:
            raise CannotRunInside("a function that shares variables")
        code = value.get_code()
        if any(isinstance(each, NewGlobalVariable) for each in modified(self._tx)):
            raise CannotRunInside("a global variable was stored to")
        return _constant(FunctionType(code, value.f_globals, value.fn_name.as_python_constant()))

    def _all(self, values: Sequence[VariableTracker]) -> list[Make]:
        return [self.maker(each) for each in values]

    def object_of(self, value: VariableTracker) -> Make:
        """Find an object where Dynamo found it; it has to be as it was then."""
        source = value.source
        assert source is not None
        require_there_before(source)
        for changed in () if self.is_up_to_date else modified(self._tx):
            if changed is value or source in _origins(changed.source):
                raise CannotRunInside("an object that the call has changed")
        known = object_behind(value)
        if _holds_tensors(known):
            raise CannotRunInside("an object with tensors, which may have been changed")
        slot = self.plan.slot(source)
        return lambda tensors, objects: objects[slot]


_MAKERS: Final[dict[type, Callable[[Gathered, Any], Make]]] = {
    ConstantVariable: Gathered.of_constant,
    TensorVariable: Gathered.of_tensor,
    SymNodeVariable: Gathered.of_number,
    ListVariable: Gathered.of_list,
    TupleVariable: Gathered.of_tuple,
    SizeVariable: Gathered.of_size,
    ConstDictVariable: Gathered.of_dict,
    StringFormatVariable: Gathered.of_text,
    NestedUserFunctionVariable: Gathered.of_function,
}


def _constant(value: Any) -> Make:
    return lambda tensors, objects: value


def _origins(source: Source | None) -> list[Source]:
    """Return ``source`` and what it is a part of."""
    found = []
    while source is not None:
        found.append(source)
        source = source.base if isinstance(source, ChainedSource) else None
    return found


def require_there_before(source: Source) -> None:
    """Raise ``CannotRunInside`` for a source that is not known before the graph runs."""
    root = _origins(source)[-1]
    if source.is_ephemeral() or not isinstance(root, (LocalSource, GlobalSource)):
        raise CannotRunInside(f"an object from {type(root).__name__}")


def _holds_tensors(value: object) -> bool:
    """Whether what an object writes of itself may be the contents of a tensor."""
    if isinstance(value, torch.nn.Module):
        return False
    held = getattr(value, "__dict__", None)
    return isinstance(held, dict) and any(isinstance(each, torch.Tensor) for each in held.values())
