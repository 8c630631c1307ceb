"""What classes of bcmend override of torch takes what torch gives it, in each recorded release."""

from __future__ import annotations

import importlib
import inspect
import pkgutil
from collections.abc import Iterator
from types import FunctionType
from typing import Any, Final

import pytest

import bcmend.dynamo
import bcmend.tracing
from bcmend.dynamo import compat
from bcmend.dynamo.contract import recorded, written
from bcmend.tracing.speculation import arms

_PARAMETERS: Final = inspect.Parameter


def _classes() -> Iterator[type]:
    """Yield the classes of the package that are derived from one of torch's."""
    for package in (bcmend.dynamo, bcmend.tracing):
        for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            module = importlib.import_module(each.name)
            for value in vars(module).values():
                is_own = isinstance(value, type) and value.__module__ == module.__name__
                if is_own and any(kind.__module__.startswith("torch.") for kind in value.__mro__):
                    yield value
    yield arms._recording_kind(compat.SideEffects)


def _overridden() -> Iterator[Any]:
    """Yield methods of the package, each with the class of torch that has one of that name."""
    for kind in _classes():
        bases = [each for each in kind.__mro__ if each.__module__.startswith("torch.")]
        own = kind.__mro__[: kind.__mro__.index(bases[0])]
        methods = {name: each for part in reversed(own) for name, each in vars(part).items()}
        for name, function in methods.items():
            base = next((each for each in bases if name in vars(each)), None)
            if base is not None and isinstance(function, FunctionType) and name != "__init__":
                yield pytest.param(function, name, base, id=f"{kind.__name__}.{name}")


OVERRIDDEN: Final = list(_overridden())


def _parameters(base: type, name: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the names of the parameters of a method of torch's, by release.

    Behind one that has a default, and so may be given by its name, is a ``=``.
    """
    running = vars(base)[name]
    if isinstance(running, FunctionType):
        yield "the running one", _names(written.parameters(running))
    for release in recorded.releases():
        known = release.facts["classes"].get(base.__name__, {}).get("methods", {}).get(name)
        if known is not None:
            yield release.version, _names(known)


def _names(parameters: str) -> list[str]:
    """Return the names in a text of ``written``; one behind a ``!`` is given by its name alone."""
    names = [each.strip() for each in parameters.split(",")]
    return [
        f"{each[1:].rstrip('=')}=" if each.startswith("!") else each
        for each in names
        if not each.startswith("*")
    ]


def lacking(function: FunctionType, names: list[str]) -> set[str]:
    """Return which parameters a function cannot be given, by position or by name."""
    own = inspect.signature(function).parameters.values()
    by_position = [each for each in own if each.kind is not _PARAMETERS.KEYWORD_ONLY]
    kinds = {each.kind for each in own}
    takes_any_named = _PARAMETERS.VAR_KEYWORD in kinds
    takes_more = _PARAMETERS.VAR_POSITIONAL in kinds
    known = {each.name for each in own}
    required = [each for each in names if not each.endswith("=")]
    more = set() if takes_more else set(required[len(by_position) :])
    named = {each.rstrip("=") for each in names if each.endswith("=")}
    return more | (set() if takes_any_named else named - known)


def _in_order(*given: object, last: object = None) -> None: ...


def _named(self: object, item: object, **more: object) -> None: ...


def _bare(self: object, item: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "names", "expected"),
    [
        (_in_order, ["self", "other", "last="], set()),
        (_in_order, ["self", "item="], {"item"}),
        (_named, ["self", "other"], set()),
        (_named, ["self", "item", "name="], set()),
        (_bare, ["self", "item", "name="], {"name"}),
        (_bare, ["self", "item", "name"], {"name"}),
    ],
)
def test_what_a_function_cannot_be_given(
    function: FunctionType, names: list[str], expected: set[str]
) -> None:
    assert lacking(function, names) == expected


def test_a_method_that_torch_gives_more_is_among_them() -> None:
    names = {each.id for each in OVERRIDDEN}
    assert {"RecordingSideEffects.store_attr", "LazyPhi.call_method"} <= names


@pytest.mark.parametrize(("function", "name", "base"), OVERRIDDEN)
def test_what_is_overridden_takes_what_torch_gives(
    function: FunctionType, name: str, base: type
) -> None:
    for release, names in _parameters(base, name):
        missing = lacking(function, names)
        assert not missing, f"torch {release} gives {function.__qualname__} {missing}"
