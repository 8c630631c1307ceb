"""No name of Dynamo's objects is used outside of the adapter that the adapter does not list."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Iterable
from pathlib import Path

import pytest
import torch

from bcmend.dynamo import compat
from bcmend.dynamo.models import stable_names
from tests.dynamo.models import names_in_use
from tests.dynamo.models.names_in_use import Code, Use

PACKAGE = Path(compat.__file__).parent.parent
LISTED = frozenset[str]().union(stable_names.META, *stable_names.NAMES.values())


def _sources(*, of_adapter: bool) -> dict[str, str]:
    adapter = PACKAGE / "dynamo"
    return {
        str(file.relative_to(PACKAGE)): file.read_text(encoding="utf-8")
        for file in sorted(PACKAGE.rglob("*.py"))
        if file.is_relative_to(adapter) is of_adapter
    }


@functools.cache
def _outside() -> Code:
    return Code(_sources(of_adapter=False))


def _of_dynamo() -> frozenset[str]:
    """Return the names that Dynamo's classes define, but for opcodes and constants."""
    names = {name for each in names_in_use.of_dynamo().values() for name in each.names}
    return frozenset(name for name in names if not name.isupper())


def _is_made_of_words(name: str) -> bool:
    return "_" in name.strip("_") or (name.startswith("_") and len(name) > 1)


@functools.cache
def _of_others() -> frozenset[str]:
    adapter = Code(_sources(of_adapter=True))
    return names_in_use.public_names() | _outside().own_names() | adapter.own_names()


def unlisted(code: Code) -> list[Use]:
    """Return the names of Dynamo's objects in code that the adapter neither lists nor wraps."""
    others, names = _of_others() | code.own_names(), _of_dynamo() - LISTED
    by_name = [each for each in code.attributes() if each.name not in others]
    by_word = [
        each for each in code.words() if each.name not in others and _is_made_of_words(each.name)
    ]
    overridden = [each for each in code.overrides() if not each.name.startswith("__")]
    found = [*by_name, *by_word, *overridden, *code.of_private_classes()]
    return sorted({each for each in found if each.name in names})


def test_every_name_of_dynamo_is_listed_or_wrapped() -> None:
    assert unlisted(_outside()) == []


def _words_of_dynamo() -> set[str]:
    folder = Path(inspect.getfile(compat.VariableTracker)).parent.parent
    return {word for file in folder.rglob("*.py") for word in re.findall(r"\w+", file.read_text())}


def test_names_of_some_releases_are_names_of_these() -> None:
    known = {name for each in names_in_use.of_dynamo().values() for name in each.names}
    known |= set(vars(compat.object_protocol))
    running = ".".join(torch.__version__.split(".")[:2])
    for releases, names in stable_names.OF_SOME_RELEASES.items():
        if running in releases:
            assert names <= _words_of_dynamo()
        else:
            assert not names & known, "it has a row of its own, or none"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(value): return value.original_items", "original_items"),
        ("def f(value): return getattr(value, 'dv_dict')", "dv_dict"),
        ("def f(value): return vars(value).get('dv_dict')", "dv_dict"),
        ("TABLES = '''keepalive mutation_user_stacks'''", "mutation_user_stacks"),
        ("def f(v):\n  match v:\n    case compat.DequeVariable(maxlen=3): ...", "maxlen"),
        ("class Heir(compat.ListVariable):\n  def nb_add_impl(self, tx): ...", "nb_add_impl"),
        ("class Mixed:\n  is_mutable = 1\nclass X(Mixed, compat.ListVariable): ...", "is_mutable"),
        ("def f(tx): return compat.TupleVariable.index(tx)", "index"),
    ],
)  # fmt: skip
def test_a_name_that_is_not_listed_is_found(text: str, name: str) -> None:
    assert name not in LISTED
    found = unlisted(Code({"new.py": text}))
    assert [each.name for each in found] == [name]


def test_listed_names_are_defined_by_their_classes() -> None:
    classes = names_in_use.of_dynamo()
    missing = {
        kind: sorted(names - names_in_use.names_in(kind, classes))
        for kind, names in stable_names.NAMES.items()
    }
    assert {kind: names for kind, names in missing.items() if names} == {}


def _lacking(code: Code) -> list[Use]:
    """Return the names that are neither Dynamo's nor those of others."""
    known = names_in_use.public_names() | code.own_names() | set(vars(compat.object_protocol))
    known |= {name for each in names_in_use.of_dynamo().values() for name in each.names}
    known |= frozenset[str]().union(*stable_names.OF_SOME_RELEASES.values())
    words = [each for each in code.words() if re.fullmatch("_?[a-z]+(_[a-z]+)+", each.name)]
    used = [each for each in code.attributes() if not each.name.isupper()]
    return [each for each in (*used, *words) if each.name not in known]


def test_names_that_are_wrapped_are_those_of_dynamo() -> None:
    of_tables = ("methods.py", "stable_names.py")
    wrapped = {
        file.name: file.read_text(encoding="utf-8")
        for file in (PACKAGE / "dynamo" / "models").glob("*.py")
        if file.name not in of_tables
    }
    assert _lacking(Code(wrapped)) == []
    text = "def f(value): return value._base_vt_of_old, vars(value)['should_reconstruct_none']"
    names = [each.name for each in _lacking(Code({"new.py": text}))]
    assert names == ["_base_vt_of_old", "should_reconstruct_none"]


def test_a_name_that_torch_lacks_is_found() -> None:
    classes = names_in_use.of_dynamo()
    assert "sq_contains_anything" not in names_in_use.names_in("ListVariable", classes)
    assert "as_proxy" in names_in_use.names_in("ListVariable", classes)
    assert names_in_use.names_in("NoSuchVariable", classes) == frozenset()


def test_listed_names_are_used_and_public() -> None:
    uses = (*_outside().attributes(), *_outside().words(), *_outside().overrides())
    assert sorted(LISTED - {each.name for each in uses}) == []
    assert [each for each in LISTED if re.match("_[^_]", each)] == []


def test_hooks_are_declared_with_names_of_the_adapter() -> None:
    assert _outside().hooks_by_text() == []
    text = "hooks.around(compat.ListVariable, 'sq_length', 'a test')"
    (found,) = Code({"new.py": text}).hooks_by_text()
    assert found.name == "'sq_length'"


def _constructed(code: Code) -> set[str]:
    return {each.name for each in code.constructors()}


def test_private_classes_are_called_as_listed() -> None:
    assert _constructed(_outside()) == stable_names.CONSTRUCTORS.keys()
    text = "compat.ConstDictVariable({}, dict)"
    assert _constructed(Code({"new.py": text})) == {"ConstDictVariable"}


def _parameters(kind: type) -> Iterable[str]:
    return inspect.signature(kind).parameters


@pytest.mark.parametrize("name", stable_names.CONSTRUCTORS)
def test_listed_parameters_are_those_of_the_class(name: str) -> None:
    given = stable_names.CONSTRUCTORS[name]
    assert set(given) <= set(_parameters(getattr(compat, name)))
