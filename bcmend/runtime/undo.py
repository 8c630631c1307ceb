"""What a frame keeps so that its graph can be thrown away though it changes arguments in place.

Reads the complete graph of a frame with side exits. Copies of the arguments that it changes are
made in the graph itself, before anything else; when a side exit is taken, they are put back, as are
the states of random generators. What cannot be put back is named by ``obstacle``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch._dynamo.bytecode_transformation import create_build_tuple
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._subclasses import FakeTensor
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.fx import Node

from bcmend.runtime import random_numbers
from bcmend.runtime.costs import bytes_of
from bcmend.runtime.merge import constant
from bcmend.runtime.operations import is_in_place, storage_of, storages_written
from bcmend.runtime.per_trace import kept
from bcmend.runtime.uncounted import statistics_of

__all__ = ["Kept", "changed_inputs", "examples_of", "obstacle", "put_back"]

#: Copies of so many bytes are made without a thought; a small multiple of what a call costs anyway.
FREE: Final = 2**18
#: Else copies are made of at most this part of the bytes that the graph writes and is given.
PART: Final = 1 / 64

#: What gives a tensor another storage, or its storage another size.
_OF_STORAGE: Final = frozenset(["set_", "resize_", "resize_as_", "set_data", "swap_tensors"])

Change = tuple[torch.Tensor, torch.Tensor]


class Kept(VariableTracker):
    """The copies and the states, as a tuple that the compiled frame makes.

    What has to be kept is known when Dynamo writes the code that follows the graph, while the graph
    can still be added to, and code still be put in front of it.
    """

    _nonvar_fields = {"output", *VariableTracker._nonvar_fields}  # noqa: RUF012

    def __init__(self, output: Any, **more: Any) -> None:
        super().__init__(**more)
        self.output = output
        self._copies: list[tuple[Any, VariableTracker]] | None = None

    def reconstruct(self, codegen: Any) -> None:
        if self._copies is None:
            changed = [] if obstacle(self.output) else changed_inputs(self.output)
            self._copies = [_copied(self.output, node) for node in changed]
        for source, copy in self._copies:
            codegen(source)
            codegen(copy)
            codegen.append_output(create_build_tuple(2))
        codegen.append_output(create_build_tuple(len(self._copies)))
        codegen(constant(random_numbers.draws(self.output)))
        codegen.append_output(create_build_tuple(2))


def obstacle(output: Any) -> str:
    """Say why the graph of a frame leaves a trace that cannot be put back; empty if none does."""
    if output.side_effects.tensor_hooks:
        return "hooks are put on tensors"
    nodes = random_numbers.nodes_of(output)
    if any(isinstance(node.meta.get("example_value"), torch.Generator) for node in nodes):
        return "a generator of random numbers is given"
    if any(_reaches_others(node) for node in nodes):
        return "other processes take part"
    if _leaves_other_settings(output):
        return "a setting of torch is left changed"
    changed = changed_inputs(output)
    if changed and any(_target_of(node) in _OF_STORAGE for node in nodes):
        return "a tensor gets another storage"
    return _cannot_be_copied(output, changed)


def changed_inputs(output: Any) -> list[Node]:
    """Return the inputs that a complete graph changes in place."""
    return kept(output, "changed_inputs", lambda: _find_changed_inputs(output))


def _find_changed_inputs(output: Any) -> list[Node]:
    """Find them by their counts of changes, and by what changes them.

    Not all operations count what they change: those of ``x.data`` count for that alone, and those
    of running means not at all.
    """
    nodes = list(output.graph.nodes)
    counted = output.root_tracer.has_input_mutation().mutated_input_indices
    written: set[int] = set().union(*(_written(node, output.fake_mode) for node in nodes))
    return [
        node
        for at, node in enumerate(nodes)
        if node.op == "placeholder"
        and (at in counted or any(storage_of(each) in written for each in examples_of([node])))
    ]


def _written(node: Node, fake_mode: Any) -> set[int]:
    """Return the storages that a node changes, or all that it is given if that cannot be told."""
    if node.op not in ("call_function", "call_method"):
        return set()
    statistics = {*map(storage_of, examples_of(statistics_of(node)))}
    if not (is_in_place(node) or "batch_norm" in _target_of(node)):
        return statistics
    written = storages_written(node, fake_mode)
    if written is None:
        return {*map(storage_of, examples_of(node.all_input_nodes))}
    return written | statistics


def examples_of(values: Iterable[Any]) -> list[torch.Tensor]:
    """Return the fake tensors of the nodes among ``values``."""
    found = (each.meta.get("example_value") for each in values if isinstance(each, Node))
    return [each for each in found if isinstance(each, torch.Tensor)]


def _cannot_be_copied(output: Any, changed: list[Node]) -> str:
    examples = [node.meta["example_value"] for node in changed]
    if any(each.requires_grad and not each.is_leaf for each in examples):
        return "an argument that is changed in place has a history"
    if not all(isinstance(each, FakeTensor) for each in examples):
        return "an argument that is changed in place is of a class of its own"
    copied = sum(map(bytes_of, examples))
    if copied > FREE and copied > PART * _bytes_of_graph(output.graph):
        return "the arguments that are changed in place are large"
    return ""


def _bytes_of_graph(graph: Any) -> float:
    return sum(map(bytes_of, examples_of(graph.nodes)))


def _target_of(node: Node) -> str:
    return node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")


def _reaches_others(node: Node) -> bool:
    """Whether a node is a collective operation: the other processes would not make it again."""
    where = getattr(node.target, "__module__", None) or ""
    return str(node.target).startswith(("_c10d", "c10d")) or where.startswith("torch.distributed")


def _leaves_other_settings(output: Any) -> bool:
    """Whether settings of torch are not what they were when the graph has run."""
    if any("set_default" in _target_of(node) for node in output.graph.nodes):
        return True
    modes = [node.args[0] for node in output.graph.nodes if _target_of(node) == "_set_grad_enabled"]
    before = output.tracing_context.global_context.global_state["grad_enabled"][1]
    return bool(modes) and modes[-1] is not before


def _copied(output: Any, node: Node) -> tuple[Any, VariableTracker]:
    """Return where an input comes from, and a copy of it made before anything else in the graph."""
    tracer = output.root_tracer
    given = next(each for each in tracer.input_name_to_proxy.values() if each.node is node)
    first = next(each for each in output.graph.nodes if each.op != "placeholder")
    with output.graph.inserting_before(first):
        plain = wrap_fx_proxy(
            output.root_tx, tracer.create_proxy("call_method", "detach", (given,), {})
        )
        proxy = tracer.create_proxy("call_method", "clone", (plain.as_proxy(),), {})
        return node.meta["grapharg"].source, wrap_fx_proxy(output.root_tx, proxy)


def put_back(changes: tuple[Change, ...], *, draws: bool) -> None:
    """Put back what the graph has changed, and, if it draws, the random numbers too."""
    counted = tuple(each for each, _ in changes if not each.is_inference())
    with torch.no_grad(), _unsafe_preserve_version_counter(counted):
        for tensor, before in changes:
            tensor.copy_(before)
    if draws:
        random_numbers.put_back()
