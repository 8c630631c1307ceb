"""What a record that runs inside the graph is made of: functions that make it at run time.

A constant is part of such a function; a tensor is an argument of the operator, with the contents of
that moment; an object is found where Dynamo found it. A symbolic number travels as a tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from types import FunctionType
from typing import Any, Final

import torch
from torch.fx import Proxy

from bcmend.delivery import grad_fn_label
from bcmend.delivery.emission import Make, Plan
from bcmend.dynamo import compat, fx_graph, values
from bcmend.dynamo.models import containers, texts
from bcmend.dynamo.models import objects as models_of_objects
from bcmend.dynamo.values import Value, example_of, object_behind
from bcmend.knowledge.static_lookup import dictionary
from bcmend.tracing.effects import written_objects
from bcmend.tracing.effects.text_reach import TextReach
from bcmend.tracing.numbers import float_tensors, scalars
from bcmend.tracing.sites.phi import Phi
from bcmend.tracing.sites.refusal import Refusal

_DTYPES: Final = {
    torch.SymBool: torch.bool,
    torch.SymInt: torch.int64,
    torch.SymFloat: torch.float64,
}


def modified(tx: compat.Tracer) -> list[Value]:
    """Return the objects from before the call of which the trace has changed something."""
    effects = tx.output.side_effects
    return [
        variable
        for variable in effects.id_to_variable.values()
        if (
            variable in effects.store_attr_mutations
            if isinstance(variable, compat.NewGlobalVariable)
            else variable.source is not None
            and variable.mutation_type is not None
            and effects.is_modified(variable)
        )
    ]


_OF_ITS_OWN: Final = "a dictionary of a class of its own"


class Gathered:
    """The tensors of one record, and what makes its values."""

    def __init__(self, tx: compat.Tracer, plan: Plan) -> None:
        self._tx, self.plan = tx, plan
        self.tensors: list[Proxy] = []
        self.is_in_an_arm = False  # the record, which is made when the branch has been merged
        self.is_up_to_date = False  # whether the effects of the call until then have been had

    def tensor(self, proxy: Proxy) -> int:
        """Return the position of a tensor among those of the operator."""
        self.tensors.append(proxy)
        return len(self.tensors) - 1

    def maker(self, value: Value) -> Make:
        """Return what makes ``value`` as it is now. Raises ``Refusal``."""
        value = value.realize()
        if isinstance(value, Phi):
            raise Refusal("inline-record", "a value with one form on each side of a branch")
        if values.is_named_tuple(value) and value.source is None:
            return self.of_items(value, value.get_construct_fn())  # type: ignore[attr-defined]
        if type(value) in _MAKERS:
            return _MAKERS[type(value)](self, value)
        if isinstance(value, compat.TensorVariable):
            raise Refusal("inline-record", "a tensor of a class of its own")
        if value.source is not None:
            return self.object_of(value)
        if isinstance(value, compat.ConstDictVariable):
            raise Refusal("inline-record", _OF_ITS_OWN)
        try:
            return _constant(value.as_python_constant())
        except NotImplementedError:
            name = type(value).__name__
            raise Refusal("inline-record", f"an object made in the call: {name}") from None

    def of_tensor(self, value: Any) -> Make:
        example = example_of(value)
        if type(example).__torch_dispatch__ is torch.Tensor.__torch_dispatch__:
            raise Refusal("inline-record", "a tensor that is not a fake one")
        position = self.tensor(value.as_proxy())
        label = grad_fn_label.Label.of(example)
        return lambda tensors, objects: label.put_on(tensors[position])

    def of_number(self, value: Any) -> Make:
        known: Any = scalars.tensor_behind(self._tx, value.as_proxy())
        if known is None and isinstance(value.sym_num, torch.SymFloat):
            known = float_tensors.as_tensor(self._tx, value.as_proxy())
        elif known is None:
            dtype = _DTYPES[type(value.sym_num)]
            known = fx_graph.function(self._tx, torch.scalar_tensor, value, dtype=dtype)
        position = self.tensor(known.as_proxy())
        return lambda tensors, objects: tensors[position].item()

    def of_items(self, value: Any, construct: Callable[[list[Any]], Any]) -> Make:
        items = self._all(value.items)
        return lambda tensors, objects: construct([make(tensors, objects) for make in items])

    def of_dict(self, value: Any) -> Make:
        if not containers.is_plain_dictionary(value):
            raise Refusal("inline-record", _OF_ITS_OWN)
        keys, items = (
            self._all(map(containers.key_model, value.items)),
            self._all(value.items.values()),
        )
        return lambda tensors, objects: {
            key(tensors, objects): make(tensors, objects)
            for key, make in zip(keys, items, strict=True)
        }

    def of_text(self, value: Any) -> Make:
        items, template = self._all(texts.arguments_of(value)), texts.template_of(value)
        named = {name: self.maker(each) for name, each in texts.named_arguments_of(value).items()}
        return lambda tensors, objects: template.format(
            *[make(tensors, objects) for make in items],
            **{name: make(tensors, objects) for name, make in named.items()},
        )

    def of_function(self, value: Any) -> Make:
        """Make a function of this module's writing; those of the program may hold anything."""
        closure = value.closure
        if models_of_objects.has_defaults(value):
            raise Refusal("inline-record", "a function with defaults")
        if closure is not None and closure.items:
            raise Refusal("inline-record", "a function that shares variables")
        if any(isinstance(each, compat.NewGlobalVariable) for each in modified(self._tx)):
            raise Refusal("inline-record", "a global variable was stored to")
        name = value.fn_name.as_python_constant()
        return _constant(FunctionType(value.get_code(), value.f_globals, name))

    def _all(self, values: Iterable[Value]) -> list[Make]:
        return [self.maker(each) for each in values]

    def object_of(self, value: Value) -> Make:
        """Find an object where Dynamo found it; it has to be as it was then."""
        source = value.source
        assert source is not None
        require_there_before(source)
        for changed in () if self.is_up_to_date else modified(self._tx):
            if changed is value or source in _origins(changed.source):
                raise Refusal("inline-record", "an object that the call has changed")
        if _holds_tensors(object_behind(value)):
            raise Refusal("inline-record", "an object with tensors, which may have been changed")
        self._require_as_before_the_call(object_behind(value))
        slot = self.plan.slot(source)
        return lambda tensors, objects: objects[slot]

    def _require_as_before_the_call(self, shown: object) -> None:
        """Raise ``Refusal`` if the text of an object shows what the call has changed by now."""
        text = TextReach([shown], [])
        if not text.is_own or written_objects.writer_of(shown) is not None:
            return
        if self.is_in_an_arm and not self.is_up_to_date:
            raise Refusal("inline-record", "an object with a text of its own, in an arm")
        if text.changes or (text.shows_tensors and not isinstance(shown, torch.nn.Module)):
            raise Refusal("inline-record", "an object whose text shows or changes others")
        effects = self._tx.output.side_effects
        changed = set() if self.is_up_to_date else set(modified(self._tx))
        for identity, each in effects.id_to_variable.items():
            names = effects.store_attr_mutations.get(each, {}).keys()
            is_named = isinstance(each, compat.NewGlobalVariable) and names & text.names
            if each in changed and (text.is_open or is_named or identity in text.identities):
                raise Refusal("inline-record", "an object that shows what the call has changed")


_MAKERS: Final[dict[type, Callable[[Gathered, Any], Make]]] = {
    compat.ConstantVariable: lambda gathered, value: _constant(value.value),
    compat.TensorVariable: Gathered.of_tensor,
    compat.SymNodeVariable: Gathered.of_number,
    compat.ListVariable: lambda gathered, value: gathered.of_items(value, list),
    compat.TupleVariable: lambda gathered, value: gathered.of_items(value, tuple),
    compat.SizeVariable: lambda gathered, value: gathered.of_items(value, torch.Size),
    compat.ConstDictVariable: Gathered.of_dict,
    compat.StringFormatVariable: Gathered.of_text,
    compat.NestedUserFunctionVariable: Gathered.of_function,
}


def _constant(value: Any) -> Make:
    return lambda tensors, objects: value


def _origins(source: compat.Source | None) -> list[compat.Source]:
    """Return ``source`` and what it is a part of."""
    found = []
    while source is not None:
        found.append(source)
        source = source.base if isinstance(source, compat.ChainedSource) else None
    return found


def require_there_before(source: compat.Source) -> None:
    """Raise ``Refusal`` for a source that is not known before the graph runs."""
    root = _origins(source)[-1]
    if source.is_ephemeral() or not isinstance(root, (compat.LocalSource, compat.GlobalSource)):
        raise Refusal("inline-record", f"an object from {type(root).__name__}")


def _holds_tensors(value: object) -> bool:
    """Return whether what an object writes of itself may be the contents of a tensor."""
    if isinstance(value, torch.nn.Module):
        return False
    return any(isinstance(each, torch.Tensor) for each in dictionary(value).values())
