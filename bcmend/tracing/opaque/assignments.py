"""``scipy.optimize.linear_sum_assignment``: what a model has found is matched with what is there.

The graph has it as an operator: how many pairs there are is known from the sizes of the costs, and
integers have no gradients. What is given and returned are arrays, which the graph has as tensors.
"""

from __future__ import annotations

import importlib
import inspect
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import compat, operators
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.substitutes.autograd_leaf import is_plain
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, bound, traced

#: Types of costs that numpy has too.
_DTYPES: Final = (
    torch.float16, torch.float32, torch.float64,
    torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64,
)  # fmt: skip


def _run(costs: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    match: Any = importlib.import_module("scipy.optimize").linear_sum_assignment
    rows, columns = match(costs.numpy(), maximize)
    return torch.tensor(rows, dtype=torch.int64), torch.tensor(columns, dtype=torch.int64)


def _fake(costs: Tensor, maximize: bool) -> tuple[Tensor, Tensor]:
    count = torch.sym_min(*costs.shape)  # type: ignore[no-untyped-call]
    rows, columns = (costs.new_empty((count,), dtype=torch.int64) for _ in range(2))
    return rows, columns


_ASSIGN: Final = operators.define(
    "assign(Tensor costs, bool maximize) -> (Tensor, Tensor)", _run, _fake, has_effect=False
)
effects.declare(_ASSIGN, EffectFacts(is_expensive=True))


def _of_costs(cost_matrix: Any, maximize: bool = False) -> tuple[Any, Any]:
    rows, columns = _ASSIGN(torch.as_tensor(cost_matrix), maximize)
    return rows.numpy(), columns.numpy()


_SIGNATURE: Final = inspect.signature(_of_costs)


@answers_to("assignment")
def _assignment(call: ReplacedCall) -> Answer:
    """Answer ``linear_sum_assignment(cost_matrix, maximize)``."""
    given = bound(_SIGNATURE, call)
    if given is None or call.tx.export:
        return PASS
    if not (_is_taken(given["cost_matrix"]) and given["maximize"].is_python_constant()):
        return PASS
    if type(given["maximize"].as_python_constant()) is not bool:
        return PASS
    found: Answer = traced(call, _of_costs)
    return found


def _is_taken(costs: Value) -> bool:
    """Return whether costs are a table that numpy reads as it is."""
    if not isinstance(costs, compat.TensorVariable):
        return False
    is_array = isinstance(costs, compat.NumpyNdarrayVariable)
    if not is_array and not (type(costs) is TensorValue and is_plain(costs)):
        return False
    example = example_of(costs)
    is_read = example.device.type == "cpu" and not example.requires_grad
    return is_read and example.dim() == 2 and example.dtype in _DTYPES
