"""Results of a branch that share memory on one side, and are separate tensors in the graph.

That is harmless as long as none of them is changed in place later, and no two of them leave the
graph: who has both could then change one, or compare them. Else the form of the branch is given up.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.delivery import records
from bcmend.dynamo import compat, snapshots
from bcmend.dynamo.models import containers, objects
from bcmend.dynamo.values import TensorValue, Value, example_of, object_behind
from bcmend.names import BUFFER, NUMBERS
from bcmend.tracing.effects import sharing, watches
from bcmend.tracing.effects.change_counts import changes
from bcmend.tracing.effects.operator_runs import storage_of, storages_of, tensors_of
from bcmend.tracing.gradients import histories
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Edge, Root
from bcmend.tracing.heap.same import is_same
from bcmend.tracing.merging import in_place, one_memory
from bcmend.tracing.merging.merge import Merger, Pair
from bcmend.tracing.merging.one_memory import View, views_among
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.locations import Location
from bcmend.tracing.sites.outlet import OUTLET
from bcmend.tracing.speculation.arms import ArmTrace

#: What is said where both leave.
LEAVE_TOGETHER: Final = "two results leave the call that share memory on one side alone"


def unlike_on_the_sides(
    tx: compat.Tracer, pairs: Sequence[Pair], views: Mapping[int, View], *, by_cond: bool
) -> list[tuple[int, int]]:
    """Return the pairs of results, by position, that share memory on one side alone."""
    base = {at: views[at].base if at in views else at for at in range(len(pairs))}
    found = {
        places
        for side in _sides(pairs)
        for places in _sharing(tx, side)
        # Lowered by where, a result that one arm alone has stays as it is.
        if by_cond or any(len(pairs[at].values) == 2 for at in places)
    }
    return sorted(places for places in found if base[places[0]] != base[places[1]])


def _sides(pairs: Sequence[Pair]) -> Iterator[dict[int, torch.Tensor]]:
    """Yield the results of each side, by position."""
    for side in range(2):
        values = ((at, pair.sides[side]) for at, pair in enumerate(pairs) if not pair.is_number)
        yield {at: example_of(value) for at, value in values if value is not None}


def _sharing(tx: compat.Tracer, side: Mapping[int, torch.Tensor]) -> Iterator[tuple[int, int]]:
    groups: dict[int, list[int]] = {}
    for at, example in side.items():
        for each in (example, *sharing.related_to(tx, example)):
            groups.setdefault(storage_of(each), []).append(at)
    for group in groups.values():
        for one, other in combinations(dict.fromkeys(group), 2):
            if sharing.shares(tx, side[one], side[other]):
                yield one, other


def unlike_tensors(tx: compat.Tracer, pairs: Sequence[Pair]) -> frozenset[int]:
    """Return the tensors of both sides that such results are, by identity."""
    views = views_among(pairs, by_cond=True)
    places = unlike_on_the_sides(tx, pairs, views, by_cond=False)
    return frozenset(
        id(example_of(side))
        for at in {each for place in places for each in place}
        for side in pairs[at].values
    )


def older_tensors(pairs: Sequence[Pair], arms: tuple[ArmTrace, ArmTrace]) -> frozenset[int]:
    """Return the tensors of both sides of which one is older than the branch, by identity."""
    return frozenset(
        id(example_of(side))
        for pair in pairs
        if not pair.is_number and any(_is_older(*side) for side in _made_by(pair, arms))
        for side in pair.values
    )


def watch(
    tx: compat.Tracer,
    places: Sequence[tuple[int, int]],
    pairs: Sequence[Pair],
    merged: Sequence[Value],
    finding: Finding,
) -> None:
    """Watch results that share memory on one side alone.

    One that a branch in an arm has merged, of tensors older than it, is first kept apart there.
    """
    found = {
        result.finding
        for at in {at for each in places for at in each}
        for side in pairs[at].values
        if (result := sharing.result_of(tx, example_of(side))) is not None and result.is_older
    }
    inside = [each for each in found if each.claim is Claim.SHARED]
    examples: dict[int, torch.Tensor] = {at: _example(merged[at]) for each in places for at in each}
    findings = inside or [finding]
    for each in findings:
        for example in examples.values():
            watches.add(tx, example, each)
    relate(tx, [(examples[one], examples[other]) for one, other in places], *findings)


def watch_kept(
    tx: compat.Tracer,
    merger: Merger,
    merged: Sequence[Value],
    finding: Finding,
    *,
    is_split: bool,
) -> None:
    """Watch results that are an older tensor on a side which leaves that elsewhere as well.

    Where ``is_split``, code reads what an earlier branch has left: both of that may be elsewhere.
    """
    places = [
        (_example(result), example_of(value))
        for pair, result in zip(merger.pairs, merged, strict=True)
        for value in (() if pair.is_number or len(pair.values) < len(pair.sides) else pair.sides)
        if id(example_of(value)) in merger.kept or (is_split and not merger.belongs(value))
    ]
    relate(tx, places, finding)


def relate(
    tx: compat.Tracer,
    places: Sequence[tuple[torch.Tensor, torch.Tensor]],
    *findings: Finding,
) -> None:
    """Note that pairs of tensors share memory in eager, and watch whether both of one leave."""
    for each in places:
        sharing.relate(tx, *each)
    pairs = [frozenset(map(storage_of, each)) for each in places]

    def do_leave() -> bool:
        left = leaving(tx)
        return any(each <= left for each in pairs)

    if pairs:
        for finding in findings:
            watches.add_question(tx, do_leave, watches.as_of(finding, LEAVE_TOGETHER))


def watch_older(
    tx: compat.Tracer,
    result: torch.Tensor,
    older: Sequence[torch.Tensor],
    finding: Finding,
    nodes_before: Collection[Node],
) -> None:
    """Watch a result that is one of ``older`` tensors on a side, and is separate in the graph.

    They must not change later. The result may if no one has the older ones any more: what eager
    execution would write to their memory is read by the name of the result alone. Eager execution
    writes to no tensor that overlaps itself, and autograd not to every view.
    ``nodes_before`` are the nodes in front of the branch.
    """
    for each in older:
        watches.add(tx, each, finding)
    if nesting_limits.is_in_an_arm(tx) or not all(
        map(compat.is_non_overlapping_and_dense_or_false, older)
    ):
        watches.add(tx, result, finding)
        return
    before, nodes = changes(result), frozenset(tx.output.graph.nodes)
    memory = {storage_of(each) for one in older for each in (one, *sharing.related_to(tx, one))} - {
        storage_of(result)
    }

    def is_seen() -> bool:
        if changes(result) == before:
            return False
        fails = result.requires_grad and not all(map(one_memory.may_be_changed, older))
        return fails or _is_had(tx, memory, nodes, nodes_before)

    watches.add_question(tx, is_seen, watches.as_of(finding, "its memory is written"))


def _is_had(
    tx: compat.Tracer, memory: set[int], seen: Collection[Node], before: Collection[Node]
) -> bool:
    """Return whether memory outlives the graph, or is read behind the nodes ``seen``.

    Also by the backward of what leaves the graph, where a node in front of the branch has kept it.
    """
    nodes = list(tx.output.graph.nodes)
    outer = [node for node in nodes if node.op in ("placeholder", "get_attr")]
    later = (each for node in nodes if node not in seen for each in node.all_input_nodes)
    if any(not memory.isdisjoint(storages_of(node)) for node in later):
        return True
    left = [*_leaving(tx), *(each for node in outer for each in tensors_of(node))]
    if not memory.isdisjoint(map(storage_of, left)) or in_place.operator_given(before, memory):
        return True
    earlier = histories.functions_behind(
        each.grad_fn for node in before for each in tensors_of(node)
    )
    kept = histories.saved_by(earlier & histories.functions_behind(each.grad_fn for each in left))
    return any(saved is None or storage_of(saved) in memory for saved in kept)


def note_objects(
    tx: compat.Tracer,
    pairs: Sequence[Pair],
    merged: Sequence[Value],
    arms: tuple[ArmTrace, ArmTrace],
    predicate: TensorValue,
    finding: Finding,
) -> None:
    """Note which tensor each result is on either side of the branch that ``predicate`` decides."""
    for pair, result in zip(pairs, merged, strict=True):
        if pair.is_number:
            continue
        sides = _made_by(pair, arms)
        examples = [example_of(value) for value, _ in sides]
        has_both = len(examples) == len(arms)
        sharing.add_result(
            tx,
            _example(result),
            examples,
            finding,
            is_older=any(_is_older(value, arm) for value, arm in sides),
            is_read_before=any(value.as_proxy().node.users for value, _ in sides),
            choice=sharing.Choice(predicate, (examples[0], examples[1])) if has_both else None,
        )


def _made_by(pair: Pair, arms: tuple[ArmTrace, ArmTrace]) -> list[tuple[TensorValue, ArmTrace]]:
    """Return what a pair is on each side that has it, with the arm of that side."""
    sides = zip(pair.sides, arms, strict=True)
    return [(value, arm) for value, arm in sides if value is not None]


def _is_older(value: TensorValue, arm: ArmTrace) -> bool:
    """Return whether a result is a tensor from before the branch, by whatever name."""
    example = example_of(value)
    lifted = (outer.node.meta.get("example_value") for outer in arm.lifted)
    return value.as_proxy().node.graph is not arm.graph or any(each is example for each in lifted)


def _example(value: Value) -> torch.Tensor:
    assert isinstance(value, compat.TensorVariable)
    return example_of(value)


def leaving(tx: compat.Tracer) -> set[int]:
    """Return the storages of tensors that the frame hands out when it ends."""
    return set(map(storage_of, _leaving(tx)))


def _leaving(tx: compat.Tracer) -> list[torch.Tensor]:
    found: list[torch.Tensor] = []

    def note(variable: Value) -> None:
        if isinstance(variable, compat.TensorVariable):
            found.append(example_of(variable))

    effects = tx.output.side_effects
    snapshots.visit(note, [edge.value for edge in _handed_out(tx)], effects, lazily=True)
    return found


def _handed_out(tx: compat.Tracer) -> Iterator[Edge]:
    """Yield what is on the stack, in locals that are still read, and stored to what was there.

    Of a container from before the call and of a record each item is one, of that owner.
    """
    for edge in roots.edges(tx):
        if edge.root is Root.STORED and object_behind(edge.owner) is OUTLET:
            yield from _stored_by_records(edge.value)
        elif edge.root is Root.BEFORE:
            held = _stored_by_records if edge.is_of_records else _held_by
            yield from held(edge.value)
        elif not _ends_with_the_frame(tx, edge):
            yield edge


def _ends_with_the_frame(tx: compat.Tracer, edge: Edge) -> bool:
    """Return whether a root is of the trace alone, or of an object that is found if it leaves."""
    if edge.root is Root.STORED:
        return isinstance(edge.owner.mutation_type, compat.AttributeMutationNew)
    is_passed_on = edge.root is Root.LOCAL and edge.key in (BUFFER, NUMBERS)
    return is_passed_on or (edge.root in roots.OF_FRAMES and edge.owner is not tx.output.root_tx)


def _held_by(container: Value) -> Iterator[Edge]:
    """Yield what a container from before the call holds."""
    if not isinstance(container.mutation_type, compat.ValueMutationExisting):
        return  # what is stored to it is an edge of its own
    if type(container) in (compat.ConstDictVariable, compat.ListVariable):
        items = containers.by_key(vars(container)["items"])
        yield from (Edge(Root.BEFORE, container, key, each) for key, each in items.items())
    else:
        yield Edge(Root.BEFORE, container, None, container)


def _stored_by_records(buffer: Any) -> Iterator[Edge]:
    """Yield what records are given that store something; the others show it, and are done."""
    for record in buffer.items:
        *_, action, inputs = record.items
        function = _function_behind(action)
        if function is not records.show_as_of and _is_of_records(function):
            yield Edge(Root.RECORD, None, function, inputs)


#: Actions that put an older object in the place of a merged one.
_WRITE_BACK: Final = (records.write_back_attribute, records.write_back_item)


def watch_leaving(tx: compat.Tracer, example: torch.Tensor, finding: Finding) -> None:
    """Watch whether a tensor leaves."""
    memory = storage_of(example)
    evidence = watches.as_of(finding, "an older array leaves the call")
    watches.add_question(tx, lambda: memory in leaving(tx), evidence)


def watch_written_back(
    tx: compat.Tracer, written: Sequence[tuple[Location, Value]], finding: Finding
) -> None:
    """Watch merged values in whose places records put an older object, if that is what was taken.

    Another place that has the merged one would not have that object.
    """
    for location, value in written:

        def is_left_elsewhere(location: Location = location, value: Value = value) -> bool:
            return _is_left_elsewhere(tx, location, value)

        watches.add_question(
            tx, is_left_elsewhere, watches.as_of(finding, "an older result leaves the call twice")
        )


def _is_left_elsewhere(tx: compat.Tracer, location: Location, value: Value) -> bool:

    def is_it(variable: Value) -> bool:
        is_tensor = isinstance(variable, compat.TensorVariable)
        return variable is value or (is_tensor and is_same(variable, value))

    elsewhere = [
        edge.value
        for edge in _handed_out(tx)
        if not (edge.root is Root.RECORD and edge.key in _WRITE_BACK)
        and (edge.owner, edge.key) != (location.owner, location.key)
    ]
    return roots.reach(elsewhere, is_it, tx.output.side_effects, lazily=True)


def _function_behind(action: Value) -> Any:
    """Return the function that a record calls, which Dynamo need not have looked at yet."""
    if action.is_realized():
        return object_behind(action.realize(), "fn")
    return objects.original_value(action)


def _is_of_records(function: Any) -> bool:
    return getattr(function, "__module__", "") == records.__name__
