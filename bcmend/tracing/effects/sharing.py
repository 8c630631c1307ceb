"""Which tensors of a trace are one object in eager execution, or share memory there.

A merged tensor is one tensor on one side of a branch and another on the other. The trace knows what
each of them is there, so that a question of identity is answered where both sides agree on the
answer. Where they do not, the merged tensor is given up, and the frame is traced again.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.tracing.effects import memory_form
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.search.assumptions import Finding
from bcmend.tracing.search.falsified import falsify

#: Tensors by the identity of what stands for them in the trace.
Objects = dict[int, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Choice:
    """By which predicate a branch has chosen a tensor, and what that is on either side."""

    predicate: TensorValue
    sides: tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True, eq=False)
class Result:
    """A tensor that a branch or a loop leaves behind.

    Attributes:
        objects: the tensors that it may be in eager execution.
        is_older: whether one of these was there before the branch.
        is_any: whether it may be any tensor, as one that a loop carries may be in an iteration.
        is_read_before: whether an operation of an arm reads one of these, so that gradients reach
            it by another way than through the result.
        finding: that it has to be one object on each side.
        choice: how a branch has chosen it, if both arms have one.
    """

    objects: Objects
    is_older: bool
    is_any: bool
    is_read_before: bool
    finding: Finding
    choice: Choice | None


#: By the identity of what stands for the result in the trace, in the order of the trace.
_RESULTS: Final[Slot[dict[int, Result]]] = Slot(dict, rolls_back=True)


def add_result(
    tx: compat.Tracer,
    example: torch.Tensor,
    sides: Iterable[torch.Tensor],
    finding: Finding,
    *,
    is_older: bool = False,
    is_any: bool = False,
    is_read_before: bool = False,
    choice: Choice | None = None,
) -> None:
    """Note that ``example`` stands for one of ``sides``."""
    objects = {id(example): example}
    for side in sides:
        objects |= _objects(tx, side)
    results = _RESULTS.of(tx.output)
    results.pop(id(example), None)
    results[id(example)] = Result(objects, is_older, is_any, is_read_before, finding, choice)


def _objects(tx: compat.Tracer, example: torch.Tensor) -> Objects:
    known = result_of(tx, example)
    return {id(example): example} if known is None else known.objects


def result_of(tx: compat.Tracer, example: torch.Tensor) -> Result | None:
    """Return the result that ``example`` stands for in the trace, if it does for one."""
    return _RESULTS.of(tx.output).get(id(example))


def is_on_side(tx: compat.Tracer, side: int, result: TensorValue, tensor: TensorValue) -> bool:
    """Return whether a result stands for a tensor that the side of a branch has, by position."""
    example, sought = example_of(result), example_of(tensor)
    known = result_of(tx, example)
    if example is sought or known is None:
        return example is sought
    return known.choice.sides[side] is sought if known.choice else id(sought) in known.objects


def latest(tx: compat.Tracer, one: torch.Tensor, other: torch.Tensor) -> Result | None:
    """Return the later result of two tensors if they are one object on one side of a branch only.

    ``None`` if they are one object, or are none, on all sides.
    """
    results = _RESULTS.of(tx.output).items()
    asked = [result for key, result in results if key in (id(one), id(other))]
    if one is other or not asked:
        return None
    is_met = _objects(tx, one).keys() & _objects(tx, other).keys()
    return asked[-1] if is_met or any(each.is_any for each in asked) else None


def is_result(tx: compat.Tracer, example: torch.Tensor, result: Result) -> bool:
    """Return whether ``example`` stands for ``result`` in the trace."""
    return result_of(tx, example) is result


def require_known(tx: compat.Tracer, one: torch.Tensor, other: torch.Tensor) -> None:
    """Trace the frame again if two tensors are one object on one side of a branch only."""
    if (found := latest(tx, one, other)) is not None:
        falsify(found.finding)


#: Tuples that branches have made of two: each is one of these in eager execution. By identity.
_TUPLES: Final[Slot[dict[int, tuple[Value, Finding]]]] = Slot(dict, rolls_back=True)


def add_tuple(tx: compat.Tracer, finding: Finding, merged: Value) -> None:
    """Note that ``merged`` stands for one of two tuples, which ``finding`` keeps apart."""
    _TUPLES.of(tx.output)[id(merged)] = merged, finding


def require_known_tuples(tx: compat.Tracer, one: Value, other: Value) -> None:
    """Trace the frame again if a merged tuple is asked whether it is another one."""
    known = _TUPLES.of(tx.output)
    found = [known[id(each)][1] for each in (one, other) if id(each) in known]
    if found and one is not other:
        falsify(found[-1])


#: What is found where a truth, computed of who is one object with whom, decides no branch.
_TOLD: Final[Slot[dict[Node, Finding]]] = Slot(dict, rolls_back=True)


def note_told(tx: compat.Tracer, truth: TensorValue, finding: Finding) -> None:
    """Note that ``truth`` tells whether two tensors are one object."""
    _TOLD.of(tx.output)[truth.as_proxy().node] = finding


def require_decided(tx: compat.Tracer, condition: object) -> None:
    """Trace the frame again for a branch without a lowering that asks for such a truth."""
    node = condition.as_proxy().node if isinstance(condition, compat.TensorVariable) else None
    if node in (told := _TOLD.of(tx.output)):
        falsify(told[node])


def require_alone(tx: compat.Tracer, example: torch.Tensor) -> None:
    """Trace the frame again if another tensor may be the same object on one side of a branch."""
    results = _RESULTS.of(tx.output)
    found = results.get(id(example))
    if found is None:
        return
    others = [each.objects.keys() for each in results.values() if each is not found]
    if found.is_older or found.is_any or any(found.objects.keys() & each for each in others):
        falsify(found.finding)


def require_unread(tx: compat.Tracer, example: torch.Tensor) -> None:
    """Trace the frame again unless all gradients of a tensor reach it through its result."""
    found = result_of(tx, example)
    if found is not None and found.is_read_before:
        falsify(found.finding)
    require_alone(tx, example)


#: Tensors that are apart in the graph and share memory in eager execution, by storage.
_RELATED: Final[Slot[dict[int, list[tuple[torch.Tensor, torch.Tensor]]]]] = Slot(
    dict, rolls_back=True
)


def relate(tx: compat.Tracer, one: torch.Tensor, other: torch.Tensor) -> None:
    """Note that two tensors share memory on one side of a branch, and none in the graph."""
    related = _RELATED.of(tx.output)
    related.setdefault(storage_of(one), []).append((one, other))
    related.setdefault(storage_of(other), []).append((other, one))


def related_to(tx: compat.Tracer, example: torch.Tensor) -> list[torch.Tensor]:
    """Return the tensors that share memory with ``example`` on one side of some branch."""
    return [other for _, other in _RELATED.of(tx.output).get(storage_of(example), ())]


def shares(tx: compat.Tracer, one: torch.Tensor, other: torch.Tensor) -> bool:
    """Return whether a change in place of one tensor may change the other in eager execution."""
    if one is other:
        return True
    if storage_of(one) == storage_of(other):
        return memory_form.may_overlap(one, other)
    memory = storage_of(other)
    return any(storage_of(each) == memory for each in related_to(tx, one))
