"""Tensors whose numbers are known while a call is traced, since they are made of constants.

A number taken out of ``torch.tensor([[h, w] for ...])`` is a constant, where the sizes are. Torch
itself knows that of tensors of one element only. Here the operations behind a tensor are run on the
CPU when somebody asks; of floating numbers only those that run there in eager too: others round.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch.fx import Node
from torch.fx.node import map_aggregate

from bcmend.dynamo import compat
from bcmend.dynamo.values import TensorValue
from bcmend.tracing.effects.operator_runs import CALLERS, call_target, is_in_place
from bcmend.tracing.effects.random_draws import may_draw
from bcmend.tracing.numbers import constant_buffers, slices
from bcmend.tracing.numbers.written_memory import is_of_torch, is_written, parts_of
from bcmend.tracing.search import strict
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt

#: More elements are not worth it: what is asked for are sizes. An operation on
#: 4,096 integers takes 2 to 3 times as long as on one (5 us), a sort 10 times (45 us), which is
#: still less than torch takes for any on fake tensors (150 us); a sort of 65,536 takes 550 times as
#: long.
_ELEMENTS: Final = 4096
#: Operations behind one number. Each takes 10 to 25 us, so that 1,000 add 1 % to a trace. But they
#: are run for each number anew: with a number after each operation, 256 of them take a third of
#: the trace (2.5 s) and 512 take half of it (7 s). Behind more the number is data-dependent.
_OPERATIONS: Final = 256


def number_in(tx: compat.Tracer, variable: TensorValue) -> int | bool | float | None:
    """Return the number in a tensor of one element; ``None`` if it is data-dependent."""
    example = variable.as_proxy().node.meta["example_value"]
    count = example.numel()
    if not (isinstance(count, int) and count == 1 and _is_small(example) and _is_real(example)):
        return None
    known: dict[Node, Any] = {}
    with compat._disable_current_modes(), torch.no_grad():
        value = attempt(lambda: _value(tx, variable.as_proxy().node, known))
    if isinstance(value, Refusal) or is_written(tx, known):
        return None
    number: int | bool | float = value.item()
    found = (constant_buffers.buffer_of(tx, node) for node in known if node.op == "placeholder")
    buffers = [each for each in found if each is not None]
    constant_buffers.rely_on(tx, buffers)
    return number


def _is_real(example: torch.Tensor) -> bool:
    return not (example.is_complex() or example.is_quantized)


def _is_exact(example: torch.Tensor) -> bool:
    return _is_real(example) and not example.is_floating_point()


def _value(tx: compat.Tracer, node: Node, known: dict[Node, Any]) -> Any:
    """Return the value of a node; ``known`` gets those of all behind it. Raises ``Refusal``."""
    for each in slices.behind(tx, node, lambda each: _is_constant(tx, each), _OPERATIONS):
        outer = slices.outside(tx, each)
        known[each] = _computed(tx, each, known) if outer is each else known[outer]
    return known[node]


def _is_constant(tx: compat.Tracer, node: Node) -> bool:
    """Return whether a node is computed from its inputs alone, or is a buffer."""
    is_given = node.op == "placeholder"
    return constant_buffers.buffer_of(tx, node) is not None if is_given else _is_plain(node)


def _computed(tx: compat.Tracer, node: Node, known: dict[Node, Any]) -> Any:
    if node.op == "placeholder":
        buffer = constant_buffers.buffer_of(tx, node)
        assert buffer is not None
        return buffer.tensor.clone()

    def replaced(each: Any) -> Any:
        if isinstance(each, Node):
            return known[each]
        return torch.device("cpu") if isinstance(each, torch.device) else each

    arguments, keywords = map_aggregate(node.args, replaced), map_aggregate(node.kwargs, replaced)
    try:
        return call_target(node.target, arguments, keywords)
    except Exception as error:
        # The operation fails on these values, as it will in eager, or has no kernel for the CPU.
        # The number is data-dependent then.
        strict.require_foreign(error, *CALLERS)
        raise NotThisWay() from error


def _is_plain(node: Node) -> bool:
    """Return whether a node computes something small, and the same at every call."""
    if node.op not in ("call_function", "call_method") or not is_of_torch(node.target):
        return False
    parts = parts_of(node)
    return bool(parts) and all(map(_is_small, parts)) and not (is_in_place(node) or may_draw(node))


def _is_small(example: Any) -> bool:
    if not isinstance(example, torch.Tensor):
        return type(example) in (int, bool)
    count = example.numel()
    rounds_alike = _is_exact(example) or example.device.type == "cpu"
    return rounds_alike and isinstance(count, int) and count <= _ELEMENTS
