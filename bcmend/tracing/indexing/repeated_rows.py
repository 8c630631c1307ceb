"""Rows of tensors that are repeated as often as a tensor says: ``x.repeat_interleave(counts, 0)``.

torch selects them by an index that it makes of the counts. How long the index is the data say, so
that torch takes each result of such a call for one of a size of its own, and makes the index again.
Within a graph it is made once for counts that nobody has changed, and the results have one size.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.dynamo.shape_env import symbols_in
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, constant, example_of, function_of
from bcmend.tracing.effects import change_counts
from bcmend.tracing.numbers import size_questions

#: Counts, how often they were changed, and whether tensors are made that no gradient goes through.
_Key = tuple[Node, int, bool]

#: The indices that were made in one graph, or in one arm.
_MADE: Final[Slot[dict[_Key, Value]]] = Slot(dict, rolls_back=False)


def repeated(
    tx: compat.Tracer, tensor: TensorValue, counts: TensorValue, dim: int | None
) -> Value | None:
    """Return ``torch.repeat_interleave(tensor, counts, dim)``, as torch composes it.

    ``None`` where there is one count for all rows, or torch has an error.

    Source: ``repeat_interleave_symint``, aten/src/ATen/native/Repeat.cpp.
    """
    example = example_of(tensor)
    if example.is_complex() or not _are_counts(example_of(counts)):
        return None
    if dim is None:
        items: Any = tensor.call_method(tx, "flatten", [], {})
        return repeated(tx, items, counts, 0)
    if not -example.dim() <= dim < example.dim():
        return None
    if not _are_equal(tx, example.shape[dim], example_of(counts).shape[0]):
        return None
    index = _index(tx, counts)
    return tensor.call_method(tx, "index_select", [constant(dim), index], {})


def _are_counts(example: Tensor) -> bool:
    return example.dim() == 1 and example.dtype in (torch.int32, torch.int64)


def _are_equal(tx: compat.Tracer, rows: Any, counts: Any) -> bool:
    """Return whether there is a count for each row; where the data say that, the graph asserts it.

    One count alone is for all rows.
    """
    if not (symbols_in(rows) or symbols_in(counts)):
        return bool(rows == counts)
    if compat.statically_known_true(counts == 1):
        return False
    if not compat.statically_known_true(rows == counts):
        size_questions.claim(tx, rows == counts)
    return bool(compat.statically_known_true(rows == counts))


def _index(tx: compat.Tracer, counts: TensorValue) -> Value:
    made = _MADE.of(tx.output.current_tracer)
    key = (
        counts.as_proxy().node,
        change_counts.changes(example_of(counts)),
        torch.is_inference_mode_enabled(),
    )
    if key not in made:
        made[key] = function_of(tx, torch.repeat_interleave).call_function(tx, [counts], {})
    return made[key]
