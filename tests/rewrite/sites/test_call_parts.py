"""Where the callee and the arguments of a call are pushed."""

from __future__ import annotations

from typing import Any

import pytest

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import CALLS, row
from bcmend.rewrite.passes.unbound_marks import with_marks
from bcmend.rewrite.sites.call_parts import (
    arguments_of,
    is_attribute_load,
    is_constant,
    is_false,
    keyword_argument,
    keywords_of,
    path_read,
    starred_arguments_of,
    start_of,
)
from bcmend.rewrite.sites.plan import CodeRange


def _facts(function: Any) -> Facts:
    return facts_of(decode(function.__code__))


def _last_call(facts: Facts) -> tuple[int, int]:
    """Return where the last call of a function begins, and the call."""
    call = max(i for i, each in enumerate(facts.instructions) if each.op in CALLS)
    instruction = facts.instructions[call]
    start = start_of(facts, call, row(instruction.op).effect(instruction.arg)[0])
    assert start is not None
    return start, call


def _loads(facts: Facts, part: CodeRange) -> list[object]:
    """Return the names and constants that a slice loads, in order."""
    code = facts.instructions[part.start : part.end]
    loading = [each for each in code if each.op.startswith("LOAD_")]
    return [names_of(each) or each.arg for each in loading]


def _arguments(function: Any) -> list[list[object]]:
    facts = _facts(function)
    return [_loads(facts, part) for part in arguments_of(facts, *_last_call(facts))]


def _plain(f, x, y):
    return f(x, y.real, 3)


def _with_keywords(f, x, y):
    return f(x, a=y, b=1)


def _method(f, x, y):
    return f.inner.method(x)


def _chosen(f, x, y):
    z = f(x or y, y if x else 1)
    return z, x, y, z, x  # too long to be copied into both arms


def _none(f, x, y):
    return f()


def _starred(f, x, y):
    return f(*x)


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_plain, [["x"], ["y", "real"], [3]]),
        (_with_keywords, [["x"], ["y"], [1]]),
        (_method, [["x"]]),
        (_chosen, [["x", "y"], ["x", "y", 1]]),
        (_none, []),
        (_starred, []),
    ],
)
def test_arguments_are_the_slices_that_push_them(function: Any, expected: object) -> None:
    assert _arguments(function) == expected


def test_a_call_begins_with_its_callee() -> None:
    facts = _facts(_plain)
    start, call = _last_call(facts)
    assert start == 1 and facts.instructions[0].op == "RESUME"
    assert facts.depth_before(start) == 0
    (first, *_) = arguments_of(facts, start, call)
    assert start_of(facts, call, 1) == arguments_of(facts, start, call)[-1].start
    assert first.start > start


def test_the_start_of_operands_in_another_block_is_not_found() -> None:
    def f(x, y):
        return [x, *(y if x else x)]

    facts = _facts(f)
    assert start_of(facts, 1, 1) is None


@pytest.mark.parametrize(
    ("function", "names"),
    [(_plain, ()), (_with_keywords, ("a", "b")), (_none, ()), (_starred, None)],
)
def test_names_of_keywords(function: Any, names: object) -> None:
    facts = _facts(function)
    assert keywords_of(facts, _last_call(facts)[1]) == names


def test_an_argument_by_its_keyword() -> None:
    facts = _facts(_with_keywords)
    start, call = _last_call(facts)
    found = keyword_argument(facts, start, call, "a")
    assert found is not None and _loads(facts, found) == ["y"]
    assert keyword_argument(facts, start, call, "c") is None
    assert keyword_argument(_facts(_plain), *_last_call(_facts(_plain)), "a") is None


def _starred_with_keywords(f, x, y):
    return f(*x, **y)


@pytest.mark.parametrize(
    ("function", "names"), [(_starred, ["x"]), (_starred_with_keywords, ["x", "y"])]
)
def test_what_pushes_unpacked_arguments(function: Any, names: list[str]) -> None:
    facts = _facts(function)
    found = starred_arguments_of(facts, *_last_call(facts))
    assert found is not None and _loads(facts, found) == names
    assert starred_arguments_of(_facts(_plain), *_last_call(_facts(_plain))) is None


def test_the_path_that_is_read_ends_before_a_method() -> None:
    def f(x):
        return x.inner.value, x.inner.method()

    facts = _facts(f)
    loads = [i for i, each in enumerate(facts.instructions) if each.arg == "x"]
    assert [path_read(facts, load) for load in loads] == [
        ("x", "inner", "value"),
        ("x", "inner"),
    ]


def test_loads_of_attributes_and_methods() -> None:
    def f(x, y):
        x.value = y.value
        return y.method()

    facts = _facts(f)
    found = [each for i, each in enumerate(facts.instructions) if is_attribute_load(facts, i)]
    assert [names_of(each) for each in found] == ["value", "method"]
    assert all(each.op.startswith("LOAD_") for each in found)


def test_constants_and_false_ones() -> None:
    def f(x):
        return x(0, 2, x)

    facts = _facts(f)
    zero, two, variable = arguments_of(facts, *_last_call(facts))
    assert is_constant(facts, zero) and is_constant(facts, two)
    assert not is_constant(facts, variable)
    assert is_false(facts, zero) and not is_false(facts, two) and not is_false(facts, variable)


def test_the_check_of_a_mark_belongs_to_the_argument_that_it_is_for() -> None:
    def f(print, x):
        if x:
            y = x
        print(x, y)

    unmarked = _facts(f)
    facts = facts_of(with_marks(unmarked, frozenset(["y"])))
    call = max(i for i, each in enumerate(facts.instructions) if each.op == "CALL")
    start = start_of(facts, call, row("CALL").effect(2)[0])
    assert start is not None
    one, other = arguments_of(facts, start, call)
    assert _loads(facts, one) == ["x"]
    assert one.end == other.start and "unbound" in _loads(facts, other)
    assert facts.instructions[other.end - 1].arg == "y"
