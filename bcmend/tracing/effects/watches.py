"""Watches over what must not be changed later in the same trace.

When the graph is complete, a tensor's count of in-place changes is compared with the count that the
watch noted; for an object, Dynamo's record of stored attributes. Where one differs, the watch's
finding is made, and the frame is traced again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.dynamo.models import constants
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import Value
from bcmend.tracing.effects import random_draws
from bcmend.tracing.effects.change_counts import changes
from bcmend.tracing.effects.operator_runs import facts_of_node, is_in_place, target_name
from bcmend.tracing.search.assumptions import Finding
from bcmend.tracing.search.falsified import falsify

#: Asked of the complete trace: what it has falsified.
Watch = Callable[[], Sequence[Finding]]

_WATCHES: Final[Slot[list[Watch]]] = Slot(list, rolls_back=True)


def add(tx: compat.Tracer, example: torch.Tensor, finding: Finding) -> None:
    """Watch ``example``: if its contents change, that is the finding."""
    before = changes(example)
    add_question(tx, lambda: changes(example) != before, as_of(finding, "its memory is written"))


def as_of(finding: Finding, evidence: str) -> Finding:
    """Return a finding with what has shown it, if nothing is said of that yet."""
    return finding if finding.evidence else replace(finding, evidence=evidence)


def add_object(tx: compat.Tracer, value: Value, finding: Finding) -> None:
    """Watch an object: if something is stored to it, that is the finding."""
    effects = tx.output.side_effects

    def stored() -> dict[str, int]:
        found = effects.store_attr_mutations.get(value, {})
        return {name: id(each) for name, each in found.items()}

    before = stored()
    add_question(tx, lambda: stored() != before, as_of(finding, "an attribute is stored"))


def add_hidden(tx: compat.Tracer, findings: Callable[[str], Sequence[Finding]]) -> None:
    """Watch for operators with a state of their own: the first behind here makes ``findings``."""
    output = tx.output
    before = set(_hidden_in(output))

    def found() -> Sequence[Finding]:
        later = [node for node in _hidden_in(output) if node not in before]
        return findings(target_name(later[0])) if later else ()

    _add(tx, found)


#: Whether nodes have a state of their own; asked at every branch of all nodes so far.
_IS_HIDDEN: Final[Slot[dict[Node, bool]]] = Slot(dict, rolls_back=False)


def _hidden_in(output: compat.OutputGraph) -> list[Node]:
    known, nodes = _IS_HIDDEN.of(output), random_draws.nodes_of(output)
    for node in nodes:
        if node not in known:
            known[node] = facts_of_node(node).has_hidden_state
    return [node for node in nodes if known[node]]


def add_question(tx: compat.Tracer, is_harmful: Callable[[], bool], finding: Finding) -> None:
    """Ask something of the complete trace; if it is so, that is the finding."""
    _add(tx, lambda: [finding] if is_harmful() else ())


def _add(tx: compat.Tracer, watch: Watch) -> None:
    watches = _WATCHES.of(tx.output)
    if not watches:
        at_the_end(tx.output, Phase.CHECK, lambda module: _check(watches))
    watches.append(watch)


def _check(watches: list[Watch]) -> None:
    findings = [finding for watch in watches for finding in watch()]
    if findings:
        falsify(*findings)


def compute_the_same(one: Value | None, other: Value) -> bool:
    """Return whether two values are one, or made by the same operators of the same."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, compat.ConstantVariable):
        return constants.are_same(one, other)
    if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
        return _is_same_node(one.as_proxy().node, other.as_proxy().node)
    if isinstance(one, compat.TupleVariable) and isinstance(other, compat.TupleVariable):
        return len(one.items) == len(other.items) and all(
            map(compute_the_same, one.items, other.items)
        )
    return False


def _is_same_node(one: Any, other: Any) -> bool:
    """Return whether two nodes compute the same of the same: a constructor may be traced twice."""
    if not isinstance(one, Node) or not isinstance(other, Node):
        return constants.are_one(one, other)
    one, other = _before_gates(one), _before_gates(other)
    if one is other:
        return True
    if one.op == other.op == "placeholder":  # of an arm, and of the graph around it
        return one.meta.get("example_value", one) is other.meta.get("example_value", other)
    if one.op not in ("call_function", "call_method") or one.op != other.op:
        return False
    if one.target != other.target or random_draws.may_draw(one) or is_in_place(one):
        return False
    pairs = zip(one.args, other.args, strict=False)
    has_same_form = len(one.args) == len(other.args) and not one.kwargs and not other.kwargs
    return has_same_form and all(_is_same_node(*each) for each in pairs)


def _before_gates(node: Node) -> Node:
    """Return what a gradient mask, ``torch.where(p, x, x.detach())``, has the values of."""
    while node.target is torch.where and len(node.args) == 3:
        _, value, other = node.args
        is_gate = isinstance(other, Node) and other.target == "detach" and other.args[0] is value
        if not isinstance(value, Node) or not is_gate:
            break
        node = value
    return node
