"""``torch.sparse_coo_tensor(indices, values, size).to_dense()``: numbers summed up at their places.

A graph has no sparse tensors. Here one is a note of its indices and values, which it shares as a
sparse tensor does, and ``to_dense`` is an operator that makes both calls: sums are of the same
order, and torch gives the warning that it gives of the first such tensor of a process. Where
anything else is done with the tensor the graph breaks, and it is made behind the break.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph, operators
from bcmend.dynamo.values import TensorValue, Value, constant, example_of, items_in, load_global
from bcmend.tracing.loops.open_ranges import is_number


def _run(indices: torch.Tensor, values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return torch.sparse_coo_tensor(indices, values, list(size)).to_dense()


def _fake(indices: torch.Tensor, values: torch.Tensor, size: Sequence[int]) -> torch.Tensor:
    return values.new_empty(size)


DENSE: Final = operators.define(
    "dense_of_coordinates(Tensor indices, Tensor values, SymInt[] size) -> Tensor",
    _run,
    _fake,
    has_effect=False,
)


class SparseTensor(compat.VariableTracker):
    """A sparse tensor, which only ``to_dense`` may be asked for."""

    def __init__(
        self, indices: TensorValue, values: TensorValue, size: Sequence[Value], **more: Any
    ) -> None:
        super().__init__(**more)
        self.indices, self.values, self.size = indices, values, size

    def python_type(self) -> type:
        return torch.Tensor

    def call_method(self, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        if name == "to_dense" and not args and not kwargs:
            size = compat.TupleVariable(list(self.size))
            return fx_graph.function(tx, DENSE, self.indices, self.values, size)
        return super().call_method(tx, name, args, kwargs)

    def reconstruct(self, codegen: Any) -> None:
        codegen.add_push_null(lambda: load_global(codegen, torch.sparse_coo_tensor))
        for part in (self.indices, self.values, compat.TupleVariable(list(self.size))):
            codegen(part)
        codegen.extend_output(compat.create_call_function(3, False))


def sparse_tensor(indices: Value, values: Value, size: Value) -> SparseTensor | None:
    """Return the sparse tensor of coordinates; ``None`` if it may be none, or has gradients."""
    sizes = _sizes(size)
    if not (type(indices) is type(values) is compat.TensorVariable and all(map(is_number, sizes))):
        return None
    places, numbers = example_of(indices), example_of(values)
    is_plain = all(each.layout is torch.strided for each in (places, numbers))
    fits = places.dim() == 2 and numbers.dim() == 1 and places.dtype is torch.int64
    if not (is_plain and fits and sizes) or numbers.requires_grad:
        return None
    if places.shape[0] != len(sizes) or places.device != numbers.device:
        return None
    is_one_each = places.shape[1] == numbers.shape[0]
    if compat.free_unbacked_symbols([places.shape[1], numbers.shape[0]]):
        is_one_each = compat.statically_known_true(is_one_each)
    if not is_one_each:
        return None
    if any(each.is_python_constant() and each.as_python_constant() < 0 for each in sizes):
        return None
    return SparseTensor(indices, values, sizes)


def _sizes(size: Value) -> list[Value]:
    """Return the numbers of a size; none of what is no size."""
    if size.is_python_constant():
        known = size.as_python_constant()
        return [constant(each) for each in known] if isinstance(known, (tuple, list)) else []
    return [each.realize() for each in items_in(size) or ()]
