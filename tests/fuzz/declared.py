"""Differences that docs/deviations.md declares, and one of CPython's own.

Reads what was seen of a call in eager execution and of the same call in another way.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any, Final

import torch
from torch import Tensor

from tests.freezing import frozen_differences
from tests.fuzz.programs import Program, policy_of
from tests.observation import Observation

#: What output of `tests.fuzz.prelude` fails with.
_FAILING: Final = (
    "'full'",
    "'no handling'",
    "'no text'",
    "'%d format: a real number is required, not str'",
)


def is_declared_end(program: Program, one: Observation, two: Observation) -> bool:
    """Return whether a call differs as is declared, so that nothing behind it can be compared."""
    return (
        _has_failed_output(program, one, two)
        or _draws_of_both_sides(program, one, two)
        or _is_not_converted(one, two)
    )


_WRITING: Final = re.compile(r"(print|pprint|warnings\.warn\w*|log\w*\.\w+)\(")


def _has_failed_output(program: Program, one: Observation, two: Observation) -> bool:
    """Return whether a call has written output that fails: then its rest has run, as is declared.

    What was written before it is there, unless a handler of the program has caught the failure.
    """
    failed, expected = _raised_with(two), _raised_with(one)
    if policy_of(program).output == "drop" and (
        any(each in _FAILING for each in expected) or _WRITING.match(_statement_of(program, one))
    ):
        return True  # what is not written does not fail
    if not any(each in _FAILING for each in failed):
        return False
    return "except" in program.body or (failed == expected and _begins_with(two, one))


def _draws_of_both_sides(program: Program, one: Observation, two: Observation) -> bool:
    """Return whether a policy has had both sides draw while gradients flow, as is declared."""
    if not program.training or policy_of(program).branch != "where":
        return False
    return any(frozen_differences(one.random_state, two.random_state, "random"))


def _is_not_converted(one: Observation, two: Observation) -> bool:
    """Return whether a number that is not finite should have become an unread integer."""
    text = " ".join(_raised_with(one))
    return two.raised is None and text.startswith("'cannot convert float ")


def _statement_of(program: Program, one: Observation) -> str:
    """Return the line of the program that an exception comes from; empty if there is none."""
    parts = _raised_parts(one)
    where = parts["['where']"].parts if parts else None
    line = int(where["[1]"].text) if where else 0
    return dict(enumerate(program.source.splitlines(), 1)).get(line, "").lstrip()


def without_nan(one: Observation, two: Observation) -> Observation:
    """Give a call the gradients of another one where its own are NaN.

    Zeros flow back into what no statement of the side that was taken has used, and zero times
    infinity is NaN, as is declared.
    """
    gradients = {
        name: _less_nan(one.gradients.get(name), each) for name, each in two.gradients.items()
    }
    return replace(two, gradients=gradients)


def _less_nan(one: Tensor | None, other: Tensor | None) -> Tensor | None:
    if other is None or (one is not None and one.shape != other.shape):
        return other
    return torch.where(other.isnan(), torch.zeros_like(other) if one is None else one, other)


#: CPython 3.11 runs a store and a load behind it as one instruction once code is warm, and names
#: the line of the store if there is nothing to load.
_LINE: Final = re.compile(r"raised\.\['where'\]\.\[1\]: int \d+ and int \d+")


def is_of_warm_code(one: Observation, difference: str) -> bool:
    """Return whether a difference is the line of an unbound variable: earlier calls decide it."""
    return "UnboundLocalError" in _kind_of(one) and _LINE.fullmatch(difference) is not None


def is_of_a_piece(program: Program, one: Observation, difference: str) -> bool:
    """Return whether a difference is the line of an operation that failed in a piece of a call.

    An exception out of a graph names the line where its piece begins, in stock too. One that a
    ``raise`` or an ``assert`` raises is none.
    """
    statement = _statement_of(program, one)
    is_known = bool(statement) and _LINE.fullmatch(difference) is not None
    keyword, _, raised = statement.partition(" ")
    kind = _kind_of(one).strip("'").rpartition(".")[2]
    is_raised = keyword == "assert" or (keyword == "raise" and raised.startswith(kind))
    return is_known and not is_raised


def _raised_parts(one: Observation) -> Any:
    """Return what is known of the exception of a call, by name; nothing if there is none."""
    return {} if one.raised is None else one.raised.parts or {}


def _kind_of(one: Observation) -> str:
    """Return the type of the exception of a call."""
    parts = _raised_parts(one)
    return parts["['type']"].text if parts else ""


_STRIDES: Final = re.compile(r".*: strides \((.*?)\) and \((.*?)\) of \((.*?)\)")


def is_of_no_stride(difference: str) -> bool:
    """Return whether strides differ in dimensions of one item alone: Inductor keeps none."""
    found = _STRIDES.fullmatch(difference)
    if found is None:
        return False
    one, other, sizes = (each.strip(",").split(", ") for each in found.groups())
    return all(
        size == "1" or left == right for left, right, size in zip(one, other, sizes, strict=True)
    )


_TRACEBACK: Final = re.compile(r"Traceback \(most recent call last\):\n(  .*\n)+")


def without_tracebacks(text: str) -> str:
    """Return a text without the tracebacks in it.

    Dynamo makes an exception that it has seen raised and caught anew behind a graph break, without
    its traceback, as is declared: a policy that keeps output breaks the graph there.
    """
    return _TRACEBACK.sub("", text)


def _raised_with(one: Observation) -> tuple[str, ...]:
    """Return the texts of the arguments of the exception of a call."""
    parts = _raised_parts(one)
    said = parts["['args']"].parts if parts else None
    return tuple(each.text for each in (said or {}).values())


def _begins_with(longer: Observation, shorter: Observation) -> bool:
    """Return whether what was written begins with all that another call has written."""
    for one, other in zip(longer.events, shorter.events, strict=False):
        if one != other and not (one[0] == other[0] and str(one[1]).startswith(str(other[1]))):
            return False
    return len(longer.events) >= len(shorter.events)
