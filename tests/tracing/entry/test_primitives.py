"""The primitives in plain Python: they do nothing, but for a record at which the graph broke."""

from __future__ import annotations

import pytest
import torch

import bcmend
from bcmend.names import UNBOUND
from bcmend.tracing.entry import primitive_namespace, primitives
from bcmend.tracing.entry.primitives import branch, data_dependent, guard, record, recording


def test_in_plain_python_the_answers_send_control_to_the_original_instructions() -> None:
    condition = torch.tensor(True)
    assert data_dependent("site", condition) is False
    assert branch("site", condition, lambda: (1,), lambda: (2,), ()) is None
    assert guard("site", condition, True, lambda: None, ()) is False
    assert recording("site", 1) is False


def test_a_record_in_plain_python_is_delivered_at_once() -> None:
    """A resumed frame that Dynamo skips has answered ``recording`` while it was traced."""
    log: list[int] = []
    record("site", log.append, (1,))
    assert log == [1]


def test_no_other_question_is_answered_in_plain_python() -> None:
    assert primitives.entered() is False
    assert primitives.undecided("site", (1, 2)) is False
    assert primitives.split("site", 0, None, (), 0, (), ()) is None
    assert primitives.nothing() is None


def test_an_iteration_is_made_in_plain_python() -> None:
    assert primitives.runs_iteration() is True


def test_only_the_mark_of_an_unbound_local_is_unbound() -> None:
    assert primitives.unbound(UNBOUND) is True
    assert primitives.unbound(None) is False


@pytest.mark.parametrize(
    "name",
    "entered data_dependent branch undecided split unbound guard recording record nothing".split(),
)
def test_rewritten_code_reaches_each_primitive_by_its_name(name: str) -> None:
    assert getattr(primitive_namespace, name) is getattr(primitives, name)
    assert getattr(primitives, name).__name__ == f"bcmend_{name}"


def test_dynamo_traces_the_call_of_a_patched_function() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return x + 1 if primitives.entered() else x - 1

    torch._dynamo.reset()
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    try:
        assert compiled(torch.zeros(1)).item() == 1
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
