"""Sides of choices and loops in a graph that nobody compiles: they run like any other code.

Autograd's kernels of the operators trace both sides and their backward anew at each call. A back
end that compiles them never comes to those kernels with numbers; one that does not, such as
"eager", needs no graph of the backward: autograd follows what was computed.

Works round ``CondAutogradOp.backward`` (torch/_higher_order_ops/cond.py), which makes graphs of the
backward of both sides at each call, and the same of ``WhileLoopAutogradOp``. Reproduced on torch
2.13.0; ``tests/tracing/backends/test_faults_of_torch.py`` fails when it is gone.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Hashable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import GraphModule, Node

from bcmend import meta_keys
from bcmend.dynamo import compat, hooks
from bcmend.tracing.backends import traced_choices


@dataclass(slots=True, eq=False)
class _Side:
    """A graph of ours: what it does, and what is run for it once that was asked for.

    Keys of caches hold what it pickles to, which is nothing: they have the text of the graph.
    """

    structure: Hashable
    plain: GraphModule | None = None

    def __deepcopy__(self, memo: object) -> _Side:
        return _Side(self.structure)

    def __reduce__(self) -> tuple[Callable[[], _Side], tuple[()]]:
        return _unknown_side, ()


def _unknown_side() -> _Side:
    """Return a side that does what no other one does, as far as is known."""
    return _Side(object())


def mark_side(module: GraphModule, structure: Hashable) -> None:
    """Note that a graph is a side of an operator of ours."""
    module.meta[meta_keys.SIDE] = _Side(structure)


def mark_form(node: Node) -> Node:
    """Note that a node, with others in a row, gives a value in a form that only backward needs."""
    node.meta[meta_keys.FORM] = True
    return node


def _plain(module: GraphModule) -> GraphModule:
    """Return a side without what only the operator's backward needs; made once."""
    side: _Side = module.meta[meta_keys.SIDE]
    if side.plain is None:
        graph = copy.deepcopy(module.graph)
        for node in list(graph.nodes):
            if meta_keys.FORM in node.meta:
                node.replace_all_uses_with(node.args[0])
                graph.erase_node(node)
        side.plain = GraphModule(module, graph)
    return side.plain


def _is_ours(graph: Any) -> bool:
    return isinstance(graph, GraphModule) and meta_keys.SIDE in graph.meta


def has_only_ours(module: GraphModule) -> bool:
    """Return whether there are graphs in a graph, and all of them are sides of ours."""
    inside = [each for each in module.modules() if each is not module]
    graphs = [each for each in inside if isinstance(each, GraphModule)]
    return bool(graphs) and all(map(_is_ours, graphs))


def _can_run(graph: Any, tensors: Sequence[Any]) -> bool:
    """Return whether a graph is one of ours, and nothing but its numbers is asked for."""
    return (
        _is_ours(graph)
        and compat._get_current_dispatch_mode() is None
        and compat.peek_interpreter_stack() is None
        and all(
            type(each) in (torch.Tensor, torch.nn.Parameter)
            for each in tensors
            if isinstance(each, torch.Tensor)
        )
    )


@hooks.kernel(torch.ops.higher_order.cond, "the side that was taken, run by back ends like eager")
def _choose(
    inner: Callable[..., Any], predicate: Any, true: Any, false: Any, operands: Sequence[Any]
) -> Any:
    if _can_run(true, (predicate, *operands)):
        return _plain(true if predicate else false).forward(*operands)
    if not (_is_ours(true) and _is_ours(false)):
        return inner(predicate, true, false, operands)
    structure = tuple(each.meta[meta_keys.SIDE].structure for each in (true, false))
    known = traced_choices.known_of(structure, (predicate, *operands))
    return traced_choices.run_choice(known, predicate, true, false, operands)


@hooks.kernel(torch.ops.higher_order.while_loop, "iterations, run by back ends like eager")
def _iterate(
    inner: Callable[..., Any],
    condition: Any,
    body: Any,
    carried: Sequence[Any],
    given: Sequence[Any],
    **keywords: Any,
) -> Any:
    if not _can_run(body, (*carried, *given)):
        with traced_choices.without_tokens() if _is_ours(body) else nullcontext():
            return inner(condition, body, carried, given, **keywords)
    # No call of the module, which would write a failure to `sys.stderr`.
    values, body = carried, _plain(body).forward
    while condition(*values, *given):
        values = body(*values, *given)
    if values is carried:  # an operator returns no argument of its own
        return tuple(each.clone() if isinstance(each, torch.Tensor) else each for each in carried)
    return values
