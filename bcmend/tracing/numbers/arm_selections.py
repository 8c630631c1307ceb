"""What masks select in an arm: ``if keep.any(): boxes, scores = boxes[keep], scores[keep]``.

The data decide how many rows an arm leaves, and no choice is made between tensors of two sizes. So
where an arm is not taken, its masks select everything: ``keep | ~taken``. What it leaves has as
many rows then as what the mask selects from, and the same mask gives the other side that size:

    chosen = torch.where(taken, boxes[keep | ~taken], boxes_else[keep | ~taken])

If the arm is taken, that is what it has selected. If not, it is the other side, whole.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

import sympy
import torch
from torch.fx import Node, Proxy

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.shape_env import symbols_in
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, example_of, fake_mode_of
from bcmend.tracing.numbers import predicates
from bcmend.tracing.programs import arm_conditions
from bcmend.tracing.programs.arm_conditions import ArmCondition
from bcmend.tracing.sites.site_table import LiveSite


@dataclass(frozen=True, slots=True, eq=False)
class Selection:
    """A mask that selects in arms, and the conditions of these, the outermost first.

    ``mask`` is of one size, and selects all where an arm is not taken whose condition has a
    predicate: it is complete there.
    """

    mask: TensorValue
    conditions: tuple[ArmCondition, ...]

    @property
    def complete(self) -> list[LiveSite]:
        """The sites of the arms for which the mask is complete."""
        return [each.site for each in self.conditions if each.predicate is not None]

    @property
    def incomplete(self) -> list[LiveSite]:
        return [each.site for each in self.conditions if each.predicate is None]


@dataclass(frozen=True, slots=True, eq=False)
class Selected:
    """What gives one side of a pair the size of the other.

    Attributes:
        mask: as in ``Selection``, in the graph of the arm.
        at: the dimension in which it selects.
        then_side: whether the arm is the one that is taken if the condition holds.
    """

    mask: TensorValue
    at: int
    then_side: bool

    def of(self, tx: compat.Tracer, mask: Any, other: Any) -> TensorValue:
        """Write what the mask, in the graph that is being written, selects of the other side."""
        key = (*[slice(None)] * self.at, mask)
        found = fx_graph.function(tx, operator.getitem, other, key)
        found.as_proxy().node.meta[meta_keys.SELECTS_ALL] = True
        return found


@dataclass(slots=True)
class _Known:
    """The selections of a trace by the symbols of their sizes, and the masks that were completed.

    A mask is known by its node, the version of its memory, and the graph that is being written.
    """

    selections: dict[Any, Selection] = field(default_factory=dict)
    masks: dict[tuple[int, int, int], tuple[TensorValue, TensorValue]] = field(default_factory=dict)


_KNOWN: Final[Slot[_Known]] = Slot(_Known, rolls_back=False)


def selection_by(tx: compat.Tracer, value: Value) -> Selection | None:
    """Return how a mask is to select in an arm; ``None`` outside of one, and for what is none."""
    conditions = tuple(arm_conditions.around(tx) or ())
    mask = value.realize()
    if not conditions or not _is_mask(mask):
        return None
    return Selection(_completed(tx, mask, conditions), conditions)


def read(tx: compat.Tracer, key: Value) -> tuple[Value, Selection | None]:
    """Return the key by which an arm selects of a tensor, and its mask; ``None`` without one."""
    items = key.items if type(key) is compat.TupleVariable else [key]
    masks = [each for each in items if _is_mask(each.realize())]
    found = selection_by(tx, masks[0]) if len(masks) == 1 else None
    if found is None or found.mask is masks[0].realize():
        return key, found
    if key is masks[0]:
        return found.mask, found
    return compat.TupleVariable([found.mask if each in masks else each for each in items]), found


def _is_mask(value: Any) -> bool:
    return (
        type(value) is compat.TensorVariable
        and example_of(value).dtype is torch.bool
        and example_of(value).dim() == 1
    )


def _completed(tx: compat.Tracer, mask: Any, conditions: tuple[ArmCondition, ...]) -> TensorValue:
    """Return a mask that selects all where an arm is not taken of which that is known to matter."""
    missing = [each for each in conditions if each.predicate is not None]
    if not missing:
        return mask  # type: ignore[no-any-return]
    graph, masks = tx.output.current_tracer.graph, _KNOWN.of(tx.output).masks
    if any(found.as_proxy().node is mask.as_proxy().node for _, found in masks.values()):
        return mask  # type: ignore[no-any-return]
    key = id(mask.as_proxy().node), example_of(mask)._version, id(graph)
    if key not in masks:
        found = mask
        for each in missing:
            taken = _on_the_device_of(tx, each.predicate, mask)
            untaken = predicates.negated(tx, taken) if each.truth else taken
            found = predicates.either(tx, found, untaken)
        masks[key] = mask, found
    return masks[key][1]


def _on_the_device_of(tx: compat.Tracer, predicate: Any, mask: TensorValue) -> TensorValue:
    """Return a condition beside a mask; one on the CPU is taken anywhere."""
    device = example_of(mask).device
    if example_of(predicate).device in (device, torch.device("cpu")):
        return predicate  # type: ignore[no-any-return]
    return fx_graph.method(tx, "to", predicate, device=device)


def key_for(tx: compat.Tracer, key: Value, value: Value) -> Value:
    """Return the key by which an arm stores what it has selected, or something computed of that."""
    if not isinstance(value, compat.TensorVariable):
        return key
    selections = _KNOWN.of(tx.output).selections
    found = [selections.get(each) for each in symbols_in([example_of(value).shape])]
    is_complete = any(each is not None and each.complete for each in found)
    return read(tx, key)[0] if is_complete else key


def note(tx: compat.Tracer, tensor: Value, selection: Selection, result: Value) -> None:
    """Note the size of what a mask has selected of a tensor in an arm."""
    if not isinstance(result, compat.TensorVariable):
        return
    given = symbols_in([example_of(tensor).shape])  # type: ignore[arg-type]
    fresh = symbols_in([example_of(result).shape]) - given
    if len(fresh) == 1:
        _KNOWN.of(tx.output).selections[fresh.pop()] = selection
        if selection.complete:
            result.as_proxy().node.meta[meta_keys.SELECTS_ALL] = True


def move(tx: compat.Tracer, *arms: Mapping[Node, Proxy]) -> None:
    """Have masks in the graphs of arms be what they have become in the graph around them."""
    selections = _KNOWN.of(tx.output).selections
    for symbol, each in selections.items():
        node = each.mask.as_proxy().node
        for values in arms:
            if node in values:
                selections[symbol] = replace(each, mask=fx_graph.variable_of(tx, values[node]))


def are_made_in(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether an arm of a site has selected by a mask that is not complete there."""
    return any(site in each.incomplete for each in _KNOWN.of(tx.output).selections.values())


def between(
    tx: compat.Tracer, site: LiveSite, one: TensorValue, other: TensorValue
) -> tuple[Selected, torch.Tensor, torch.Tensor] | None:
    """Return what gives both sides of a branch one size, and stand-ins for both; ``None`` without.

    One is what an arm of the branch has selected, the other as large as what it selected from.
    """
    for sides, then_side in (((one, other), True), ((other, one), False)):
        selected, whole = map(example_of, sides)
        at = _dimension_that_differs(selected, whole)
        size: Any = None if at is None else selected.shape[at]
        if at is None or not isinstance(size, torch.SymInt):
            continue
        selection = _KNOWN.of(tx.output).selections.get(size.node.expr)
        if selection is None or site not in selection.complete:
            continue
        mask = example_of(selection.mask)
        if not compat.statically_known_true(mask.shape[0] == whole.shape[at]):
            continue
        environment = tx.output.shape_env
        ignoring: Any = environment.ignore_fresh_unbacked_symbols()
        everything: Any = [slice(None)] * at
        with fake_mode_of(tx), ignoring:
            cut = whole[(*everything, mask)]
        if not compat.statically_known_true(cut.shape[at] == size):
            continue
        if not _are_strides_of(selected, size, whole, at):
            continue
        found = Selected(selection.mask, at, then_side)
        return (found, selected, cut) if then_side else (found, cut, selected)
    return None


def _are_strides_of(
    selected: torch.Tensor, size: torch.SymInt, whole: torch.Tensor, at: int
) -> bool:
    """Return whether what is selected has the strides of the whole where it is all of it."""
    all_of_it = {size.node.expr: _expression(whole.shape[at])}
    return all(
        _expression(stride).xreplace(all_of_it) == _expression(of_whole)
        for stride, of_whole in zip(selected.stride(), whole.stride(), strict=True)
    )


def _expression(number: Any) -> Any:
    is_known = isinstance(number, int)
    return sympy.Integer(number) if is_known else number.node.shape_env.simplify(number.node.expr)


def _dimension_that_differs(one: torch.Tensor, other: torch.Tensor) -> int | None:
    if one.dim() != other.dim() or one.layout is not torch.strided:
        return None
    sizes = zip(one.shape, other.shape, strict=True)
    unlike = [
        at
        for at, (size, another) in enumerate(sizes)
        if not compat.statically_known_true(size == another)
    ]
    return unlike[0] if len(unlike) == 1 else None
