"""Mended code is installed on single functions, for their owners, and removed again."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import pytest
import torch

import bcmend
from bcmend.names import CALLBACK, COMPILER, NAMESPACE, TRACING
from bcmend.patching.installer import (
    analysed,
    forget_unreached,
    install,
    mended_form,
    owned_by,
    remove,
    watch,
)
from bcmend.patching.reach import Reached
from bcmend.patching.table import NOBODY, TABLE
from bcmend.policy import DEFAULT, Policy
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import body_states, site_table
from bcmend.tracing.sites.body_states import BodyState

BRANCH = "return x + 1 if x.sum() > 0 else x - 1"
PLAIN = "return x + 1"
NAMES = {NAMESPACE, TRACING, CALLBACK, COMPILER}


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    remove()
    yield
    remove()


def _function(source: str = BRANCH, scope: dict[str, Any] | None = None) -> FunctionType:
    names: dict[str, Any] = {"__name__": "user.module"} if scope is None else scope
    exec(f"def function(x):\n    {source}", names)
    found: FunctionType = names.pop("function")
    return found


def _install(*functions: FunctionType, owner: int = 1, **more: Any) -> int:
    return install([Reached(each, "") for each in functions], DEFAULT, owner=owner, **more)


def test_only_functions_with_something_to_mend_change() -> None:
    branch, plain = _function(), _function(PLAIN)
    before = branch.__code__, plain.__code__
    assert _install(branch, plain) == 1
    patched = TABLE.of(branch)
    assert patched is not None
    assert branch.__code__ is patched.mended.shell
    assert patched.original is before[0]
    assert plain.__code__ is before[1]
    assert TABLE.of(plain) is None


def test_the_very_same_code_is_put_back_and_the_module_keeps_names_that_nobody_can_spell() -> None:
    branch = _function()
    code, names = branch.__code__, set(branch.__globals__)
    _install(branch)
    assert set(branch.__globals__) == names | NAMES
    assert remove() == 1
    assert branch.__code__ is code
    assert set(branch.__globals__) == names | NAMES
    assert not any(name.isidentifier() for name in NAMES)
    assert TABLE.of(branch) is None


def test_a_function_of_two_owners_stays_until_both_have_removed_it() -> None:
    branch = _function()
    code = branch.__code__
    assert (_install(branch, owner=1), _install(branch, owner=2)) == (1, 0)
    assert owned_by(1) == owned_by(2) == [branch]
    assert remove(1) == 0
    assert branch.__code__ is not code
    assert (owned_by(1), owned_by(2)) == ([], [branch])
    assert remove(2) == 1
    assert branch.__code__ is code


def test_removing_what_nobody_of_that_name_owns_changes_nothing() -> None:
    branch = _function()
    _install(branch, owner=1)
    assert remove(7) == 0
    assert owned_by(1) == [branch]


def test_code_that_somebody_else_put_there_stays() -> None:
    branch, other = _function(), _function(PLAIN).__code__
    _install(branch)
    branch.__code__ = other
    remove()
    assert branch.__code__ is other


def test_a_deferred_function_is_noted_and_not_mended() -> None:
    branch = _function()
    assert install([Reached(branch, "", deferred=True)], DEFAULT, owner=1) == 0
    assert TABLE.of(branch) is None
    assert [code for code, _ in TABLE.reached[1].items()] == [branch.__code__]


# Boundaries


@pytest.mark.parametrize(
    "source",
    [
        "while x: x = x - 1",
        "return x.item()",
        "return x[0]",
        "torch._assert(x, 'text')",
        "return [y for y in x if y]",
    ],
)
def test_an_entry_becomes_a_boundary_if_anything_may_have_a_site(source: str) -> None:
    entry, other = _function(PLAIN), _function(source)
    _install(entry, other, entries=frozenset([id(entry)]))
    patched = TABLE.of(entry)
    assert patched is not None
    assert not patched.mended.has_lowerings


def test_an_entry_that_reaches_nothing_to_mend_stays() -> None:
    entry, other = _function(PLAIN), _function("return -x")
    assert _install(entry, other, entries=frozenset([id(entry)])) == 0
    assert TABLE.of(entry) is None


def test_only_entries_become_boundaries() -> None:
    entry, other = _function(PLAIN), _function(PLAIN)
    assert _install(entry, other, _function(), entries=frozenset([id(entry)])) == 2
    assert TABLE.of(other) is None


@pytest.mark.parametrize("source", ["yield x", "return (yield)"])
def test_a_generator_with_nothing_to_mend_is_no_boundary(source: str) -> None:
    entry = _function(source)
    assert _install(entry, _function(), entries=frozenset([id(entry)])) == 1
    assert TABLE.of(entry) is None


# What is known of code


def test_functions_with_the_same_code_are_analysed_once() -> None:
    one = _function()
    other = FunctionType(one.__code__, one.__globals__)
    form = mended_form(one, one.__code__, DEFAULT)
    assert form is not None
    assert mended_form(other, other.__code__, DEFAULT) is form
    assert mended_form(one, one.__code__, Policy(branch="where")) is not form


def test_code_with_nothing_to_mend_has_no_form_unless_one_is_needed() -> None:
    plain = _function(PLAIN)
    assert mended_form(plain, plain.__code__, DEFAULT) is None
    assert mended_form(plain, plain.__code__, DEFAULT, needed=True) is not None


def test_an_analysis_changes_no_function() -> None:
    branch = _function()
    code = branch.__code__
    mended = analysed(branch, DEFAULT)
    assert mended is not None and mended.has_lowerings
    assert branch.__code__ is code
    _install(branch)
    assert analysed(branch, DEFAULT) is mended


def test_a_site_that_was_withdrawn_stays_so_under_the_same_choices() -> None:
    branch = _function()
    form = analysed(branch, DEFAULT)
    assert form is not None
    ((code, site),) = form.sites
    live = site_table.find(site.name)
    assert live is not None
    assert live.origin is code
    weaken(live.unmendable("not-captured"))
    TABLE.forget_analyses()
    analysed(branch, DEFAULT)
    assert site_table.find(site.name) is live
    TABLE.forget_analyses()
    analysed(branch, Policy(branch="where"))
    other = site_table.find(site.name)
    assert other is not None and other is not live
    assert (other.active, other.policy.branch) == (True, "where")


def test_a_live_site_has_the_plan_that_its_code_was_written_by() -> None:
    form = analysed(_function("if x.sum() > 0:\n        return x\n    return -x"), DEFAULT)
    assert form is not None
    ((_, site),) = form.sites
    live = site_table.find(site.name)
    assert live is not None
    assert live.plan is site
    assert live.form(0).returns


# What is gone


def test_a_function_that_is_gone_leaves_the_table() -> None:
    branch = _function()
    key = id(branch)
    _install(branch)
    assert key in TABLE.functions
    del branch
    gc.collect()
    assert key not in TABLE.functions


class _Owner:
    pass


def test_what_an_owner_that_is_gone_had_is_nobodys() -> None:
    owner, branch = _Owner(), _function()
    number = id(owner)
    watch(number, owner)
    _install(branch, owner=number)
    del owner
    gc.collect()
    patched = TABLE.of(branch)
    assert patched is not None
    assert patched.owners == {NOBODY}
    assert number not in TABLE.reached


def test_an_owner_without_weak_references_can_be_watched() -> None:
    watch(12345, (1, 2))


def test_code_mended_before_has_its_sites_whatever_had_their_keys_meanwhile() -> None:
    function = _function()
    copy = FunctionType(function.__code__.replace(), function.__globals__, "function")
    _install(function)
    patched = TABLE.of(function)
    assert patched is not None
    keys = [site.name for _, site in patched.mended.sites]
    assert keys and all(site_table.find(key) for key in keys)
    remove()
    _install(copy)
    remove()
    del copy
    gc.collect()
    _install(function)
    for key in keys:
        site = site_table.find(key)
        assert site is not None and site.origin is patched.original


def test_functions_at_one_place_have_sites_of_their_own() -> None:
    one, other = _function(), _function("return x if x.sum() > 0 else -x if x.max() > 9 else x * 2")
    assert _install(one, owner=1) + _install(other, owner=2) == 2
    names = []
    for function in (one, other):
        patched = TABLE.of(function)
        assert patched is not None
        for code, site in patched.mended.sites:
            names.append(site.name)
            live = site_table.find(site.name)
            assert live is not None and live.origin is code
    assert len(names) == len(set(names))


def test_one_that_is_patched_anew_leaves_the_sites_of_the_other_at_its_place() -> None:
    one, other = _function(), _function("return x if x.sum() > 0 else x * 2")
    _install(one, owner=1)
    forget_unreached([other])
    _install(other, owner=2)
    patched = TABLE.of(one)
    assert patched is not None
    for code, site in patched.mended.sites:
        live = site_table.find(site.name)
        assert live is not None and live.origin is code


def _state_of(function: FunctionType) -> tuple[site_table.LiveSite, BodyState]:
    form = analysed(function, DEFAULT)
    assert form is not None
    ((_, site),) = form.sites
    live = site_table.find(site.name)
    assert live is not None
    return live, body_states.state_of(form.body, is_body=True)


def _give_up(function: FunctionType) -> None:
    live, state = _state_of(function)
    weaken(live.unmendable("not-captured"))
    weaken(Finding(Claim.WHOLE, state), Finding(Claim.NUMBERS, state))


def test_what_is_patched_again_begins_anew() -> None:
    branch = _function()
    _install(branch)
    _give_up(branch)
    remove()
    assert not _state_of(branch)[0].active  # a report still says what became of it
    forget_unreached([branch])
    _install(branch)
    live, state = _state_of(branch)
    assert live.active
    assert state.holds(Claim.WHOLE) and state.holds(Claim.NUMBERS)


def test_places_of_what_is_patched_again_are_assumed_anew() -> None:
    branch = _function()
    original = branch.__code__
    _install(branch)
    (before,) = TABLE.analyses_of([original])
    remove()
    assert TABLE.note(Claim.WHOLE_CODE, original, {0})
    forget_unreached([branch])
    assert (id(original), 0) not in TABLE.seen(Claim.WHOLE_CODE)
    _install(branch)
    assert all(each is not before for each in TABLE.analyses_of([original]))


def test_what_another_object_reaches_does_not_begin_anew() -> None:
    branch = _function()
    _install(branch, owner=1)
    _give_up(branch)
    forget_unreached([branch])
    _install(branch, owner=2)
    live, state = _state_of(branch)
    assert not live.active
    assert state.may_break


def _some_rows(x: torch.Tensor) -> torch.Tensor:
    found = []
    for row in x:
        if row.sum() > 0:
            found.append(row.repeat(2))
            found.append(row)
        elif row[0] < -0.5:
            found.append(row[:1])
    return torch.cat(found).exp().mean() if found else x.sum() * 0


def test_a_copy_of_a_mended_function_has_the_code_of_the_program() -> None:
    x = torch.tensor([[1.0, 2.0], [-1.0, -2.0], [3.0, 4.0]])
    before, expected = _some_rows.__code__, _some_rows(x)
    torch.compile(bcmend.patch(_some_rows), backend="eager", fullgraph=True)(x)
    assert _some_rows.__code__ is not before
    copied = FunctionType(_some_rows.__code__.replace(), _some_rows.__globals__)
    compiled = torch.compile(bcmend.patch(copied), backend="eager", fullgraph=True)
    assert compiled(x).equal(expected) and compiled(-x).equal(_some_rows(-x))
    bcmend.unpatch()
    assert copied.__code__ is before and _some_rows.__code__ is before
