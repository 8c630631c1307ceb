"""The gate in front of a function: which way it goes, and how arguments get through it."""

from __future__ import annotations

from types import FunctionType, SimpleNamespace
from typing import Any

import pytest

from bcmend.names import CALLBACK, COMPILER, EXPORTING, NAMESPACE, TRACING
from tests.rewrite.programs import PROGRAMS, Derived
from tests.stand_ins import EverythingMended, NothingToMend, mended, outcome_of, with_code


class Boundary(EverythingMended):
    """Notes the calls that reach the boundary."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: list[tuple[Any, ...]] = []

    def run(self, body: FunctionType, arguments: tuple[Any, ...]) -> Any:
        self.calls.append(arguments)
        return body(*arguments, [], ())


def _shell(
    function: FunctionType, primitives: object, *, traced: bool, compiling: bool
) -> FunctionType:
    names = {
        **function.__globals__,
        NAMESPACE: primitives,
        TRACING: lambda: traced,
        CALLBACK: lambda: print if compiling else None,
        COMPILER: SimpleNamespace(**{EXPORTING: False}),
    }
    return with_code(function, mended(function.__code__, names).shell, names)


class Untouchable:
    """Fails when anything is asked of it."""

    def __getattr__(self, name: str) -> object:
        raise AssertionError(f"asked for {name}")


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_eager_call_runs_the_original_alone(name: str) -> None:
    program = PROGRAMS[name]
    shell = _shell(program.function, Untouchable(), traced=False, compiling=False)
    for call in program.calls:
        logs: list[list[object]] = [[], []]
        given = [(log, *call) if program.takes_log else call for log in logs]
        expected = outcome_of(program.function, *given[0])
        found = outcome_of(shell, *given[1])
        assert repr(found) == repr(expected) and logs[0] == logs[1]


def _all_kinds(a, b, /, c, d=4, *rest, e, f=6, **others):
    if a:
        c = c + 1
    return a, b, c, d, rest, e, f, others


def _cells(a, /, b, *rest, c=3, **others):
    def read():
        return a, b, rest, c, others

    if a:
        b = b + 1
    return read()


CALLS: list[tuple[tuple[Any, ...], dict[str, Any]]] = [
    ((1, 2, 3), {"e": 5}),
    ((0, 2), {"c": 3, "e": 5}),
    ((1, 2, 3, 4, 5, 6), {"e": 0, "f": 7, "g": 8}),
    ((0, 2), {"c": 3, "d": 9, "e": 5, "a": 10, "b": 11}),
]


@pytest.mark.parametrize(("arguments", "keywords"), CALLS)
@pytest.mark.parametrize("function", [_all_kinds, _cells])
def test_every_kind_of_parameter_gets_through(
    function: FunctionType, arguments: tuple[Any, ...], keywords: dict[str, Any]
) -> None:
    expected = outcome_of(function, *arguments, **keywords)
    for traced, compiling in ((False, False), (False, True), (True, False), (True, True)):
        boundary = Boundary()
        shell = _shell(function, boundary, traced=traced, compiling=compiling)
        found = outcome_of(shell, *arguments, **keywords)
        assert found.value == expected.value
        assert (found.error is None) == (expected.error is None)
        assert bool(boundary.calls) is (compiling and not traced and found.error is None)


def test_a_wrong_call_is_refused_as_before() -> None:
    shell = _shell(_all_kinds, Boundary(), traced=True, compiling=True)
    for arguments, keywords in (((), {}), ((1, 2), {"c": 3}), ((1,), {"b": 2, "e": 3})):
        expected = outcome_of(_all_kinds, *arguments, **keywords).error
        found = outcome_of(shell, *arguments, **keywords).error
        assert expected is not None and found is not None
        assert found[:2] == expected[:2]


def test_the_boundary_gets_arguments_in_order() -> None:
    boundary = Boundary()
    shell = _shell(_all_kinds, boundary, traced=False, compiling=True)
    shell(1, 2, 3, 4, 5, e=6, g=7)
    # keyword-only parameters stand before the tuple and the dictionary of the rest
    assert boundary.calls == [(1, 2, 3, 4, 6, 6, (5,), {"g": 7})]


def test_a_function_with_free_variables() -> None:
    count = 10

    def outer(x):
        nonlocal count
        if x:
            count += x
        return count

    for traced, expected in ((True, 11), (False, 12)):
        shell = _shell(outer, Boundary(), traced=traced, compiling=not traced)
        assert shell(1) == expected == count


@pytest.mark.parametrize("name", ["method", "returns", "stores"])
@pytest.mark.parametrize("traced", [False, True])
def test_methods_find_their_base(name: str, traced: bool) -> None:
    function = vars(Derived)[name]
    shell = _shell(function, Boundary(), traced=traced, compiling=not traced)
    for x in (-1, 0, 2):
        assert shell(Derived(), x) == function(Derived(), x)


def test_a_class_method_finds_its_base() -> None:
    function = vars(Derived)["build"].__func__
    shell = _shell(function, Boundary(), traced=True, compiling=False)
    for x in (-1, 2):
        assert shell(Derived, x) == function(Derived, x)


def test_a_function_without_sites_is_handed_to_the_boundary_but_not_when_traced() -> None:
    def f(x):
        return x + 1

    boundary = Boundary()
    assert _shell(f, boundary, traced=False, compiling=True)(1) == 2
    assert boundary.calls == [(1,)]
    assert _shell(f, Untouchable(), traced=True, compiling=False)(1) == 2


def test_a_shell_keeps_everything_that_can_be_read_of_a_code_object() -> None:
    for function in (_all_kinds, _cells, *(each.function for each in PROGRAMS.values())):
        shell = _shell(function, NothingToMend(), traced=False, compiling=False)
        for name in (
            "co_name",
            "co_qualname",
            "co_filename",
            "co_firstlineno",
            "co_flags",
            "co_varnames",
            "co_cellvars",
            "co_freevars",
            "co_argcount",
            "co_posonlyargcount",
            "co_kwonlyargcount",
        ):
            assert getattr(shell.__code__, name) == getattr(function.__code__, name)


def test_what_the_boundary_raises_is_handed_to_leave_out_and_raised_again() -> None:
    class Failing(Boundary):
        left_out: BaseException | None = None

        def run(self, body: FunctionType, arguments: tuple[Any, ...]) -> Any:
            raise ValueError(*arguments)

        def leave_out(self, error: BaseException) -> None:
            self.left_out = error
            assert error.__traceback__ is not None
            error.__traceback__ = error.__traceback__.tb_next

    def f(x: int) -> int:
        try:
            print(x)
        finally:
            x += 1
        return x

    primitives = Failing()
    shell = _shell(f, primitives, traced=False, compiling=True)
    with pytest.raises(ValueError) as raised:
        shell(3)
    assert raised.value is primitives.left_out and raised.value.args == (3,)
    entry = raised.value.__traceback__
    names = []
    while entry is not None:
        names.append(entry.tb_frame.f_code.co_name)
        entry = entry.tb_next
    assert names[1:] == ["run"]  # behind the test itself, and without the shell
