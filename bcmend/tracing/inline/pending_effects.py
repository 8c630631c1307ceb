"""What a check that fails inside the graph would lose, and how it is brought about.

A graph makes its changes in place known at its end, and its effects on Python objects are replayed
after it. Where a check raises inside it, those of before the check have to be there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import Node, Proxy

from bcmend.delivery.emission import Finish, Make
from bcmend.delivery.records import store
from bcmend.dynamo import compat
from bcmend.dynamo.values import Value
from bcmend.tracing.effects.change_counts import statistics_of
from bcmend.tracing.inline.inline_values import Gathered, modified, require_there_before
from bcmend.tracing.sites.refusal import Refusal


def changed_arguments(tracer: Any) -> list[Node]:
    """Return the inputs of the graph that it has changed in place by now."""
    placeholders = [node for node in tracer.graph.nodes if node.op == "placeholder"]
    indices = tracer.has_input_mutation().mutated_input_indices
    changed = [placeholders[index] for index in indices]
    statistics = (each for node in tracer.graph.nodes for each in statistics_of(node))
    return list(dict.fromkeys([*changed, *(each for each in statistics if each in placeholders)]))


def changes_in_place(tx: compat.Tracer, gathered: Gathered) -> list[Finish]:
    """Return what changes the arguments that the graph has changed by now."""
    tracer = tx.output.root_tracer
    found = []
    for node in changed_arguments(tracer):
        source = node.meta["grapharg"].source
        require_there_before(source)
        position = gathered.tensor(Proxy(node, tracer))
        found.append(_bring_back(gathered.plan.slot(source), position))
    return found


def _bring_back(slot: int, position: int) -> Finish:
    def finish(tensors: Any, objects: Any) -> None:
        argument, present = objects[slot], tensors[position]
        if argument.data_ptr() != present.data_ptr() and argument.shape == present.shape:
            with torch.no_grad():
                argument.copy_(present)

    return finish


def effects(tx: compat.Tracer, gathered: Gathered) -> list[Finish]:
    """Return what has the effects on Python objects that were traced by now; or ``Refusal``."""
    return [each for variable in modified(tx) for each in _effects_on(tx, gathered, variable)]


def _effects_on(tx: compat.Tracer, gathered: Gathered, variable: Value) -> list[Finish]:
    stores = tx.output.side_effects.store_attr_mutations.get(variable)
    if isinstance(variable, compat.NewGlobalVariable):
        raise Refusal("inline-record", "a global variable")
    assert variable.source is not None
    require_there_before(variable.source)
    slot = gathered.plan.slot(variable.source)
    if type(variable) is compat.ListVariable and not stores:
        return [_refilled(slot, [_simple(gathered, each) for each in variable.items])]
    if not stores or getattr(variable, "value", None) is None:
        raise Refusal("inline-record", "a container")
    return [_stored(slot, name, _simple(gathered, value)) for name, value in stores.items()]


def _simple(gathered: Gathered, value: Value) -> Make:
    """Return what makes a value that cannot be told from an equal one. Raises ``Refusal``."""
    value = value.realize()
    if isinstance(value, (compat.ConstantVariable, compat.SymNodeVariable)):
        return gathered.maker(value)
    raise Refusal("inline-record", "a stored object")


def _stored(slot: int, name: str, make: Make) -> Finish:
    return lambda tensors, objects: store(objects[slot], name, make(tensors, objects))


def _refilled(slot: int, makes: list[Make]) -> Finish:
    def finish(tensors: Any, objects: Any) -> None:
        list.__setitem__(objects[slot], slice(None), [make(tensors, objects) for make in makes])

    return finish
