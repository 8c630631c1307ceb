"""An arm that meets a model of Dynamo that is not listed is refused."""

from __future__ import annotations

import collections
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.models import known_models
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation import unknown_models
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _calls() -> list[Call]:
    return [call(torch.tensor(row)) for row in ([1.0, 2.0], [-1.0, -2.0], [3.0, 1.0])]


def _made_in_an_arm(x: Tensor) -> Any:
    if x.sum() > 0:
        held = collections.deque([x, x * 2], maxlen=3)
        x = held[0] + held[1]
    return x * 1


def _given_to_an_arm(x: Tensor) -> Any:
    held = collections.deque([x, x * 2], maxlen=3)
    if x.sum() > 0:
        x = held[0] + held[1]
    return x * 1


PROGRAMS = (_made_in_an_arm, _given_to_an_arm)


def _refusals(program: Callable[..., Any], **options: Any) -> list[str]:
    compared = assert_equivalent(lambda: program, _calls, **options)
    return [site.detail for site in compared.report.sites if site.status == "refused"]


@pytest.mark.parametrize("program", PROGRAMS)
def test_a_model_that_is_not_listed_refuses_the_arm(
    program: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert _refusals(program) == []
    monkeypatch.setattr(known_models, "KNOWN", known_models.KNOWN - {"DequeVariable"})
    torch._dynamo.reset()
    (detail,) = _refusals(program, fullgraph=False, graphs=None, recompiles=None)
    assert detail == "a value that is new in this torch: DequeVariable"


def test_a_model_outside_of_an_arm_is_no_matter(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Any:
        x = x + 1 if x.sum() > 0 else x - 1
        return collections.deque([x], maxlen=3)[0] * 2

    monkeypatch.setattr(known_models, "KNOWN", known_models.KNOWN - {"DequeVariable"})
    assert _refusals(program) == []


def test_constructors_are_as_they_were(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(known_models, "KNOWN", frozenset[str]())
    every: list[Any] = type(compat.VariableTracker).all_subclasses  # type: ignore[attr-defined]
    before = [(vars(kind).get("__init__"), kind.__init__) for kind in every]
    with pytest.raises(Refusal, match="ConstantVariable"), unknown_models.none_met():
        compat.ConstantVariable(1)
    with pytest.raises(KeyError), unknown_models.none_met():
        raise KeyError
    assert [(vars(kind).get("__init__"), kind.__init__) for kind in every] == before


def test_models_of_bcmend_are_known() -> None:
    kind = type("OurVariable", (compat.VariableTracker,), {"__module__": "bcmend.tracing"})
    unknown_models.require_known(kind())
    other = type("TheirVariable", (compat.VariableTracker,), {"__module__": "torch._dynamo.new"})
    with pytest.raises(Refusal, match="TheirVariable"):
        unknown_models.require_known(other())
    for each in (kind, other):
        type(compat.VariableTracker).all_subclasses.remove(each)  # type: ignore[attr-defined]
