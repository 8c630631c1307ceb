"""What speculation of the operations of a traced arm would risk.

Runs the FX nodes of an arm on fake tensors, looks up each ATen operator that they call, and sums
up: may one fail on the data, draw random numbers, cost much, and which memory do they write to. An
operator that no table knows to be harmless is taken to be able to fail.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import reduce
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend import meta_keys
from bcmend.dynamo import compat, plain_python, shape_env
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.effects import costs, known_places
from bcmend.tracing.effects.operator_runs import (
    OperatorCall,
    OperatorRun,
    facts_of_node,
    is_in_place,
    operators_of,
    target_name,
)
from bcmend.tracing.effects.random_draws import drawing_inside, hidden_in, may_draw

#: Calls that change the meaning of later operators; none may be run a second time.
AUTOCAST: Final = frozenset([compat._enter_autocast, compat._exit_autocast])
#: More operators are expensive, however cheap each is.
MANY_OPERATORS: Final = 128


@dataclass(frozen=True, slots=True)
class Hazards:
    """What speculation of an arm would risk.

    Attributes:
        partial: name of an operator that may fail on the data; empty if none.
        random: name of an operator that draws random numbers; empty if none.
        hidden: name of an operator that may have a state of its own; empty if none.
        expensive: name of an expensive operator; empty if none.
        operators: how many ATen operators the arm consists of.
        waste: seconds that the expensive operators take; infinite where a decision is free.
        writes: the storages that are written to, by ``storage_of``.
        reshapes: the storages of tensors that get other sizes, strides or memory in place.
    """

    partial: str = ""
    random: str = ""
    hidden: str = ""
    expensive: str = ""
    operators: int = 0
    waste: float = 0.0
    writes: frozenset[int] = frozenset()
    reshapes: frozenset[int] = frozenset()

    def and_then(self, other: Hazards) -> Hazards:
        return Hazards(
            self.partial or other.partial,
            self.random or other.random,
            self.hidden or other.hidden,
            self.expensive or other.expensive,
            self.operators + other.operators,
            self.waste + other.waste,
            self.writes | other.writes,
            self.reshapes | other.reshapes,
        )


def hazards_of(
    nodes: Iterable[Node],
    fake_mode: Any,
    modules: Mapping[str, Any] = MappingProxyType({}),
    asserted: Iterable[Any] = (),
) -> Hazards:
    """Return what speculation of ``nodes`` would risk. The result is stored in a node's ``meta``.

    ``modules`` are the graphs that operators among the nodes take as arguments, by name;
    ``asserted`` is what the graph asserts of numbers if the nodes are speculated.
    """
    depth = plain_python.depth_of_transforms()
    try:
        return _hazards_of_all(nodes, fake_mode, modules, asserted)
    finally:
        # The nodes may enter a transform without leaving it, or one of them has failed in it.
        plain_python.leave_transforms(depth)


def _hazards_of_all(
    nodes: Iterable[Node], fake_mode: Any, modules: Mapping[str, Any], asserted: Iterable[Any]
) -> Hazards:
    found = Hazards()
    granted = frozenset(compat.canonicalize_bool_expr(each.expr) for each in asserted)
    for node in nodes:
        if node.op in ("placeholder", "output", "get_attr") or node.target in AUTOCAST:
            continue
        if meta_keys.HOLDS in node.meta:
            continue
        if meta_keys.HAZARDS not in node.meta or is_in_place(
            node
        ):  # what it writes to depends on the trace
            node.meta[meta_keys.HAZARDS] = _hazards_of_node(node, fake_mode, modules, granted)
        found = found.and_then(node.meta[meta_keys.HAZARDS])
    if found.operators > MANY_OPERATORS:
        expensive = found.expensive or f"{found.operators} operators"
        found = replace(found, expensive=expensive, waste=math.inf)
    return found


def _hazards_of_node(
    node: Node, fake_mode: Any, modules: Mapping[str, Any], granted: frozenset[Any]
) -> Hazards:
    run = operators_of(node, fake_mode)
    if run is None:
        name = target_name(node)
        random = name if may_draw(node) else drawing_inside(node, modules)
        hidden = hidden_in(node, modules)
        return Hazards(partial=name, random=random, hidden=hidden, expensive=name, waste=math.inf)
    is_partial = facts_of_node(node).is_partial or run.asserts or _may_fail_on_numbers(node)
    found = Hazards(
        partial=target_name(node) if is_partial else "",
        writes=frozenset(run.storages_written(reshaped=False)),
        reshapes=frozenset(run.storages_written(reshaped=True)),
    )
    ends = known_places.places_given(node, run, fake_mode) if _indexes(run) else {}
    calls = (_hazards_of_call(call, granted, ends) for call in run.calls)
    found = reduce(Hazards.and_then, calls, found)
    is_whole = meta_keys.SELECTS_ALL in node.meta and only_selects(node, fake_mode)
    return replace(found, partial="") if is_whole else found


def _indexes(run: OperatorRun) -> bool:
    return any(call.operator.overloadpacket in known_places.BY_PLACES for call in run.calls)


def _hazards_of_call(
    call: OperatorCall, granted: frozenset[Any], ends: known_places.Ends
) -> Hazards:
    name = call.operator.overloadpacket.__name__
    facts = effects.facts_of_target(call.operator)
    return Hazards(
        partial="" if _is_total(call, facts, granted, ends) else name,
        random=name if call.draws else "",
        hidden=name if facts.has_hidden_state else "",
        expensive=name if facts.is_expensive else "",
        operators=1,
        waste=costs.seconds_of(call) if facts.is_expensive else 0.0,
    )


#: Arithmetic on numbers taken out of tensors that never raises; ``int(nan)`` and ``1 / 0`` do.
_TOTAL_ON_NUMBERS: Final = (
    *(op.add, op.sub, op.mul, op.neg, op.not_, op.and_, op.or_),
    *(op.gt, op.ge, op.lt, op.le, op.eq, op.ne),
    *(torch.sym_not, torch.sym_float, torch.sym_ite, torch.sym_max, torch.sym_min),
    torch.scalar_tensor,
)
#: Those that raise where the second number is zero, and nowhere else.
_DIVISIONS: Final = (*(op.truediv, op.itruediv, op.floordiv, op.ifloordiv, op.mod, op.imod),)


def _may_fail_on_numbers(node: Node) -> bool:
    """Return whether unbacked numbers that a node computes with may make it raise."""
    if node.op != "call_function" or node.target in _TOTAL_ON_NUMBERS:
        return False
    if node.target in _DIVISIONS and type(node.args[1]) in (int, float) and node.args[1]:
        return False
    examples = [each.meta.get("example_value") for each in node.all_input_nodes]
    return not any(isinstance(each, torch.Tensor) for each in examples) and any(
        isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool))
        and compat.free_unbacked_symbols(each)
        for each in examples
    )


_OF_ONE_NODE: Final = (meta_keys.HAZARDS, meta_keys.FILLINGS, meta_keys.DRAWS_AS)


def unjudged(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta of a node for another node, without the hazards of this one."""
    return {name: value for name, value in meta.items() if name not in _OF_ONE_NODE}


def _is_total(
    call: OperatorCall,
    facts: EffectFacts,
    granted: frozenset[Any],
    ends: known_places.Ends = MappingProxyType({}),
) -> bool:
    operator, result = call.operator, call.result
    is_tensor = isinstance(result, torch.Tensor)
    if facts.divides and not (is_tensor and (result.is_floating_point() or result.is_complex())):
        return False
    if operator.overloadpacket is torch.ops.aten.select:
        return _is_in_bounds(call.arguments, granted)
    if operator.overloadpacket.__name__ in _FAIL_IF_EMPTY and _may_be_empty(call):
        return False
    is_known = facts.is_total or _fills_under_a_mask(call)
    return is_known or known_places.is_index_in_range(call, ends)


#: Reductions that fail, or warn, where there is nothing to reduce. Code that Inductor makes of them
#: does not, and reads an item that is not there in the backward.
_FAIL_IF_EMPTY: Final = effects.FAIL_IF_EMPTY.union(
    "aminmax linalg_vector_norm std std_mean var var_mean".split()
)


def _may_be_empty(call: OperatorCall) -> bool:
    """Return whether the data decide that a reduction has nothing to reduce."""
    tensor, *given = call.arguments
    if call.operator.overloadpacket is torch.ops.aten.linalg_vector_norm:
        order, *given = given or [2]
        if 0 <= order < math.inf:
            return False  # the norm of nothing is 0
    if any(isinstance(each, torch.Tensor) for each in given):
        return False  # the larger of two, number by number
    dims = given[0] if given and isinstance(given[0], (int, list, tuple)) else []
    reduced = [dims] if isinstance(dims, int) else [*dims] or range(tensor.dim())
    sizes = [size for size in map(tensor.size, reduced) if shape_env.symbols_in(size)]
    if not sizes:
        return False
    with shape_env.without_facts(tensor.fake_mode.shape_env):
        return not all(compat.statically_known_true(size > 0) for size in sizes)


def _fills_under_a_mask(call: OperatorCall) -> bool:
    """Return whether one value is stored wherever a mask holds, as by ``x[x < 0] = 0``.

    Whether the mask fits is known from the sizes.
    """
    if call.operator.overloadpacket not in _STORES:
        return False
    tensor, indices, value, *accumulates = call.arguments
    if len(indices) != 1 or indices[0] is None or indices[0].dtype is not torch.bool:
        return False
    if any(accumulates):
        return False  # an error where the value lies in the memory that is written to
    return compat.statically_known_true(value.numel() == 1) and _fits(tensor, indices[0])


def only_selects(node: Node, fake_mode: Any) -> bool:
    """Return whether all that may fail is to have memory for the items that a mask selects."""
    run = operators_of(node, fake_mode)
    if run is None or run.asserts or facts_of_node(node).is_partial or _may_fail_on_numbers(node):
        return False
    return all(
        _is_total(call, effects.facts_of_target(call.operator), frozenset()) or _selects(call)
        for call in run.calls
    )


def _selects(call: OperatorCall) -> bool:
    """Return whether what is selected has a size that depends on data, and fits in any case."""
    packet = call.operator.overloadpacket
    if packet is torch.ops.aten.nonzero:
        return True
    if packet not in (torch.ops.aten.index, torch.ops.aten.masked_select):
        return False
    tensor, given = call.arguments
    *whole, mask = [given] if isinstance(given, torch.Tensor) else given
    if any(each is not None for each in whole) or mask is None or mask.dtype is not torch.bool:
        return False
    return len(whole) + mask.dim() <= tensor.dim() and _fits(tensor, mask, len(whole))


def _fits(tensor: torch.Tensor, mask: torch.Tensor, at: int = 0) -> bool:
    """Return whether a mask is known to have the sizes of a tensor from a dimension on."""
    sizes = zip(tensor.shape[at:], mask.shape, strict=False)
    return all(compat.statically_known_true(size == of_mask) for size, of_mask in sizes)


_STORES: Final = (torch.ops.aten.index_put, torch.ops.aten.index_put_)


def _is_in_bounds(arguments: tuple[Any, ...], granted: frozenset[Any]) -> bool:
    """Return whether ``select`` is known, or asserted, to be within bounds."""
    tensor, dimension, place = arguments
    size = tensor.shape[dimension]
    return all(
        compat.statically_known_true(each)
        or (
            isinstance(each, torch.SymBool)
            and compat.canonicalize_bool_expr(each.node.expr) in granted
        )
        for each in (place >= -size, place < size)
    )
