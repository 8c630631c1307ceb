"""Tensors whose numbers are known while a call is traced, since they are made of constants.

``torch.tensor([[h, w] for ...])`` of sizes that are known, its rows, sums and products: a number
taken out of one is a constant, and nothing depends on data. So it is with buffers of modules that
hold the same at every call (``known_buffers``). Torch itself knows the values of tensors of one
element only. Here the operations behind a tensor are run, when somebody asks for its number, on the
CPU: of floating numbers only those that run there in eager execution too, since others round.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch._dynamo.variables import TensorVariable
from torch.fx import Graph, Node, Proxy
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import _disable_current_modes

from bcmend.runtime import known_buffers
from bcmend.runtime.entries import before_arms
from bcmend.runtime.operations import is_in_place, storage_of, storages_written
from bcmend.runtime.random_numbers import may_draw

__all__ = ["number_in"]

#: More elements, or more operations, are not worth it: what is asked for are sizes.
_ELEMENTS: Final = 4096
_OPERATIONS: Final = 128


class _Unknown(Exception):
    """A tensor is not made of constants alone."""


def number_in(tx: Any, variable: TensorVariable) -> int | bool | None:
    """Return the number in a tensor of one integer or truth; ``None`` if the data decide it."""
    example = variable.as_proxy().node.meta["example_value"]
    count = example.numel()
    if not (isinstance(count, int) and count == 1 and _is_exact(example)):
        return None
    known: dict[Node, Any] = {}
    try:
        with _disable_current_modes(), torch.no_grad():
            value = _value(tx, variable.as_proxy().node, known)
    except (_Unknown, RecursionError):
        return None
    if _is_written(tx, known):
        return None
    number: int | bool = value.item()
    _rely_on_buffers(tx, known)
    return number


def _rely_on_buffers(tx: Any, known: dict[Node, Any]) -> None:
    found = (known_buffers.buffer_of(tx, node) for node in known if node.op == "placeholder")
    buffers = [each for each in found if each is not None]
    root, fake_mode = tx.output.root_tracer.graph, tx.fake_mode

    def is_written(node: Node) -> bool:
        return _writes_to(root, fake_mode, _storages([node]))

    known_buffers.rely_on(tx, buffers, is_written)


def _is_exact(example: torch.Tensor) -> bool:
    return not (example.is_floating_point() or example.is_complex() or example.is_quantized)


def _value(tx: Any, node: Node, known: dict[Node, Any]) -> Any:
    """Return the value of a node. Raises ``_Unknown``."""
    if node in known:
        return known[node]
    outer = before_arms(tx, Proxy(node)).node
    if outer is not node:
        known[node] = _value(tx, outer, known)
        return known[node]
    if node.op == "placeholder":
        known[node] = _value_given(tx, node)
        return known[node]
    _require_plain(node, known)
    arguments, keywords = (_values_in(tx, each, known) for each in (node.args, node.kwargs))
    try:
        if node.op == "call_method":
            value = getattr(arguments[0], str(node.target))(*arguments[1:], **keywords)
        else:
            value = node.target(*arguments, **keywords)  # type: ignore[operator]
    except Exception as error:
        raise _Unknown from error
    known[node] = value
    return value


def _value_given(tx: Any, node: Node) -> torch.Tensor:
    """Return what an input of the graph holds at each call. Raises ``_Unknown``."""
    buffer = known_buffers.buffer_of(tx, node)
    if buffer is None:
        raise _Unknown
    return buffer.tensor.clone()


def _require_plain(node: Node, known: dict[Node, Any]) -> None:
    if node.op not in ("call_function", "call_method") or len(known) > _OPERATIONS:
        raise _Unknown
    if not _is_of_torch(node.target):
        raise _Unknown
    example = node.meta.get("example_value")
    parts = example if isinstance(example, (tuple, list)) else (example,)
    if not parts or not all(_is_small(each) for each in parts) or is_in_place(node):
        raise _Unknown
    if may_draw(node):
        raise _Unknown


def _is_of_torch(target: Any) -> bool:
    """Whether an operation is one of torch's own, which gives the same at every call.

    Others may read a clock, or do what nobody here knows.
    """
    if isinstance(target, (torch._ops.OpOverload, torch._ops.OpOverloadPacket)):
        return str(target).startswith("aten.")
    if isinstance(target, str):  # a method of a tensor
        return True
    module = getattr(target, "__module__", None) or "torch"
    is_function = not isinstance(target, torch._ops.HigherOrderOperator)
    return is_function and module.partition(".")[0] in ("torch", "_operator", "builtins")


def _is_small(example: Any) -> bool:
    if not isinstance(example, torch.Tensor):
        return type(example) in (int, bool)
    count = example.numel()
    rounds_alike = _is_exact(example) or example.device.type == "cpu"
    return rounds_alike and isinstance(count, int) and count <= _ELEMENTS


def _values_in(tx: Any, arguments: Any, known: dict[Node, Any]) -> Any:
    def replaced(each: Any) -> Any:
        if isinstance(each, Node):
            return _value(tx, each, known)
        return torch.device("cpu") if isinstance(each, torch.device) else each

    return map_aggregate(arguments, replaced)


def _tracers(tx: Any) -> Iterator[Any]:
    tracer = tx.output.current_tracer
    while tracer is not None:
        yield tracer
        tracer = tracer.parent


def _is_written(tx: Any, known: dict[Node, Any]) -> bool:
    """Whether a tensor that was looked at has been changed in place, by whatever name."""
    storages = _storages(known)
    return any(_writes_to(tracer.graph, tx.fake_mode, storages) for tracer in _tracers(tx))


def _storages(nodes: Iterable[Node]) -> set[int]:
    storages: set[int] = set()
    for node in nodes:
        example = node.meta.get("example_value")
        parts = example if isinstance(example, (tuple, list)) else (example,)
        storages.update(storage_of(each) for each in parts if isinstance(each, torch.Tensor))
    return storages


def _writes_to(graph: Graph, fake_mode: Any, storages: set[int]) -> bool:
    for node in graph.nodes:
        if node.op in ("call_function", "call_method") and is_in_place(node):
            written = storages_written(node, fake_mode)
            if written is None or not storages.isdisjoint(written):
                return True
    return False
