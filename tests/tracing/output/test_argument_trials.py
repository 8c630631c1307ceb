"""Which arguments of output may fail, and for which values they cannot."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._dynamo.variables import ConstantVariable, ListVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.tracing.output import argument_trials
from bcmend.tracing.sites.site_table import LiveSite


class _ObjectVariable(VariableTracker):
    """Stands for an object of the program."""


def _constant(value: object) -> VariableTracker:
    return ConstantVariable.create(value)


def _tensor(example: torch.Tensor) -> Any:
    node = torch.fx.Graph().placeholder("x")
    node.meta["example_value"] = example
    found: Any = object.__new__(TensorVariable)
    found.as_proxy = lambda: SimpleNamespace(node=node)
    return found


def test_only_values_of_python_and_torch_are_plain() -> None:
    assert argument_trials._is_plain(_constant("text"))
    assert argument_trials._is_plain(TupleVariable([_constant(1), ListVariable([_constant(2)])]))
    assert not argument_trials._is_plain(_ObjectVariable())
    assert not argument_trials._is_plain(TupleVariable([ListVariable([_ObjectVariable()])]))


def test_numbers_are_taken_out_of_tensors_without_dimensions_only() -> None:
    assert argument_trials._is_number(_constant(2))
    assert argument_trials._is_number(_tensor(torch.tensor(1)))
    assert not argument_trials._is_number(_tensor(torch.ones(1)))
    assert not argument_trials._is_number(TupleVariable([]))


@pytest.mark.parametrize(
    ("example", "expected"),
    [
        (torch.ones(3), True),
        (torch.ones(3, dtype=torch.int64), False),  # has no mean
        (torch.ones(0), False),
        (torch.tensor(1), False),
    ],
)
def test_a_mean_is_that_of_floating_point_numbers(example: torch.Tensor, expected: bool) -> None:
    assert argument_trials._is_usual(_tensor(example)) is expected


@pytest.mark.parametrize(
    ("chance", "value"), [(1, _constant(1)), (2, _constant(1)), (0, _ObjectVariable())]
)
def test_nothing_is_tried_that_cannot_fail_or_runs_code_of_the_program(
    chance: int, value: VariableTracker
) -> None:
    site = LiveSite("module.f:1", "output", _constant.__code__)
    facts: Any = SimpleNamespace(as_python_constant=lambda: ((0,), chance))
    root = SimpleNamespace(f_code=_tensor.__code__)
    tx: Any = SimpleNamespace(output=SimpleNamespace(root_tx=root))
    argument_trials.try_arguments(tx, site, _constant(None), facts, TupleVariable([value]))
    assert site.active
