"""What bcmend does not know of a torch refuses the arm that meets it: models, changed methods."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import torch

from bcmend.dynamo.models import known_models
from bcmend.dynamo.values import Value
from bcmend.tracing.sites.refusal import Refusal

#: Of each arm being traced, the outermost first, the changed methods that it has come to.
_CHANGED: Final[list[list[str]]] = []


def require_known(variable: Value) -> None:
    """Raise ``Refusal`` if a value has a model that is not known."""
    if known_models.is_unknown(variable):
        raise _refusal(type(variable).__name__)


def come_to_changed(target: str) -> None:
    """Raise ``Refusal`` if an arm is being traced: it has come to a method that has changed."""
    if _CHANGED:
        _CHANGED[-1].append(target)
        raise _changed(target)


@contextmanager
def none_met() -> Iterator[None]:
    """Raise ``Refusal`` at the end of a block in which the trace meets any such thing.

    Dynamo may have taken the refusal that was raised there for the answer to a question.
    """
    changed: list[str] = []
    _CHANGED.append(changed)
    try:
        with known_models.noted() as found:
            yield
    finally:
        _CHANGED.pop()
    if found:
        raise _refusal(found[0])
    if changed:
        raise _changed(changed[0])


def _refusal(name: str) -> Refusal:
    return Refusal("arm-effects", f"a value that is new in this torch: {name}")


def _changed(target: str) -> Refusal:
    return Refusal("torch-differs", f"{target} is another one in torch {torch.__version__}")
