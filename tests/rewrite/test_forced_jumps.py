"""Jumps that ask which side to take; what asks is a stand-in here, so that no torch is needed."""

from __future__ import annotations

import fnmatch
import json
import posixpath
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any

import pytest

from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import TRUTH_JUMPS
from bcmend.names import FORCED
from bcmend.rewrite.forced_jumps import ForcedJump, with_forced_jumps, with_nested


class Asked:
    """Answers by key; notes what it was asked, and how often a frame had asked before."""

    def __init__(self, **told: bool | int) -> None:
        self.told, self.met = told, list[tuple[str, Any, int]]()

    def forced(self, key: str, value: object, turns: int = 0) -> object:
        self.met.append((key, value, turns))
        return self.told.get(key, value)

    def turned(self, key: str, value: object, turns: int, stays: bool) -> object:
        self.met.append((key, value, turns))
        return (turns < self.told[key]) is stays if key in self.told else value

    def begun(self) -> int:
        return 0

    def later(self, turns: int) -> int:
        return turns + 1


def _offsets(code: CodeType) -> dict[int, str]:
    """Return a key for each jump of code: the lines, counted from the first, and letters."""
    found: dict[int, str] = {}
    for each in decode(code).instructions:
        if each.op in TRUTH_JUMPS:
            line = (each.location.lineno or 0) - code.co_firstlineno if each.location else 0
            known = sum(key.startswith(f"line_{line}_") for key in found.values())
            found[each.offset] = f"line_{line}_{'abcdefgh'[known]}"
    return found


def _asking(
    function: Callable[..., Any], **told: bool | int
) -> tuple[Callable[..., Any], Asked, list[ForcedJump]]:
    code = function.__code__
    asks, jumps = with_forced_jumps(code, _offsets(code))
    asked = Asked(**told)
    space = {**function.__globals__, FORCED: asked}
    made = FunctionType(asks, space, function.__name__, function.__defaults__, function.__closure__)
    return made, asked, jumps


def branch(a: int, b: int) -> str:
    if a > b:
        return "more"
    elif not a:
        return "none"
    return "less"


@pytest.mark.parametrize(
    "told, expected",
    [({}, "less"), ({"line_1_a": True}, "more"), ({"line_3_a": False}, "none")],
)
def test_branches_take_the_side_that_they_are_told(told: dict[str, bool], expected: str) -> None:
    program, _, jumps = _asking(branch, **told)
    assert program(1, 2) == expected
    assert [each.stays for each in jumps] == [None, None]


def loop(n: int) -> list[int]:
    found = []
    while n > 0:
        n -= 1
        found.append(n)
    return found


def test_a_loop_makes_the_turns_that_it_is_told() -> None:
    _, _, jumps = _asking(loop)
    (jump,) = jumps
    assert jump.stays is True
    for turns in (0, 1, 2, 5):
        program, asked, _ = _asking(loop, **{jump.key: turns})
        assert program(2) == [1 - each for each in range(turns)]
        assert [count for *_, count in asked.met] == list(range(turns + 1))
    program, asked, _ = _asking(loop)
    assert program(2) == loop(2)
    assert [value for _, value, _ in asked.met] == [True, True, False]


def left_early(values: list[int]) -> int:
    for each in values:
        if each > 2:
            break
    else:
        return -1
    return each


@pytest.mark.parametrize("turns, expected", [(0, 5), (1, 7), (9, -1)])
def test_a_loop_that_is_left_from_within_stays_until_it_is_told(turns: int, expected: int) -> None:
    _, _, (jump) = _asking(left_early)
    assert jump[0].stays is False
    program, _, _ = _asking(left_early, **{jump[0].key: turns})
    assert program([5, 7]) == expected


def nested(n: int) -> list[int]:
    found = []
    while n > 0:
        n -= 1
        k = n
        while k > 0:
            k -= 1
            found.append(k)
    return found


def test_the_test_of_a_loop_in_a_loop_leaves_that_alone() -> None:
    program, _, jumps = _asking(nested)
    assert [each.stays for each in jumps] == [True, True]
    assert program(4) == nested(4)
    program, _, (outer, inner) = _asking(nested, line_2_a=2)
    assert (outer.key, program(4)) == ("line_2_a", nested(4)[: 3 + 2])
    program, _, _ = _asking(nested, **{inner.key: 1})
    assert program(4) == [2]  # as often in a frame, not in each turn of the outer loop


def checked(values: list[int]) -> int:
    total = 0
    for each in values:
        if each < 0:
            raise ValueError(each)
        if each:
            total += each
    return total


def test_a_check_leaves_no_loop() -> None:
    code = checked.__code__
    asks, jumps = with_forced_jumps(code, _offsets(code), checks={"line_3_a"})
    assert [each.stays for each in jumps] == [None, None]
    assert all(each.is_in_loop for each in jumps)
    asked = Asked(line_3_a=True)
    with pytest.raises(ValueError, match="5"):
        FunctionType(asks, {"ValueError": ValueError, FORCED: asked})([5])
    assert [each.stays for each in with_forced_jumps(code, _offsets(code))[1]] == [False, None]


def chain(a: int, b: int, c: int) -> bool:
    if a < b < c:
        return True
    return False


def test_the_parts_of_a_chained_comparison_are_told_apart() -> None:
    _, _, jumps = _asking(chain)
    first, second = (each.key for each in jumps)
    for told, expected in (
        ({first: True, second: False}, False),
        ({first: True, second: True}, True),
        ({first: False}, False),
    ):
        assert _asking(chain, **told)[0](3, 2, 1) is expected


class Suppresses:
    def __enter__(self) -> Suppresses:
        return self

    def __exit__(self, *_: object) -> bool:
        return True


def in_a_with(a: int) -> int:
    with Suppresses():
        if a:
            raise ValueError
    return a


def test_what_a_with_block_swallows_is_not_told() -> None:
    _, _, jumps = _asking(in_a_with)
    assert len(jumps) == 1


def counts(n: int) -> Iterator[int]:
    while n:
        yield n
        n -= 1


def test_generators_count_in_their_own_frames() -> None:
    program, asked, (jump,) = _asking(counts, line_1_a=2)
    assert jump.stays is True
    assert list(program(5)) == [5, 4]
    assert list(program(0)) == [0, -1]
    assert [count for *_, count in asked.met] == [0, 1, 2] * 2


def in_a_try(value: Any) -> str:
    try:
        if value.attribute:
            return "true"
        return "false"
    except AttributeError:
        return "none"


def test_jumps_in_a_try_keep_its_handlers() -> None:
    program, _, _ = _asking(in_a_try)
    for value in (SimpleNamespace(attribute=1), SimpleNamespace(attribute=0), None):
        assert program(value) == in_a_try(value)


def values_of(a: Any, b: Any) -> list[Any]:
    return [a and b, a or b, not a, a < b < 3, b if a else -b, [n for n in (a, b) if n]]


@pytest.mark.parametrize("a", [0, 1, 2])
@pytest.mark.parametrize("b", [0, 2, 5])
def test_values_of_expressions_are_those_of_python(a: int, b: int) -> None:
    program, asked, _ = _asking(values_of)
    assert program(a, b) == values_of(a, b)
    assert asked.met


def test_other_jumps_and_other_code_stay_as_they_are() -> None:
    code = branch.__code__
    offset, *_ = _offsets(code)
    _, jumps = with_nested(code, {id(code): {offset: "one"}})
    assert [each.key for each in jumps] == ["one"]
    assert with_nested(code, {id(loop.__code__): {offset: "one"}})[0] is code
    assert with_nested(code.replace(), {id(code): {offset: "one"}})[1] == []  # an equal one
    assert with_forced_jumps(code, {0: "no jump"})[1] == []


def around(values: list[int]) -> Callable[[], list[int]]:
    def inner() -> list[int]:
        return [each for each in values if each > 1]

    return inner


def test_code_in_code_asks() -> None:
    codes = [around.__code__]
    for code in codes:
        nested_codes = [each for each in code.co_consts if isinstance(each, CodeType)]
        codes += [each for each in nested_codes if each.co_name != "__annotate__"]
    wanted = {id(each): _offsets(each) for each in codes}
    asks, jumps = with_nested(around.__code__, wanted)
    assert len(jumps) == 1
    asked = Asked()
    assert FunctionType(asks, {FORCED: asked})([1, 2, 3])() == [2, 3]
    assert [value for _, value, _ in asked.met] == [False, True, True]


def _asking_modules(modules: list[ModuleType], monkeypatch: pytest.MonkeyPatch) -> Asked:
    asked = Asked()
    for module in modules:
        monkeypatch.setitem(vars(module), FORCED, asked)
        held = [*vars(module).values(), *map(vars, filter(_is_class, vars(module).values()))]
        for each in [inner for one in held for inner in (one.values() if _is_map(one) else [one])]:
            if isinstance(each, FunctionType) and each.__module__ == module.__name__:
                code = each.__code__
                keys = {at: f"{code.co_qualname}:{at}" for at in _offsets(code)}
                monkeypatch.setattr(each, "__code__", with_nested(code, {id(code): keys})[0])
    return asked


def _is_class(value: object) -> bool:
    return isinstance(value, type)


def _is_map(value: object) -> bool:
    return hasattr(value, "values") and not isinstance(value, type)


def test_the_standard_library_does_the_same_where_nothing_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "\n".join(f"{number} a line of words that is as long as this one" for number in range(9))
    document = {"a": [1, 2.5, None, True, {"b": text}], "c": []}

    def results() -> list[object]:
        shown = json.dumps(document, indent=2, sort_keys=True)
        return [
            textwrap.wrap(text, 17, max_lines=9, break_long_words=True),
            textwrap.dedent("  a\n   b\n\n  c"),
            shown,
            json.loads(shown),
            fnmatch.translate("a*[!b-d]?.[py]"),
            posixpath.relpath("/a/b/../c", "/a/d/e"),
            posixpath.normpath("//a/./b//../c"),
        ]

    expected = results()
    modules = [textwrap, json.encoder, json.decoder, json.scanner, fnmatch, posixpath]
    asked = _asking_modules(modules, monkeypatch)
    fnmatch.translate.cache_clear() if hasattr(fnmatch.translate, "cache_clear") else None
    assert results() == expected
    assert len({key for key, *_ in asked.met}) > 50
