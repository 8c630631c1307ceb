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
    given, keywords = list(arguments), dict(named)
    if not all(each.is_python_constant() for each in (*given, *keywords.values())):
        text: compat.VariableTracker = compat.StringFormatVariable(template, given, keywords)
        return text
    values = [each.as_python_constant() for each in given]
    known = {name: each.as_python_constant() for name, each in keywords.items()}
    made: compat.VariableTracker = compat.ConstantVariable.create(template.format(*values, **known))
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
