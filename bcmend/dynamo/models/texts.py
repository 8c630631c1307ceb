"""Models of texts with data-dependent parts: a format and the values that it is given."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from bcmend.dynamo import compat


def text_of(
    template: str,
    arguments: Iterable[compat.VariableTracker],
    named: Mapping[str, compat.VariableTracker],
) -> compat.VariableTracker:
    """Return the model of ``template.format(*arguments, **named)``."""
    made: compat.VariableTracker = compat.StringFormatVariable.create(
        template, list(arguments), dict(named)
    )
    return made


def template_of(text: Any) -> str:
    """Return the format of a text."""
    template: str = text.format_string
    return template


def arguments_of(text: Any) -> list[compat.VariableTracker]:
    """Return the values of a text that its format has by position."""
    return list(text.sym_args)


def named_arguments_of(text: Any) -> dict[str, compat.VariableTracker]:
    """Return the values of a text that its format has by name."""
    return dict(text.sym_kwargs)


def parts_of(text: Any) -> list[compat.VariableTracker]:
    """Return all values of a text."""
    return [*text.sym_args, *text.sym_kwargs.values()]
