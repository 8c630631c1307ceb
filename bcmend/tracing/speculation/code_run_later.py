"""Code of the program that would run at the end of a call for what an arm leaves behind.

Dynamo makes what both arms leave, whichever side was taken: a text by a method of an object, and an
object that has a finalizer, which runs for the one that is not kept.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from bcmend.dynamo import compat, snapshots
from bcmend.dynamo.models import objects, texts
from bcmend.tracing.sites.refusal import Refusal


def require_none(effects: compat.SideEffects, scope: int, left: Sequence[Any]) -> None:
    """Refuse an arm that makes an object with a finalizer, or leaves a text still to be made.

    Args:
        effects: what the trace knows of objects, at the end of the arm.
        scope: that of the trace around the arm.
        left: what the arm returns and stores.
    """
    snapshots.visit(_require_made, left)
    known: list[Any] = list(filter(objects.is_made_in_the_call, effects.id_to_variable.values()))
    for each in known:
        if each.mutation_type.scope > scope and hasattr(objects.class_of(each), "__del__"):
            raise Refusal("arm-effects", "an object that runs code when it dies")


def _require_made(variable: Any) -> None:
    if isinstance(variable, compat.StringFormatVariable):
        for each in texts.parts_of(variable):
            if _has_a_text_of_its_own(each.realize()):
                raise Refusal("arm-effects", "a text that a method of the program makes")


def _has_a_text_of_its_own(variable: Any) -> bool:
    if not isinstance(variable, compat.UserDefinedObjectVariable):
        return False
    methods = ("__format__", "__str__", "__repr__")
    kind = type(variable.value)
    return any(isinstance(inspect.getattr_static(kind, n, None), FunctionType) for n in methods)
