"""Changes in place of tensors that outlive an arm, made by the main trace instead.

Reads the two traced arms and what they write to; plans, for each tensor ``t`` of the main trace
that an arm changes, a copy for the arm to work on, one more pair of values to merge (what each side
leaves in ``t``), and a ``t.copy_`` of the merged value at the end. Refuses what would differ from
eager: another tensor of the arm that shares memory with ``t``, a ``t`` that an operation before the
branch has kept for its backward (the copy counts as a change even where the side is not taken), a
view of a parameter.

Relies on Dynamo running each operation of an arm on the fake tensors of the main trace, so that
these have the history of gradients that the changes give them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo import exc
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._subclasses import FakeTensor
from torch.autograd.graph import increment_version
from torch.fx import Node, Proxy
from torch.fx.experimental.symbolic_shapes import statically_known_true
from torch.utils.checkpoint import CheckpointPolicy

from bcmend.runtime import shared_memory
from bcmend.runtime.arms import ArmTrace
from bcmend.runtime.merge import Pair, example_of
from bcmend.runtime.operations import Hazards, storage_of

__all__ = [
    "CannotSettle",
    "InPlace",
    "may_overlap_itself",
    "outer_form",
    "plan_in_place",
    "write_back",
]


class CannotSettle(Exception):
    """A change in place that cannot be taken out of its arm."""


@dataclass(frozen=True, slots=True)
class Entered:
    """A tensor of the main trace as an arm sees it, in the form that pairs are made of."""

    proxy: Proxy

    def as_proxy(self) -> Proxy:
        return self.proxy


@dataclass(frozen=True, slots=True)
class InPlace:
    """One tensor of the main trace that an arm changes.

    Attributes:
        outer: the tensor.
        pair: what it holds after each side.
        in_history: whether gradients flow through the change.
        counted: whether eager counts it as a change of the tensor, so that a backward that has kept
            the tensor fails. Running statistics and ``x.data`` are changed without.
    """

    outer: Proxy
    pair: Pair
    in_history: bool
    counted: bool


def plan_in_place(
    tx: Any, arms: tuple[ArmTrace, ArmTrace], hazards: Sequence[Hazards]
) -> list[InPlace]:
    """Plan the changes in place of both arms.

    Raises:
        CannotSettle: one of them cannot be made conditional in this way.
    """
    written = frozenset[int]().union(*(found.writes for found in hazards))
    behind = shared_memory.enter_as_views(tx, arms, written)
    changed = [
        _once_each(behind.get(id(_example(each)), each) for each in _changed(arm, found.writes))
        for arm, found in zip(arms, hazards, strict=True)
    ]
    outers = _once_each(outer for proxies in changed for outer in proxies)
    if not outers:
        return []
    for arm, found, proxies in zip(arms, hazards, changed, strict=True):
        for outer in proxies:
            _require_own_memory(arm, outer)
            _require_settled_form(arm, outer, storage_of(_example(outer)) in found.reshapes)
    _require_apart(outers)
    _require_arms_apart(arms)
    for outer in outers:
        if any(_is_counted(arm, outer) for arm in arms):
            _require_not_kept(tx, _example(outer), arms)
    return [
        InPlace(
            outer,
            Pair(_final(outer, arms[0]), _final(outer, arms[1])),
            any(_history_changed(arm, outer) for arm in arms),
            _is_behind(outer, behind) or any(_is_counted(arm, outer) for arm in arms),
        )
        for outer in outers
    ]


def _example(proxy: Proxy) -> Any:
    return proxy.node.meta.get("example_value")


def _changed(arm: ArmTrace, writes: frozenset[int]) -> list[Proxy]:
    """Return what the arm changes: as versions count, and as the operators say.

    ``x.data`` has a count of its own, and normalisation does not count at all.
    """
    written = [
        outer
        for outer in arm.lifted
        if isinstance(_example(outer), torch.Tensor) and storage_of(_example(outer)) in writes
    ]
    return _once_each([*arm.effects.tensors, *written])


def _is_counted(arm: ArmTrace, outer: Proxy) -> bool:
    return any(_example(each) is _example(outer) for each in arm.effects.tensors)


def _is_behind(outer: Proxy, behind: Mapping[int, Proxy]) -> bool:
    return any(_example(each) is _example(outer) for each in behind.values())


def _once_each(outers: Iterable[Proxy]) -> list[Proxy]:
    """Drop further names of the same tensor."""
    return list({id(_example(outer)): outer for outer in outers}.values())


def _final(outer: Proxy, arm: ArmTrace) -> Entered:
    for other, inner in arm.lifted.items():
        if _example(other) is _example(outer):
            return Entered(inner)
    return Entered(outer)


def _require_own_memory(arm: ArmTrace, outer: Proxy) -> None:
    example = _example(outer)
    storage = storage_of(example)
    others = [_example(other) for other in arm.lifted if _example(other) is not example]
    if any(isinstance(other, torch.Tensor) and storage_of(other) == storage for other in others):
        raise CannotSettle("a tensor is changed in place, and the arm reads another of its memory")
    for value in _values_of(arm):
        node = value.as_proxy().node
        if node.graph is arm.graph or example_of(value) is example:
            continue
        if storage_of(example_of(value)) == storage:
            raise CannotSettle(
                "a tensor is changed in place, and the arm leaves another of its memory",
            )


def _values_of(arm: ArmTrace) -> list[TensorVariable]:
    found: list[TensorVariable] = []

    def collect(value: VariableTracker) -> None:
        if type(value) is TensorVariable:
            found.append(value)

    left = [arm.result, *arm.effects.attributes.values()]
    left += [item for change in arm.effects.containers for item in _items(change.after["items"])]
    VariableTracker.visit(collect, left)
    return found


def _items(items: Any) -> Iterable[Any]:
    values = items.values() if isinstance(items, dict) else items
    return [each for each in values if isinstance(each, VariableTracker)]


def _require_settled_form(arm: ArmTrace, outer: Proxy, reshaped: bool) -> None:
    """Refuse a tensor whose change is more than one of its contents."""
    example, entry = _example(outer), arm.entries.get(outer)
    if not isinstance(example, FakeTensor):
        raise CannotSettle("a tensor of a special kind is changed in place")
    if reshaped or entry is None or entry.form_changed:
        raise CannotSettle("a tensor gets another form in place")
    if example.layout is not torch.strided:
        raise CannotSettle("a sparse tensor is changed in place")
    if may_overlap_itself(example):
        raise CannotSettle("a tensor that overlaps itself is changed in place")
    if not torch.is_grad_enabled():
        return
    if _history_changed(arm, outer) and _is_view_of_a_leaf(example):
        raise CannotSettle("a view of a tensor that requires gradients is changed in place")
    if entry.gained_gradients and _outlives_the_graph(outer):
        raise CannotSettle("a tensor that outlives the call gets a history of gradients in place")


def may_overlap_itself(example: torch.Tensor) -> bool:
    """Whether two elements may have the same place in memory."""
    dimensions = list(zip(example.stride(), example.size(), strict=True))
    if all(isinstance(number, int) for pair in dimensions for number in pair):
        dimensions = sorted(dimensions, reverse=True)
    reach: Any = 1
    for stride, size in reversed(dimensions):
        if _is_one(size):
            continue
        if not statically_known_true(stride >= reach):
            return True
        reach = stride * size
    return False


def _is_one(size: Any) -> bool:
    return statically_known_true(size == 1)


def _is_view_of_a_leaf(example: torch.Tensor) -> bool:
    base = example._base
    return base is not None and base.is_leaf and base.requires_grad


def _outlives_the_graph(outer: Proxy) -> bool:
    storage = storage_of(_example(outer))
    return any(
        node.op in ("placeholder", "get_attr") and storage in _storages_of(node)
        for node in outer.node.graph.nodes
    )


def _history_changed(arm: ArmTrace, outer: Proxy) -> bool:
    storage = storage_of(_example(outer))
    return any(
        entry.history_changed
        for entry in arm.entries.values()
        if storage_of(entry.example) == storage
    )


def _require_apart(outers: Sequence[Proxy]) -> None:
    """Two views of one tensor, changed on different sides, would be written over each other."""
    storages = [storage_of(_example(outer)) for outer in outers]
    if len(set(storages)) < len(storages):
        raise CannotSettle("two tensors that share memory are changed in place")


def _require_arms_apart(arms: tuple[ArmTrace, ArmTrace]) -> None:
    """The arm traced last must not have seen a history that the first one made."""
    first, last = arms
    gained = {
        storage_of(_example(outer))
        for outer, entry in first.entries.items()
        if entry.gained_gradients
    }
    for outer in last.lifted:
        if isinstance(_example(outer), torch.Tensor) and storage_of(_example(outer)) in gained:
            raise CannotSettle("a tensor gets a history of gradients in place on one side")


def _require_not_kept(tx: Any, example: torch.Tensor, arms: tuple[ArmTrace, ArmTrace]) -> None:
    """Refuse a tensor that the backward of an earlier operation reads."""
    if not torch.is_grad_enabled():
        return
    storage = storage_of(example)
    starts = [
        entry.history for arm in arms for entry in arm.entries.values() if entry.example is example
    ]
    for node in tx.output.graph.nodes:
        if isinstance(node.target, torch._ops.HigherOrderOperator) and _reads(node, storage):
            raise CannotSettle(f"{node.target.__name__} may keep a tensor that is changed in place")
        starts += [tensor.grad_fn for tensor in _tensors_of(node) if storage_of(tensor) != storage]
    for kept in _kept_for_backward(starts):
        if kept is None or storage_of(kept) == storage:
            raise CannotSettle("a tensor is changed in place that an earlier operation has kept")


def _reads(node: Node, storage: int) -> bool:
    return any(storage in _storages_of(argument) for argument in node.all_input_nodes)


def _tensors_of(node: Node) -> list[torch.Tensor]:
    value = node.meta.get("example_value")
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def _storages_of(node: Node) -> set[int]:
    return {storage_of(tensor) for tensor in _tensors_of(node)}


def _kept_for_backward(starts: Iterable[Any]) -> Iterator[torch.Tensor | None]:
    """Yield the tensors that the backward of ``starts`` reads; ``None`` for one changed since."""
    waiting = [start for start in starts if start is not None]
    seen = set()
    while waiting:
        function = waiting.pop()
        if function in seen:
            continue
        seen.add(function)
        for name in dir(function):
            if name.startswith("_saved_") or name == "saved_tensors":
                yield from _kept_under(function, name)
        waiting += [following for following, _ in function.next_functions if following is not None]


def _kept_under(function: Any, name: str) -> Iterator[torch.Tensor | None]:
    try:
        value = getattr(function, name)
    except RuntimeError:  # changed in place since it was kept
        yield None
        return
    for each in value if isinstance(value, (list, tuple)) else (value,):
        if isinstance(each, torch.Tensor):
            yield each


def outer_form(value: VariableTracker, arms: Sequence[ArmTrace]) -> VariableTracker:
    """Return the tensor of the main trace that ``value`` is, where an arm has another name for it.

    ``x += 1`` gives ``x`` a new node in the arm's graph, but leaves it the same object.
    """
    if type(value) is not TensorVariable:
        return value
    for arm in arms:
        if value.as_proxy().node.graph is not arm.graph:
            continue
        for outer in arm.lifted:
            if _example(outer) is example_of(value):
                return value.clone(proxy=outer)
    return value


def write_back(tx: Any, changes: Sequence[InPlace], finals: Sequence[VariableTracker]) -> None:
    """Give each changed tensor its merged contents."""
    _keep_for_backward(tx, changes)
    for change, final in zip(changes, finals, strict=True):
        try:
            if change.in_history:
                _copy(tx, change.outer, final)
            else:
                _copy_without_history(tx, change, final)
        except exc.TorchDynamoException as error:
            # Half of the branch stands in the graph: only tracing again without it helps.
            raise CannotSettle(str(error).strip().splitlines()[0]) from error


def _copy(tx: Any, target: Proxy, final: VariableTracker) -> None:
    arguments = (target, final.as_proxy())
    wrap_fx_proxy(tx, tx.output.create_proxy("call_method", "copy_", arguments, {}))


def _copy_without_history(tx: Any, change: InPlace, final: VariableTracker) -> None:
    gradients = torch.is_grad_enabled()
    target = change.outer
    if gradients:
        _set_grad_enabled(tx, False)
    try:
        if not change.counted:
            data = tx.output.create_proxy(
                "call_function",
                torch._C._autograd._get_data_attr,  # type: ignore[attr-defined]
                (change.outer,),
                {},
            )
            wrap_fx_proxy(tx, data)
            # The graph does not count the change, but what watches the tensor has to notice.
            increment_version(_example(change.outer))
            target = data
        _copy(tx, target, final)
    finally:
        if gradients:
            _set_grad_enabled(tx, True)


def _keep_for_backward(tx: Any, changes: Sequence[InPlace]) -> None:
    """Have what was computed from a tensor kept for backward, not computed again from its new self.

    The partitioner of AOTAutograd takes an argument for something that stays as it is, also one
    that the graph changes (https://github.com/pytorch/pytorch/pull/197039).
    """
    storages = {storage_of(_example(change.outer)) for change in changes}
    if not torch.is_grad_enabled():
        return
    for node in tx.output.graph.nodes:
        reads = any(_storages_of(argument) & storages for argument in node.all_input_nodes)
        if reads and not _storages_of(node) & storages:
            node.meta["recompute"] = CheckpointPolicy.MUST_SAVE


def _set_grad_enabled(tx: Any, enabled: bool) -> None:
    tx.output.create_node("call_function", torch._C._set_grad_enabled, (enabled,), {})
    torch._C._set_grad_enabled(enabled)
