"""The operator that runs a record at its place in the graph."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.delivery import emission
from bcmend.tracing.inline import emit_operator

CALL = torch.empty(())


@pytest.fixture
def emitted(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Collect the records that are run."""
    found: list[Any] = []
    monkeypatch.setattr(emission, "emit", lambda *arguments: found.append(arguments))
    return found


@pytest.mark.parametrize(
    ("predicate", "runs"), [(None, True), (torch.tensor(True), True), (torch.tensor(False), False)]
)
def test_a_record_runs_unless_its_condition_does_not_hold(
    emitted: list[Any], predicate: torch.Tensor | None, runs: bool
) -> None:
    given = torch.ones(2)
    token = emit_operator._emit(CALL, None, 3, predicate, [given])
    assert [(number, tensors[0] is given) for _, number, tensors in emitted] == (
        [(3, True)] if runs else []
    )
    assert token.shape == (0,), "the next record is given something either way"


def test_what_the_operator_takes() -> None:
    schema = str(emit_operator.EMIT._schema)
    assert schema.startswith("bcmend::emit(Tensor call, Tensor? last, int number")
