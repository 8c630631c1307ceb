"""Inputs of a graph of which an arm changes one: the same ones share memory in all of its calls.

An arm works on a copy of what it changes. Which other inputs change with it, and what the arm reads
of them, is known of the call that is traced. Neither Dynamo nor AOTAutograd compares the memory of
inputs in later calls (AOTAutograd: the places of views of dynamic sizes alone), so it is done here.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import torch
from torch.fx import GraphModule, Proxy

from bcmend.dynamo import compat
from bcmend.dynamo.models.graph_inputs import is_read, source_of
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.tracing.effects.operator_runs import places_in_memory, storage_of
from bcmend.tracing.merging.shared_memory import lifted_tensors, memory_of
from bcmend.tracing.speculation.arms import ArmTrace


@dataclass(slots=True)
class _Noted:
    """The memory that arms change, all that such arms are given, and inputs that there were then.

    Inputs that an arm has as views of another one are none of the graph at its end.
    """

    changed: set[int] = field(default_factory=set)
    given: set[int] = field(default_factory=set)
    inputs: dict[compat.Source, torch.Tensor] = field(default_factory=dict)


#: Where an input comes from, where it begins in its memory, and how many bytes that has.
_Place = tuple[compat.Source, Any, Any]

_NOTED: Final[Slot[_Noted]] = Slot(_Noted, rolls_back=True)
_IS_AWAITED: Final[Slot[bool]] = Slot(bool, rolls_back=False)


def note_changed(tx: compat.Tracer, outers: Iterable[Proxy], arms: Iterable[ArmTrace]) -> None:
    """Note which tensors of the main trace arms change."""
    noted = _NOTED.of(tx.output)
    noted.changed.update(map(memory_of, outers))
    noted.given.update(memory_of(each) for arm in arms for each in lifted_tensors(arm))
    noted.inputs.update(_inputs(tx.output))
    if not _IS_AWAITED.of(tx.output):
        _IS_AWAITED.put(tx.output, True)
        at_the_end_of_a_graph(tx.output, Phase.EDIT, partial(_require_memory, tx.output))


def _inputs(output: compat.OutputGraph) -> dict[compat.Source, torch.Tensor]:
    """Return the plain tensors that are given to the graph by now, as fake ones."""
    found = {}
    for node in output.graph.find_nodes(op="placeholder"):
        example, given = node.meta.get("example_value"), source_of(node)
        if given is None or type(given[1]) not in _KINDS or not is_read(given[0]):
            continue  # what no guard can see, each call makes anew
        if example.layout is torch.strided:
            found[given[0]] = example
    return found


_KINDS: Final = (torch.Tensor, torch.nn.Parameter)


def _require_memory(output: compat.OutputGraph, _: GraphModule | None) -> None:
    """Install the guard that the inputs that share memory in this call do so, and no others.

    A parameter that no such arm is given has memory of its own in any model.
    """
    noted = _NOTED.of(output)
    memory = noted.changed | noted.given
    groups = places_in_memory(
        (source, example)
        for source, example in {**noted.inputs, **_inputs(output)}.items()
        if storage_of(example) in memory or not isinstance(example, torch.nn.Parameter)
    )
    found = list(groups.values())
    if not noted.changed.isdisjoint(groups) and sum(map(len, found)) > 1:
        compat.install_guard(compat.Guard(found[0][0][0], partial(_SHARED_MEMORY, groups=found)))


def _SHARED_MEMORY(
    builder: compat.GuardBuilderBase,
    guard: compat.Guard,
    *,
    groups: list[list[_Place]],
) -> None:
    """Require that inputs lie in one memory in groups, each at its place; one alone at any.

    AOTAutograd makes one input of the whole memory of a group, so that its size matters.
    """
    assert isinstance(builder, compat.GuardBuilder)
    parts, memories = [], []
    for group in groups:
        names = [builder.arg_ref(source.name) for source, _, _ in group]
        first, *others = [f"{name}.untyped_storage()._cdata" for name in names]
        memories.append(first)
        parts += [f"{first} == {each}" for each in others]
        for name, (_, offset, size) in zip(names, group, strict=True):
            if not others:
                break
            held = {"storage_offset": offset, "untyped_storage().nbytes": size}
            known = {each: at for each, at in held.items() if isinstance(at, int)}
            parts += [f"{name}.{each}() == {at}" for each, at in known.items()]
    if len(memories) > 1:
        parts.append(f"len({{{', '.join(memories)}}}) == {len(memories)}")
    code = [" and ".join(parts)]
    builder.add_python_lambda_leaf_guard_to_root(code, code)
