"""Follows a graph from its result back to its inputs: by which sides of branches gradients flow.

What is not known to stop a gradient lets it pass, from every result of a node to every argument,
and from what a node writes into memory to every later reader of that memory. So an input may be
taken to get a gradient where it gets none, and never the other way round. Whether the fake tensor
of a node requires gradients is not asked: those of operations that were taken apart never do.
"""

from __future__ import annotations

import operator
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, cast

import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat
from bcmend.tracing.deopt import undo_log
from bcmend.tracing.effects.operator_runs import storage_of, target_name
from bcmend.tracing.gradients.arm_selects import is_marked
from bcmend.tracing.gradients.gradient_paths import RESULT, Paths

_ATEN: Final = torch.ops.aten
#: Results of these have no history.
_WITHOUT_HISTORY: Final = frozenset(
    [
        *("detach", torch.detach, torch.Tensor.detach, _ATEN.detach.default),
        *("new_zeros", "new_ones", "new_empty", "new_full", compat._get_data_attr),
        *(torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like),
        *(torch.rand_like, torch.randn_like),
    ]
)

#: The operators of ``torch.cond`` around a node, the outermost first, each with the side it is on.
Inside = tuple[tuple[Node, bool], ...]


@dataclass(slots=True, eq=False)
class Flow:
    """The paths of a graph, and the predicates that decide which of them are live.

    Attributes:
        fake_mode: in which operations are run to see what they write.
        predicates: nodes that compute them; their positions are their numbers.
        inside: where the nodes of each graph are.
    """

    fake_mode: Any
    paths: Paths = field(default_factory=Paths)
    predicates: dict[Node, int] = field(default_factory=dict)
    inside: dict[Any, Inside] = field(default_factory=dict)
    _outer: dict[Node, Node] = field(default_factory=dict)
    _memories: dict[Any, _Memory] = field(default_factory=dict)

    def back(self, module: GraphModule, results: Sequence[int], inside: Inside) -> dict[Node, int]:
        """Return the paths from each node of a graph, given those from each of its results."""
        graph = module.graph
        self.inside[graph] = inside
        memory = self._memories[graph] = _Memory(graph.nodes, self.fake_mode)
        found: dict[Node, int] = defaultdict(int)
        unrecorded = _unrecorded(graph.nodes)
        for node in reversed(graph.nodes):
            if node.op == "output":
                returned: Any = node.args[0]
                for each, paths in zip(returned, results, strict=True):
                    if isinstance(each, Node):
                        found[each] |= paths
                continue
            is_silent = not has_gradient(node) and node not in memory.written
            if is_silent or node in unrecorded:
                found[node] = 0
                continue
            if node.op == "placeholder":
                continue
            for written in memory.written.get(node, ()):
                for each in memory.nodes[written]:
                    found[node] |= found[each]
                if not inside and any(each.op == "placeholder" for each in memory.nodes[written]):
                    found[node] |= RESULT
            self._pass_on(module, node, found)
        return found

    def is_changed(self, node: Node) -> bool:
        """Return whether anything is written to the memory of what a node computes."""
        return self._memories[node.graph].is_changed(node)

    def _pass_on(self, module: GraphModule, node: Node, found: dict[Node, int]) -> None:
        found[node] = paths = self.paths.simplified(found[node])
        number = self._number(node)
        if number is not None and node.target is torch.where:
            for side, value in ((True, node.args[1]), (False, node.args[2])):
                if isinstance(value, Node):
                    found[value] |= self.paths.through(number, side, paths)
        elif number is not None and all(each.target is operator.getitem for each in node.users):
            self._pass_cond(module, node, number, found)
        else:
            for each in node.all_input_nodes:
                found[each] |= paths

    def _pass_cond(
        self, module: GraphModule, node: Node, number: int, found: dict[Node, int]
    ) -> None:
        _, *arms, operands = cast("tuple[Any, ...]", node.args)
        results: dict[Any, int] = defaultdict(int)
        for user in node.users:
            results[user.args[1]] |= found[user]
        for side, arm in zip((True, False), arms, strict=True):
            inner: Any = getattr(module, str(arm.target))
            entered = inner.graph.find_nodes(op="placeholder")
            pairs: list[tuple[Node, Node]] = list(zip(entered, operands, strict=True))
            self._outer.update(pairs)
            count = len(inner.graph.output_node().args[0])
            inside = (*self.inside[module.graph], (node, side))
            behind = self.back(inner, [results[at] for at in range(count)], inside)
            for placeholder, operand in pairs:
                found[operand] |= self.paths.through(number, side, behind[placeholder])

    def _number(self, node: Node) -> int | None:
        """Return the number of the predicate by which a node takes a side, if it can be told."""
        if not is_marked(node):
            return None
        predicate: Any = node.args[0]
        while predicate in self._outer:
            predicate = self._outer[predicate]
        if self.is_changed(predicate):
            return None  # it may decide about two branches, with another value each
        return self.predicates.setdefault(predicate, len(self.predicates))


class _Memory:
    """Which nodes of a graph share memory, by the fake tensors that tracing has found for them.

    What a branch is given to change is a copy which tracing takes for the original; here it is not.
    """

    def __init__(self, nodes: Iterable[Node], fake_mode: Any) -> None:
        self._fake_mode = fake_mode
        self._keys: dict[Node, dict[int, object]] = {}
        self.nodes: dict[object, list[Node]] = defaultdict(list)
        for node in nodes:
            is_fresh = is_marked(node) or target_name(node) == "clone"
            keys: dict[int, object] = {}
            for each in _storages(node):
                keys[each] = (node, each) if is_fresh else each
            if not is_fresh:
                for source in node.all_input_nodes:
                    keys |= {each: key for each, key in self._of(source) if each in keys}
            self._keys[node] = keys
            for key in set(keys.values()):
                self.nodes[key].append(node)
        self.written = {node: found for node in self._keys if (found := self._written(node))}
        self._changed = {key for found in self.written.values() for key in found}

    def is_changed(self, node: Node) -> bool:
        """Return whether anything is written to the memory of what a node computes."""
        return not self._changed.isdisjoint(self._keys[node].values())

    def _of(self, node: Node) -> Iterable[tuple[int, object]]:
        return self._keys.get(node, {}).items()

    def _written(self, node: Node) -> set[object]:
        """Return what memory a node writes."""
        if is_marked(node):
            return set()
        written = undo_log.written_by(node, self._fake_mode)
        return {
            key
            for source in node.all_input_nodes
            for storage, key in self._of(source)
            if storage in written
        }


def tensors_of(node: Node) -> list[torch.Tensor]:
    """Return the fake tensors that a node computes."""
    leaves = compat.tree_leaves(node.meta.get("example_value"))
    return [each for each in leaves if isinstance(each, torch.Tensor)]


def _storages(node: Node) -> set[int]:
    return {storage_of(each) for each in tensors_of(node)}


def has_gradient(node: Node) -> bool:
    """Return whether gradients may flow into what a node computes, as far as is known."""
    if node.op == "get_attr" or node.target in _WITHOUT_HISTORY:
        return False
    return may_get_gradient(node)


def may_get_gradient(node: Node) -> bool:
    """Return whether gradients may flow into what a node computes, or what is written there."""
    if node.meta.get("example_value") is None:
        return True
    return any(each.is_floating_point() or each.is_complex() for each in tensors_of(node))


def _unrecorded(nodes: Iterable[Node]) -> set[Node]:
    """Return the nodes of a graph that run while it records no gradients."""
    found, is_recording = set(), True
    for node in nodes:
        if node.target is compat._set_grad_enabled_now:
            is_recording = bool(node.args[0])
        elif not is_recording and node.op not in ("placeholder", "output"):
            found.add(node)
    return found
