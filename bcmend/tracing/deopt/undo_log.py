"""The undo log of a frame with side exits: copies of the arguments that its graph changes in place.

The copies are made in the graph itself, before anything else. When a side exit is taken, they are
written back, as are the states of random generators. ``obstacle`` names what cannot be undone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.effects import random_draws
from bcmend.tracing.effects.change_counts import statistics_of
from bcmend.tracing.effects.costs import bytes_of
from bcmend.tracing.effects.operator_runs import (
    facts_of_node,
    is_in_place,
    storage_of,
    storages_written,
)

#: Copies of up to this many bytes are always made: they take 0.4 of the time of the smallest
#: compiled call (2**20 bytes take 1.4 of it, 2**22 take 5.6).
FREE: Final = 2**18
#: Larger ones are made if they are at most this part of the bytes that the graph writes and reads:
#: beside a graph of two pointwise operations some 1.5 % of its time (a 32nd takes 3 %).
PART: Final = 1 / 64

Change = tuple[torch.Tensor, torch.Tensor]

effects.declare(compat._set_default_dtype_now, EffectFacts(sets_default=True))


@methods.without_models_in("output")
class SavedState(compat.VariableTracker):
    """The model of the tuple ``(pairs of tensor and copy, whether random numbers are drawn)``.

    The copies are added to the graph when Dynamo writes the code that follows it: then it is
    complete, and can still be changed.
    """

    def __init__(self, output: compat.OutputGraph, **more: Any) -> None:
        super().__init__(**more)
        self.output = output
        self._copies: list[tuple[Any, Value]] | None = None

    def reconstruct(self, codegen: Any) -> None:
        if self._copies is None:
            changed = [] if obstacle(self.output) else changed_inputs(self.output)
            self._copies = [_copied(self.output, node) for node in changed]
        for source, copy in self._copies:
            codegen(source)
            codegen(copy)
            codegen.append_output(compat.create_build_tuple(2))
        codegen.append_output(compat.create_build_tuple(len(self._copies)))
        codegen(constant(random_draws.frame_draws(self.output)))
        codegen.append_output(compat.create_build_tuple(2))


def obstacle(output: compat.OutputGraph) -> str:
    """Return why the effects of a complete graph cannot be undone; empty if they can."""
    if output.side_effects.tensor_hooks:
        return "hooks are put on tensors"
    nodes = random_draws.nodes_of(output)
    if any(isinstance(node.meta.get("example_value"), torch.Generator) for node in nodes):
        return "a generator of random numbers is given"
    facts = {id(each): each for each in map(facts_of_node, nodes)}.values()
    if any(each.is_collective for each in facts):
        return "other processes take part"
    if any(each.has_hidden_state for each in facts):
        return "an operator may have a state of its own"
    if _leaves_other_settings(output):
        return "a setting of torch is left changed"
    changed = changed_inputs(output)
    if changed and any(each.replaces_storage for each in facts):
        return "a tensor gets another storage"
    return _cannot_be_copied(output, changed)


_CHANGED_INPUTS: Final[Slot[list[Node] | None]] = Slot(lambda: None, rolls_back=False)


def changed_inputs(output: compat.OutputGraph) -> list[Node]:
    """Return the inputs that a complete graph changes in place."""
    found = _CHANGED_INPUTS.of(output)
    if found is None:
        # Operations on ``x.data`` count as changes of that alone, and those of running statistics
        # not at all. So both the counts and what the operators write are asked.
        nodes = list(output.graph.nodes)
        counted = output.root_tracer.has_input_mutation().mutated_input_indices
        written: set[int] = set().union(*(written_by(node, output.fake_mode) for node in nodes))
        found = [
            node
            for at, node in enumerate(nodes)
            if node.op == "placeholder"
            and (at in counted or any(storage_of(each) in written for each in examples_of([node])))
        ]
        _CHANGED_INPUTS.put(output, found)
    return found


def written_by(node: Node, fake_mode: Any) -> set[int]:
    """Return the storages that a node writes; those of all its inputs if that is not known."""
    if node.op not in ("call_function", "call_method"):
        return set()
    statistics = {*map(storage_of, examples_of(statistics_of(node)))}
    if not is_in_place(node) and facts_of_node(node).statistics is None:
        return statistics
    written = storages_written(node, fake_mode)
    if written is None:
        return {*map(storage_of, examples_of(node.all_input_nodes))}
    return written | statistics


def examples_of(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the fake tensors of the nodes among ``values``."""
    found = (each.meta.get("example_value") for each in values if isinstance(each, Node))
    return [each for each in found if isinstance(each, torch.Tensor)]


def _cannot_be_copied(output: compat.OutputGraph, changed: list[Node]) -> str:
    examples = [node.meta["example_value"] for node in changed]
    if any(each.requires_grad and not each.is_leaf for each in examples):
        return "an argument that is changed in place has a history"
    if not all(isinstance(each, compat.FakeTensor) for each in examples):
        return "an argument that is changed in place is of a class of its own"
    copied = sum(map(bytes_of, examples))
    if copied > FREE and copied > PART * sum(map(bytes_of, examples_of(output.graph.nodes))):
        return "the arguments that are changed in place are large"
    return ""


def _leaves_other_settings(output: compat.OutputGraph) -> bool:
    """Return whether the graph leaves settings of torch other than they were."""
    nodes = output.graph.nodes
    if any(facts_of_node(node).sets_default for node in nodes):
        return True
    modes = [node.args[0] for node in nodes if node.target is compat._set_grad_enabled_now]
    before = output.tracing_context.global_context.global_state["grad_enabled"][1]
    return bool(modes) and modes[-1] is not before


def _copied(output: compat.OutputGraph, node: Node) -> tuple[Any, Value]:
    """Return the source of an input, and a copy of it made before anything else in the graph."""
    tracer = output.root_tracer
    given = next(each for each in tracer.input_name_to_proxy.values() if each.node is node)
    first = next(each for each in output.graph.nodes if each.op != "placeholder")
    with output.graph.inserting_before(first):
        plain = compat.wrap_fx_proxy(
            output.root_tx, tracer.create_proxy("call_method", "detach", (given,), {})
        )
        proxy = tracer.create_proxy("call_method", "clone", (plain.as_proxy(),), {})
        return node.meta["grapharg"].source, compat.wrap_fx_proxy(output.root_tx, proxy)


def put_back(changes: tuple[Change, ...], *, draws: bool) -> None:
    """Restore tensors that the graph has changed and, if it ``draws``, the random states."""
    counted = tuple(each for each, _ in changes if not each.is_inference())
    with torch.no_grad(), compat._unsafe_preserve_version_counter(counted):
        for tensor, before in changes:
            tensor.copy_(before)
    if draws:
        random_draws.restore_states()
