"""Texts are a format and its values."""

from __future__ import annotations

from bcmend.dynamo import compat
from bcmend.dynamo.models import texts
from bcmend.dynamo.values import constant

PART = compat.VariableTracker()


def test_a_text_has_its_format_and_its_values() -> None:
    made = texts.text_of("{} of {name}", [PART], {"name": PART})
    assert type(made) is compat.StringFormatVariable
    assert texts.template_of(made) == "{} of {name}"
    assert texts.arguments_of(made) == [PART]
    assert texts.named_arguments_of(made) == {"name": PART}
    assert texts.parts_of(made) == [PART, PART]


def test_a_text_of_constants_is_one() -> None:
    assert texts.text_of("{}", [constant(1)], {}).as_python_constant() == "1"
