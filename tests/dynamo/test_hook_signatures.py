"""What stands in front of a function of torch's takes all that its callers may give."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

import bcmend.tracing.entry.declarations  # noqa: F401  which declares the hooks
from bcmend.dynamo import hooks

_PARAMETER: Final = inspect.Parameter

Call = tuple[tuple[object, ...], dict[str, object]]


def _ways(signature: inspect.Signature) -> Iterator[Call]:
    """Yield ways to call a function: each default left out, given in order and given by name."""
    parameters = signature.parameters.values()
    in_order = [
        each
        for each in parameters
        if each.kind in (_PARAMETER.POSITIONAL_ONLY, _PARAMETER.POSITIONAL_OR_KEYWORD)
    ]
    by_name = [each for each in parameters if each.kind is _PARAMETER.KEYWORD_ONLY]
    is_required = lambda each: each.default is each.empty  # noqa: E731
    least = (None,) * sum(map(is_required, in_order))
    always: dict[str, object] = {each.name: None for each in filter(is_required, by_name)}
    yield least, always
    yield (None,) * len(in_order), always
    for each in (*in_order[len(least) :], *by_name):
        if each.kind is not _PARAMETER.POSITIONAL_ONLY:
            yield least, {**always, each.name: None}
    kinds = {each.kind for each in parameters}
    if _PARAMETER.VAR_POSITIONAL in kinds:
        yield (None,) * (len(in_order) + 2), always
    if _PARAMETER.VAR_KEYWORD in kinds:
        yield least, {**always, "a_name_of_no_parameter": None}


def refused(function: Callable[..., Any], target: Callable[..., Any]) -> list[Call]:
    """Return the ways to call ``target`` in which ``function`` cannot be called in its place."""
    own, found = inspect.signature(function), []
    for arguments, named in _ways(inspect.signature(target)):
        try:
            own.bind(None, *arguments, **named)  # the function behind it comes first
        except TypeError:
            found.append((arguments, named))
    return found


def _hooks() -> Iterator[Any]:
    registry = hooks.REGISTRY
    for hook in (*registry.hooks, *registry.watches):
        target = hooks.original(getattr(hook.owner, hook.name, None))
        try:
            inspect.signature(target)
        except (TypeError, ValueError):
            continue  # one of C, which says nothing
        yield pytest.param(hook, target, id=f"{hook.target}-{hook.function.__module__}")


HOOKS: Final = list(_hooks())


def test_most_hooks_are_compared() -> None:
    assert len(HOOKS) > 150


@pytest.mark.parametrize(("hook", "target"), HOOKS)
def test_a_hook_takes_what_its_target_takes(hook: hooks.Hook, target: Callable[..., Any]) -> None:
    assert refused(hook.function, target) == []


def _target(self: object, item: object, kind: object = None, *, name: object = None) -> None: ...


def _whole(inner: object, self: object, item: object, *more: object, **named: object) -> None: ...


def _in_order_alone(inner: object, self: object, item: object, *more: object) -> None: ...


def _by_name_alone(inner: object, self: object, item: object, **named: object) -> None: ...


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_whole, []),
        (_in_order_alone, [((None, None), {"kind": None}), ((None, None), {"name": None})]),
        (_by_name_alone, [((None, None, None), {})]),
    ],
)
def test_what_a_hook_cannot_be_given(function: Callable[..., Any], expected: list[Call]) -> None:
    assert refused(function, _target) == expected
