"""Powers of negative numbers, as in ``(-1) ** places``, and ``pow`` of tensors and of numbers.

``pow(x, 2)`` is ``x ** 2`` to Python; Dynamo knows it of constants alone.

Of the former Dynamo writes the number into the graph. ``torch.fx`` writes the code of a graph
without brackets, ``-1 ** places``, which Python reads as ``-(1 ** places)``. Of tensors that is
wrong with back ends that run that code; of symbolic numbers it is wrong with those that trace it,
too.

Works round ``emit_node`` (torch/fx/graph.py); reproduced on 2.13.0, no issue is known. This can go
when ``test_a_power_of_a_negative_number_is_negated`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.arithmetic import number_powers
from bcmend.tracing.sites import capture_mode

_POWERS: Final = (operator.pow, operator.ipow, pow)
_PURPOSE: Final = "`pow` of tensors and of symbolic numbers"
_IN_A_GRAPH: Final = (compat.TensorVariable, compat.SymNodeVariable)


@hooks.around(
    compat.OutputGraph, methods.CALL_BACK_END, "powers of negative numbers", gate=None, place=3
)
def _compile(inner: Any, output: compat.OutputGraph, module: GraphModule, *more: Any) -> Any:
    for each in module.modules():
        if isinstance(each, GraphModule):
            _write_in_words(each)
    return inner(output, module, *more)


@hooks.around(compat.BuiltinVariable, methods.CALL_FUNCTION, _PURPOSE, place=1)
def _call(inner: Any, called: Any, tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
    is_of_two = called.fn in _POWERS and len(args) == 2 and not kwargs
    if not is_of_two or not capture_mode.may_be_mended(tx):
        return inner(called, tx, args, kwargs)
    operands = [each.realize() for each in args]
    found = number_powers.power_of(tx, operands)
    if found is not None:
        return found
    if called.fn is not pow or not any(isinstance(each, _IN_A_GRAPH) for each in operands):
        return inner(called, tx, args, kwargs)
    return compat.BuiltinVariable(operator.pow).call_function(tx, operands, {})


def _write_in_words(module: GraphModule) -> None:
    """Write the powers of negative numbers in a graph as calls that have no such text."""
    powers = [node for node in module.graph.nodes if _is_of_a_negative_number(node)]
    for node in powers:
        exponent = node.args[1].meta.get("example_value")
        if isinstance(exponent, torch.Tensor):
            node.target = torch.pow
        elif isinstance(exponent, torch.SymInt) and type(node.args[0]) is int:
            _take_sign_out(node)
    if powers:
        module.recompile()


def _is_of_a_negative_number(node: Node) -> bool:
    if node.op != "call_function" or node.target not in _POWERS or len(node.args) != 2:
        return False
    base, exponent = node.args
    is_number = type(base) in (int, float) and repr(base).startswith("-")
    return is_number and isinstance(exponent, Node)


def _take_sign_out(node: Node) -> None:
    """Write ``(-2) ** places`` as ``2 ** places * (1 - places % 2 * 2)``."""
    base, exponent = node.args
    assert isinstance(base, int)
    graph = node.graph

    def add(function: Any, *operands: Any) -> Node:
        added = graph.call_function(function, operands)
        values = [
            each.meta["example_value"] if isinstance(each, Node) else each for each in operands
        ]
        added.meta = {**node.meta, "example_value": function(*values)}
        return added

    with graph.inserting_before(node):
        twice = add(operator.mul, add(operator.mod, exponent, 2), 2)
        result = add(operator.mul, add(operator.pow, -base, exponent), add(operator.sub, 1, twice))
    result.meta["example_value"] = node.meta["example_value"]
    node.replace_all_uses_with(result)
    graph.erase_node(node)
