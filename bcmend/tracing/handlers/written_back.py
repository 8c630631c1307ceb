"""Containers from before the call, and the code by which they get the contents that it leaves.

Dynamo makes another container with the new contents, or with what of them is new, and has the one
from before take these. That goes wrong where the other one is taken for the container, where keys
are gone or elsewhere, and for a deque that holds a limited number of items: Dynamo has no limit of
one that it is given, and putting all into it drops what was put in at its left end. The model of
such a deque gets its limit here, so that its contents are right at any moment.

An array of numpy, or a tensor of a subclass, that the call has made is one object, wherever it is
put: Dynamo makes one at each place. So is a tuple of constants.
"""

from __future__ import annotations

from collections import deque
from typing import Any, Final

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import example_of

UNTIL: Final = {
    "test_a_queue_that_was_changed_is_put_elsewhere_as_a_copy": "2.15",
    "test_a_copy_of_a_limited_queue_has_no_limit": "2.14",
    "test_what_is_taken_from_a_set_in_place_stays_there": "2.15",
}
_PURPOSE: Final = "what a container from before the call holds"


def _track(
    inner: Any, self: compat.SideEffects, item: Any, variable: Any, *more: Any, **named: Any
) -> Any:
    """Track an object; a deque that is limited has its limit in the model, under a guard."""
    if isinstance(item, deque) and isinstance(variable, compat.DequeVariable):
        _limit(item, variable)
    return inner(self, item, variable, *more, **named)


for _name in (methods.TRACK_OBJECT, methods.TRACK_MUTABLE):
    hooks.around(compat.SideEffects, _name, _PURPOSE, gate=None)(_track)


def _limit(item: deque[Any], variable: Any) -> None:
    containers.limit(variable, item)
    if variable.source is not None:
        source = compat.AttrSource(variable.source, "maxlen")
        compat.install_guard(source.make_guard(compat.GuardBuilder.CONSTANT_MATCH))


@hooks.around(compat.SideEffects, methods.WRITE_BACK, _PURPOSE, gate=None)
def _write_back(inner: Any, self: compat.SideEffects, *arguments: Any, **named: Any) -> Any:
    """Write the code for new contents; Dynamo has none for deques of a known limit.

    That for dictionaries and sets leaves keys where they were, whatever methods have moved them.
    """
    known = [each for each in self.id_to_variable.values() if each.is_realized()]
    for model in [containers.contents_of(each) or each for each in known]:
        # What nothing has looked at is not changed, and not looked at here.
        kind = model.mutation_type if model.is_realized() else None
        if not (isinstance(kind, compat.ValueMutationExisting) and self.is_modified(model)):
            continue
        if isinstance(model, compat.DequeVariable) and containers.is_limited(model):
            containers.limit(model, deque())
        elif isinstance(model, (compat.ConstDictVariable, compat.SetVariable)):
            containers.write_all_back_if_keys_moved(model)
    return inner(self, *arguments, **named)


_NO_COPY: Final = "new contents are not the container"


@hooks.around(compat.PyCodegen, methods.ADD_CACHE, _NO_COPY, gate=hooks.of_builder)
def _add_cache(inner: Any, codegen: compat.PyCodegen, value: Any) -> None:
    """Have code that comes after that for the new contents of a container load the container.

    Dynamo keeps the one with these contents if the container is a deque or holds itself.
    """
    kind = getattr(value, "mutation_type", None)
    if isinstance(kind, compat.ValueMutationExisting) and value.source is not None:
        codegen.pop_top()
    else:
        inner(codegen, value)


@hooks.around(compat.PyCodegen, methods.CALL, _NO_COPY, gate=hooks.of_builder)
def _write(inner: Any, codegen: compat.PyCodegen, value: Any, allow_cache: bool = True) -> None:
    """Write code for a value; new contents that lie on the stack are not what comes next."""
    is_made = type(value).__name__ in _MADE_OF_RESULTS
    if is_made and value.source is None and allow_cache:
        _write_once(inner, codegen, value)
        return
    if type(value) is compat.TupleVariable and value.source is None and _load(codegen, value):
        codegen.clear_tos()
        return
    inner(codegen, value, allow_cache)
    if not allow_cache:
        codegen.clear_tos()


#: The models of what Dynamo makes of a result of the graph, at each place that has it.
_MADE_OF_RESULTS: Final = frozenset(["NumpyNdarrayVariable", "TensorWithTFOverrideVariable"])
_FIRST: Final[Slot[dict[int, Any]]] = Slot(dict, rolls_back=True)


#: The tuples that models of constant ones stand for; a model is kept with its own.
_TUPLES: Final[Slot[dict[int, tuple[Any, tuple[Any, ...]]]]] = Slot(dict, rolls_back=True)


def _load(codegen: compat.PyCodegen, value: Any) -> bool:
    """Write code that loads a tuple of constants, one object for one model; `False` if none.

    Dynamo makes another constant of it at each place.
    """
    if not value.is_python_constant():
        return False
    try:
        codegen.append_output(codegen.create_load_const(_tuple_of(codegen.tx.output, value)))
    except AssertionError:  # it holds what Dynamo does not write as a constant
        return False
    return True


def _tuple_of(output: compat.OutputGraph, model: Any) -> tuple[Any, ...]:
    items = [each.realize() for each in model.items]
    known = _TUPLES.of(output)
    if id(model) not in known:
        made = tuple(
            _tuple_of(output, each)
            if type(each) is compat.TupleVariable
            else each.as_python_constant()
            for each in items
        )
        known[id(model)] = model, made
    return known[id(model)][1]


def _write_once(inner: Any, codegen: compat.PyCodegen, value: Any) -> None:
    """Write code for an object that is made of a result: one object, wherever it stands."""
    first = _FIRST.of(codegen.tx.output).setdefault(id(example_of(value)), value)
    codegen.uses[first] += 1
    inner(codegen, first, True)
    if first in codegen.tempvars and codegen.tempvars[first] is None:
        codegen.add_cache(first)
        codegen.append_output(codegen.create_load(codegen.tempvars[first]))


@handlers.method(compat.DequeVariable, methods.CALL_METHOD, "copies of deques have their limit")
def _copied(call: Call) -> Answer:
    """Answer ``queue.copy()``; the copy of Dynamo's model is of any length."""
    if call.args[:1] not in (("copy",), ("__copy__",)) or call.args[1] or call.args[2]:
        return PASS
    return containers.new_deque_like(call.owner, list(call.owner.items))
