"""The stages together: the sites of a function, their names, and what the policy decides."""

from __future__ import annotations

import inspect
from types import CodeType, FunctionType

import pytest

from bcmend.policy import DEFAULT, Policy
from bcmend.reasons import REASONS
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import may_have_sites, mend
from bcmend.rewrite.sites.plan import (
    BranchLowering,
    GuardLowering,
    OutputLowering,
    Site,
    SiteRefusal,
    TruthLowering,
)
from tests.rewrite.programs import PROGRAMS
from tests.stand_ins import mended


def _sites(function: FunctionType, policy: Policy = DEFAULT) -> list[Site]:
    found = mended(function.__code__, function.__globals__, policy, ask=False)
    return [site for _, site in found.sites]


def _model(x, flag):
    if x.max() > 3:
        raise ValueError("too large")
    print("x", x)
    if flag:
        x = x + 1
    if x.sum() > 0:
        x = x * 2
    return x.relu().sum().neg().abs() if x is not None else None


def _line_of(function: FunctionType, text: str) -> int:
    lines, first = inspect.getsourcelines(function)
    return first + next(number for number, line in enumerate(lines) if text in line)


def test_sites_have_names_kinds_and_lines() -> None:
    sites = _sites(_model)
    assert [site.kind for site in sites] == ["guard", "output", "branch"]
    assert [site.line for site in sites] == [
        _line_of(_model, text) for text in ("x.max()", "print", "x.sum() >")
    ]
    assert [site.name for site in sites] == [
        f"module._model:{site.line}:{site.kind}" for site in sites
    ]
    assert [type(site.decision) for site in sites] == [
        GuardLowering,
        OutputLowering,
        BranchLowering,
    ]


def _flag_jump() -> int:
    """Return the offset of the jump of ``if flag``: none that a tensor decides, by its looks."""
    import dis

    after_flag = False
    for instruction in dis.get_instructions(_model.__code__):
        if instruction.argval == "flag":
            after_flag = True
        elif after_flag and "JUMP" in instruction.opname:
            return instruction.offset
    raise AssertionError("there is no such jump")


def test_a_jump_that_is_asked_for_is_a_site() -> None:
    asked = frozenset([(id(_model.__code__), _flag_jump())])
    found = mend(_model.__code__, Context("module", {}, DEFAULT, asked))
    lines = [site.line for _, site in found.sites if site.kind == "branch"]
    assert _line_of(_model, "if flag") in lines


def test_the_policy_keeps_and_switches_off() -> None:
    kept = _sites(_model, Policy(output="keep", guards="keep"))
    assert [(each.kind, getattr(each.decision, "slug", None)) for each in kept] == [
        ("guard", "policy-keep"),
        ("output", "policy-keep"),
        ("branch", None),
    ]
    off = _sites(_model, Policy(off=("module._model:*:branch",)))
    assert [getattr(each.decision, "slug", None) for each in off] == [None, None, "switched-off"]


def test_two_sites_on_one_line_have_two_names() -> None:
    def f(x):
        return (1 if x.any() else 2) + (3 if x.all() else 4) + len(str(x)) + len(repr(x))

    names = [site.name for site in _sites(f)]
    assert len(names) == 2 and names[1] == names[0] + "#2"


def test_sites_of_nested_functions() -> None:
    def f(x):
        def inner(y):
            if y.any():
                y = y + 1
            return max(y, x, y, x)

        return inner(x)

    found = mended(f.__code__, {}, ask=False)
    ((code, site),) = found.sites
    assert code.co_name == "inner" and ".inner:" in site.name
    originals = [each for each in f.__code__.co_consts if isinstance(each, CodeType)]
    assert code in originals


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_refusal_is_one_that_is_documented(name: str) -> None:
    function = PROGRAMS[name].function
    for _, site in mended(function.__code__, function.__globals__).sites:
        if isinstance(site.decision, SiteRefusal):
            assert site.decision.slug in REASONS


@pytest.mark.parametrize("name", PROGRAMS)
def test_written_code_knows_what_it_was_made_from(name: str) -> None:
    function = PROGRAMS[name].function
    found = mended(function.__code__, function.__globals__)
    assert found.sources[found.body] is function.__code__
    originals = {id(function.__code__), *map(id, function.__code__.co_consts)}
    for code, source in found.sources.items():
        assert id(source) in originals or source.co_qualname.startswith(function.__qualname__)
        assert code.co_filename == source.co_filename


def _filter(x):
    if x.any():
        yield x
    print((yield x))


def _generator(x):
    for each in x:
        if each.any():
            each = each + 1
        print(each)
        yield each


async def _coroutine(x):
    if x.any():
        return x
    print(x)


def test_a_coroutine_is_refused() -> None:
    sites = _sites(_coroutine)
    assert sites and all(isinstance(site.decision, SiteRefusal) for site in sites)
    assert {site.decision.slug for site in sites} == {"coroutine"}


def test_arms_that_suspend_their_frame_are_no_functions() -> None:
    (site,) = (each for each in _sites(_filter) if each.kind == "branch")
    assert isinstance(site.decision, TruthLowering)
    assert site.decision.refusal.slug == "generator"


def test_a_generator_is_mended_between_its_values() -> None:
    assert not any(isinstance(site.decision, SiteRefusal) for site in _sites(_generator))
    found = mended(_generator.__code__, {}, ask=False)
    assert found.shell is found.body
    assert found.shell.co_flags == _generator.__code__.co_flags


def test_code_that_looks_at_its_frame_refuses_all_sites() -> None:
    def f(x):
        if x.any():
            x = x + 1
        return x, locals()

    assert [site.decision.slug for site in _sites(f)] == ["frame-introspection"]


def _returns(x):
    return x


def _tests_a_tensor(x):
    return 1 if x.sum() > 0 else 2


def _writes(x):
    print(x)


def _writes_inside(x):
    def inner():
        print(x)

    return inner


@pytest.mark.parametrize(
    ("function", "expected"),
    [(_returns, False), (_tests_a_tensor, True), (_writes, True), (_writes_inside, True)],
)
def test_functions_without_sites_are_recognised(function: FunctionType, expected: bool) -> None:
    assert may_have_sites(function.__code__, Context("m", {}, DEFAULT)) is expected


def test_where_a_trace_has_stopped_there_may_be_a_site() -> None:
    code = _returns.__code__
    assert may_have_sites(code, Context("m", {}, DEFAULT, calls=frozenset([(id(code), 2)])))
