"""Texts of objects that an arm leaves behind, and that Dynamo makes at the end of the call.

It makes them whichever side was taken, so that code of the program would run on either.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from types import FunctionType
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.models import texts
from bcmend.tracing.sites.refusal import Refusal


def require_none(left: Sequence[Any]) -> None:
    """Refuse an arm that leaves a text which a method of the program is still to make."""
    compat.VariableTracker.visit(_require_made, left)


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
