"""The table of patched functions and of what is known of code, without torch or Dynamo."""

from __future__ import annotations

import gc
import weakref
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.patching.table import NOBODY, Patched, Table, touches
from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.mended import Mended, Written
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.body_states import Stop
from bcmend.tracing.sites.site_table import LiveSite


def _function(source: str = "return x + 1", **scope: Any) -> FunctionType:
    scope.setdefault("__name__", "user.module")
    exec(f"def function(x):\n    {source}", scope)
    found: FunctionType = scope["function"]
    return found


def _mended(original: CodeType) -> Mended:
    shell, body = original.replace(co_name="shell"), original.replace(co_name="body")
    written = Written(shell, body, {shell: original, body: original})
    return Mended(original, (), lambda: written)


def _patched(table: Table, function: FunctionType, owner: int = 1) -> Patched:
    code = function.__code__
    made = Patched(weakref.ref(function), code, _mended(code), DEFAULT, {owner})
    table.functions[id(function)] = made
    return made


def test_a_patched_function_is_found_by_its_identity() -> None:
    table, one, other = Table(), _function(), _function()
    patched = _patched(table, one)
    assert table.of(one) is patched
    assert table.of(other) is None
    assert table.alive() == [(one, patched)]


def test_a_function_that_is_gone_is_not_alive() -> None:
    table, function = Table(), _function()
    _patched(table, function)
    del function
    gc.collect()
    assert table.alive() == []


def test_the_original_and_the_shell_run_the_original_instructions() -> None:
    patched = _patched(Table(), _function())
    assert patched.runs(patched.original)
    assert patched.runs(patched.mended.shell)
    assert not patched.runs(patched.mended.body)


# Analyses


def test_an_analysis_serves_all_functions_that_share_the_code_under_one_policy() -> None:
    table, one = Table(), _function()
    other = FunctionType(one.__code__, {})
    mended = _mended(one.__code__)
    table.note_analysis(one, DEFAULT, mended)
    assert table.analysis(other, one.__code__, DEFAULT) is mended
    assert table.analysis(other, one.__code__, Policy(branch="where")) is None
    assert table.analysis(other, _function().__code__, DEFAULT) is None


def test_an_analysis_lives_as_long_as_a_function_that_has_it() -> None:
    table, one = Table(), _function()
    other, code = FunctionType(one.__code__, {}), one.__code__
    table.note_analysis(one, DEFAULT, _mended(code))
    table.analysis(other, code, DEFAULT)
    del one
    gc.collect()
    assert table.analysis(other, code, DEFAULT) is not None
    del other
    gc.collect()
    assert table.analysis(_function(), code, DEFAULT) is None


def test_code_is_analysed_anew_after_it_was_forgotten() -> None:
    table, function = Table(), _function()
    for forget in (
        lambda: table.forget_analysis(function.__code__, DEFAULT),
        table.forget_analyses,
    ):
        table.note_analysis(function, DEFAULT, _mended(function.__code__))
        forget()
        assert table.analysis(function, function.__code__, DEFAULT) is None


# Places


def test_a_place_is_new_only_once_and_for_one_kind() -> None:
    table, code = Table(), _function().__code__
    assert table.note(Claim.DECIDED, code, {2, 4})
    assert not table.note(Claim.DECIDED, code, {4})
    assert table.note(Claim.DECIDED, code, {4, 6})
    assert table.note(Claim.ALL_TURNS, code, {4})
    assert table.seen(Claim.DECIDED) == {(id(code), 2), (id(code), 4), (id(code), 6)}
    assert table.seen(Claim.ALL_TURNS) == {(id(code), 4)}


def test_nothing_to_note_is_nothing_new() -> None:
    assert not Table().note(Claim.DECIDED, _function().__code__, set())


def test_places_go_with_their_code() -> None:
    table, function = Table(), _function()
    table.note(Claim.DECIDED, function.__code__, {2})
    del function
    gc.collect()
    assert table.seen(Claim.DECIDED) == frozenset()


# Code that was written


def test_code_that_was_written_belongs_to_all_functions_with_that_result() -> None:
    table, one, other, third = Table(), _function(), _function(), _function("return -x")
    first, alone = _patched(table, one), _patched(table, third)
    second = _patched(table, other)
    second.mended = first.mended
    assert table.owners_of(first.mended.body) == [[first, second]]
    assert table.owners_of(alone.mended.body) == [[alone]]
    assert table.owners_of(one.__code__) == []


def test_equal_code_with_another_result_belongs_to_both() -> None:
    table, one, other = Table(), _function(), _function()
    first, second = _patched(table, one), _patched(table, other)
    assert first.mended.body == second.mended.body  # Dynamo may have met either first
    assert table.owners_of(first.mended.body) == [[first], [second]]


def test_nested_code_is_found_in_the_functions_that_hold_it() -> None:
    table, function = Table(), _function("return (lambda y: y * 2)(x)")
    patched = _patched(table, function)
    (nested,) = [each for each in function.__code__.co_consts if isinstance(each, CodeType)]
    equal = nested.replace()
    assert table.holders_of(equal) == [(patched, nested)]
    assert table.holders_of(equal)[0][1] is nested
    assert table.holders_of(nested.replace(co_filename="elsewhere.py")) == []
    assert table.holders_of(function.__code__) == []


def test_the_patched_functions_on_the_stack_come_innermost_first() -> None:
    table, inner, outer = Table(), _function("return -x"), _function()
    first, second = _patched(table, inner), _patched(table, outer)
    codes = [first.mended.body, _function("return 7").__code__, second.mended.body]
    assert table.on_stack(Stop(None, code, ()) for code in codes) == [first, second]


def test_the_original_behind_a_frame() -> None:
    table, function = Table(), _function("return (lambda y: y * 2)(x)")
    patched = _patched(table, function)
    (nested,) = [each for each in function.__code__.co_consts if isinstance(each, CodeType)]
    unpatched = _function("return 7")

    def original(code: CodeType, named: FunctionType | None = None) -> CodeType | None:
        return table.original_of(Stop(named, code, ()), DEFAULT)

    assert original(patched.mended.body) is patched.original
    assert original(nested) is nested
    assert original(patched.original, function) is patched.original
    assert original(unpatched.__code__, unpatched) is unpatched.__code__
    assert original(unpatched.__code__) is None
    foreign = _function("return 8", __name__="torch.nn")
    assert original(foreign.__code__, foreign) is None


def test_a_policy_touches_a_function_by_the_module_of_its_globals() -> None:
    assert touches(DEFAULT, _function())
    assert not touches(DEFAULT, _function(__name__="torch.nn"))
    assert not touches(Policy(exclude=("user.module",)), _function())


# What was reached


def test_code_is_as_it_was_written_whether_patched_or_not() -> None:
    table, function = Table(), _function()
    code = function.__code__
    assert table.as_written(function) is code
    patched = _patched(table, function)
    function.__code__ = patched.mended.shell
    assert table.as_written(function) is code


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("return x.weight", True),
        ("return getattr(x, 'weight')", True),
        ("return (lambda: x.weight)()", True),
        ("return x.bias", False),
    ],
)
def test_an_attribute_is_named_by_other_code_that_was_reached(source: str, expected: bool) -> None:
    table, reader, other = Table(), _function("return x.weight"), _function(source)
    table.note_reached(1, [reader, other])
    assert table.is_named_elsewhere("weight", reader.__code__) is expected


def test_code_reached_for_another_owner_does_not_count() -> None:
    table, reader, other = Table(), _function("return x.weight"), _function("x.weight = 1")
    table.note_reached(1, [reader])
    table.note_reached(2, [other])
    assert not table.is_named_elsewhere("weight", reader.__code__)
    table.note_reached(2, [reader])
    assert table.is_named_elsewhere("weight", reader.__code__)


def test_nested_code_counts_as_other_than_the_code_around_it() -> None:
    table, function = Table(), _function("return (lambda: x.weight)()")
    (nested,) = [each for each in function.__code__.co_consts if isinstance(each, CodeType)]
    table.note_reached(1, [function])
    assert table.is_named_elsewhere("weight", function.__code__)
    assert not table.is_named_elsewhere("weight", nested)


def test_what_an_owner_leaves_stays_patched_and_is_nobodys() -> None:
    table, alone, shared = Table(), _function(), _function()
    first, second = _patched(table, alone), _patched(table, shared)
    second.owners.add(2)
    table.note_reached(1, [alone])
    table.orphan(1)
    assert (first.owners, second.owners) == ({NOBODY}, {NOBODY, 2})
    assert [code for code, _ in table.reached[NOBODY].items()] == [first.original]
    assert 1 not in table.reached


def test_an_owner_that_reached_nothing_leaves_nothing() -> None:
    table = Table()
    table.orphan(3)
    assert table.reached == {}


def test_code_whose_name_a_patched_function_has_keeps_a_marked_key() -> None:
    table, one, other, third = Table(), _function(), _function("pass"), _function("return x")
    name = "user.module.function:2:branch"
    assert table.key_for(name, one.__code__) == name
    site_table.register(LiveSite(name, "branch", one.__code__))
    assert table.key_for(name, other.__code__) == name  # the other is not patched
    _patched(table, one)
    assert table.key_for(name, one.__code__) == name
    assert table.key_for(name, other.__code__) == f"{name}@2"
    assert not table.may_have(other.__code__, name)
    site_table.register(LiveSite(f"{name}@2", "branch", other.__code__))
    _patched(table, other)
    assert table.key_for(name, third.__code__) == f"{name}@3"
    table.functions.clear()
    assert table.key_for(name, other.__code__) == f"{name}@2"
    assert table.key_for(name, _function("return -x").__code__) == name
