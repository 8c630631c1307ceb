"""Models of Dynamo that bcmend does not know refuse the arm that meets one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bcmend.dynamo.models import known_models
from bcmend.dynamo.values import Value
from bcmend.tracing.sites.refusal import Refusal


def require_known(variable: Value) -> None:
    """Raise ``Refusal`` if a value has a model that is not known."""
    if known_models.is_unknown(variable):
        raise _refusal(type(variable).__name__)


@contextmanager
def none_made() -> Iterator[None]:
    """Raise ``Refusal`` at the end of a block in which the trace makes such a model."""
    with known_models.noted() as found:
        yield
    if found:
        raise _refusal(found[0])


def _refusal(name: str) -> Refusal:
    return Refusal("arm-effects", f"a value that is new in this torch: {name}")
