"""The operator ``bcmend::emit``, which runs a record at its place in the graph.

It has an effect in torch's sense (torch/_higher_order_ops/effects.py), which keeps it in the graph.
Each gets what the one before it returned, since Inductor reorders for peak memory by data alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from bcmend.delivery import emission
from bcmend.dynamo import operators, plain_python


def _emit(
    call: Any,
    last: torch.Tensor | None,
    number: int,
    predicate: torch.Tensor | None,
    tensors: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Run a record, unless its condition does not hold; return what the next one is given."""
    if predicate is None or bool(predicate):
        plain_python.run(emission.emit, call, number, tensors)
    return operators.token()


EMIT: Final = operators.define(
    "emit(Tensor call, Tensor? last, int number, Tensor? predicate, Tensor[] tensors) -> Tensor",
    _emit,
    lambda *arguments: operators.token(),
    skips_autograd=True,
)
