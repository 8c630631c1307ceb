"""Dynamo's models of encoded values."""

from __future__ import annotations

from bcmend.delivery import codec
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.sites.encoding import encoded, is_encoded


def test_an_encoded_value_is_of_its_kind_alone() -> None:
    value = encoded(codec.TEXT, constant("{}"), constant(1))
    assert is_encoded(value, codec.TEXT)
    assert not is_encoded(value, codec.CHOICE)


def test_the_model_holds_what_the_codec_writes() -> None:
    value = encoded(codec.LABELED, constant("name"), constant(2))
    assert value.as_python_constant() == codec.encoded(codec.LABELED, "name", 2)


def test_a_value_of_the_program_is_not_encoded() -> None:
    items = encoded(codec.TEXT, constant(1)).items  # type: ignore[attr-defined]
    assert not is_encoded(constant(1), codec.TEXT)
    assert not is_encoded(compat.TupleVariable([]), codec.TEXT)
    assert not is_encoded(compat.TupleVariable([constant(1), *items]), codec.TEXT)
    assert not is_encoded(compat.ListVariable(list(items)), codec.TEXT)
