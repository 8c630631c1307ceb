"""The protocol of phis: every kind of them answers every question."""

from __future__ import annotations

import pytest

from bcmend.dynamo.models.containers import OBJECTS_BY_ITEMS
from bcmend.tracing.entry import primitive_namespace  # noqa: F401  imports every kind of phi
from bcmend.tracing.sites.phi import Phi

QUESTIONS = ("adopt_into", "as_recorded")


def _kinds(base: type) -> list[type]:
    return [each for kind in base.__subclasses__() for each in (kind, *_kinds(kind))]


def test_there_are_several_kinds_of_phis() -> None:
    assert len(_kinds(Phi)) >= 3


@pytest.mark.parametrize("kind", _kinds(Phi), ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("question", QUESTIONS)
def test_each_kind_answers(kind: type, question: str) -> None:
    assert getattr(kind, question) is not getattr(Phi, question)


@pytest.mark.parametrize("kind", _kinds(Phi), ids=lambda kind: kind.__name__)
def test_the_protocol_comes_before_the_model_of_dynamo(kind: type) -> None:
    ahead = kind.__mro__[: kind.__mro__.index(Phi)]
    of_dynamo = [base for base in ahead if base.__module__.startswith("torch.")]
    assert not any(question in vars(base) for base in of_dynamo for question in QUESTIONS)
    # Methods that the class of an object has replaced come before those of its container.
    assert not of_dynamo or getattr(kind, "plain", None) in OBJECTS_BY_ITEMS


def test_the_protocol_itself_answers_nothing() -> None:
    with pytest.raises(NotImplementedError):
        Phi().adopt_into(None, None)
    with pytest.raises(NotImplementedError):
        Phi().as_recorded(None, lambda value: value)  # type: ignore[arg-type]
