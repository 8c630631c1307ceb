"""Blocks that are left in one place, and that the function still does what it did."""

from __future__ import annotations

import contextlib
import linecache
from collections.abc import Callable
from types import FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.rewrite.passes.shared_exits import with_shared_exits
from bcmend.rewrite.sites.plan import SiteRefusal
from tests.stand_ins import (
    EverythingMended,
    NothingToMend,
    RefusedWhileTraced,
    installed,
    outcome_of,
    sites_of,
)

LOG: list[object] = []


class Block:
    """A block that writes down how it is entered and left."""

    def __init__(self, name: object, *, swallows: bool = False) -> None:
        self.name, self.swallows = name, swallows

    def __enter__(self) -> object:
        LOG.append(("enter", self.name))
        return self.name

    def __exit__(self, kind: Any, *rest: object) -> bool:
        LOG.append(("leave", self.name, kind))
        return self.swallows


def _one_return(x, y):
    with Block(1):
        if x > 0:
            return x * y
        y = y + 1
    LOG.append(y)
    return y


def _only_returns(x, y):
    with Block(1) as name:
        if x > 0:
            return x // y
        return name


def _many_returns(x, y):
    with Block(1):
        if x > 2:
            return 1
        if x > 1:
            return y
        if x > 0:
            return y + 1
        if x == 0:
            return y + 2
        if x == -1:
            return y + 3
        if y:
            return y + 4
        if x:
            return y + 5
    return None


def _two_blocks(x, y):
    z = 0
    with Block(1), Block(2) as two:
        if x > 0:
            return two
        z = y
    if z:
        return z
    return x


def _block_in_block(x, y):
    with Block(1):
        z = 0
        with Block(2):
            if x > 0:
                return z
            z = y
        if y > 0:
            return z + 1
        LOG.append(z)
    return z + 2


def _jumps_of_a_loop(x, y):
    total = 0
    for each in range(4):
        with Block(each):
            if each == x:
                break
            if each == y:
                continue
            if total > 100:
                return total
            total += each
        LOG.append(total)
    return total


def _loop_in_a_block(x, y):
    with Block(1):
        for each in range(4):
            if each > x:
                return each
            if each > y:
                break
        x = y
    return x


def _while_in_a_block(x, y):
    with Block(1):
        while x > 0:
            x -= 1
            if x == y:
                return x, y
    return x


def _block_in_try(x, y):
    try:
        with Block(1):
            if x > 0:
                return x // y
            z = x // y
        LOG.append(z)
    except ZeroDivisionError:
        return "zero"
    finally:
        LOG.append("finally")
    return z


def _try_in_block(x, y):
    with Block(1):
        try:
            if x > 0:
                return x // y
            z = x // y
        except ZeroDivisionError:
            return "zero"
        z += 1
    return z


def _swallowing(x, y):
    z = "before"
    with Block(1, swallows=True):
        if x > 0:
            return x // y
        z = x // y
    return z


def _suppressing(x, y):
    with contextlib.suppress(ZeroDivisionError):
        if x > 0:
            return x // y
        LOG.append(x // y)
    return y


def _returns_in_try(x, y):
    try:
        if x > 0:
            return x // y
        z = x // y
    except ZeroDivisionError:
        z = "zero"
    LOG.append(z)
    return z


def _returns_past_finally(x, y):
    for each in range(3):
        try:
            if each == x:
                return each
            if each == y:
                break
        finally:
            LOG.append(each)
    return y


def _raises_and_catches(x, y):
    for each in range(3):
        try:
            if each == x:
                raise ValueError(each)
            if each == y:
                raise KeyError(each)
            LOG.append(each)
        except ValueError as error:
            LOG.append(str(error))
            continue
        except KeyError:
            break
        LOG.append("end of iteration")
    return x


def _captured(x, y):
    def inner():
        return y * 2

    with Block(1):
        if x > 0:
            return inner()
        y = x
    return inner()


def _raises_behind_its_try(x, y):
    while True:
        try:
            if x > 0:
                break
            LOG.append(x // y)
            return "left"
        except ZeroDivisionError:
            return "zero"
    raise ValueError(x // y)


def _goes_on_behind_its_finally(x, y):
    z = 0
    for v in (x, y):
        try:
            if v > 0:
                z += x // v
            else:
                z -= 1
        finally:
            LOG.append(v)
            if z > 1:
                raise ValueError(z)
    return z


PROGRAMS: list[Callable[..., object]] = [
    _one_return,
    _only_returns,
    _many_returns,
    _two_blocks,
    _block_in_block,
    _jumps_of_a_loop,
    _loop_in_a_block,
    _while_in_a_block,
    _block_in_try,
    _try_in_block,
    _swallowing,
    _suppressing,
    _returns_in_try,
    _returns_past_finally,
    _raises_and_catches,
    _captured,
    _raises_behind_its_try,
    _goes_on_behind_its_finally,
]
CALLS = [(x, y) for x in (-2, -1, 0, 1, 2, 3) for y in (-1, 0, 1, 2)]


@pytest.mark.parametrize("primitives", [NothingToMend, RefusedWhileTraced, EverythingMended])
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__.strip("_"))
def test_a_program_does_what_it_did(program: FunctionType, primitives: type[Any]) -> None:
    mended = installed(program, primitives())
    for arguments in CALLS:
        assert _seen(mended, arguments) == _seen(program, arguments)


def _seen(function: Callable[..., object], arguments: tuple[int, int]) -> object:
    LOG.clear()
    return outcome_of(function, *arguments), [*LOG]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda each: each.__name__.strip("_"))
def test_every_branch_is_mended(program: FunctionType) -> None:
    """But for those that compare an exception with the class behind an ``except``."""
    sites = [site for site in sites_of(program) if not _is_except(site.line)]
    assert sites and not [site for site in sites if isinstance(site.decision, SiteRefusal)]


def _is_except(line: int | None) -> bool:
    return line is not None and "except" in linecache.getline(__file__, line)


def _facts(function: FunctionType) -> Facts:
    return facts_of(decode(function.__code__))


def _exits(facts: Facts) -> int:
    """Count the calls of ``__exit__`` that no exception leads to."""
    ops = [each.op for each in facts.instructions]
    nothing = [each.op == "LOAD_CONST" and each.arg is None for each in facts.instructions]
    return sum(
        all(nothing[index : index + 3]) and ops[index + 3 : index + 5] == ["CALL", "POP_TOP"]
        for index in range(len(ops) - 4)
    )


@pytest.mark.parametrize(
    ("program", "blocks"),
    [(_one_return, 1), (_many_returns, 1), (_two_blocks, 2), (_jumps_of_a_loop, 1)],
)
def test_a_block_is_left_in_one_place(program: FunctionType, blocks: int) -> None:
    facts = _facts(program)
    assert _exits(facts) > blocks
    assert _exits(with_shared_exits(facts, lambda facts, branch: True)) == blocks


def test_a_function_without_a_site_in_a_block_stays_as_it_is() -> None:
    facts = _facts(_one_return)
    assert with_shared_exits(facts, lambda facts, branch: False) is facts


def test_a_block_left_in_too_many_ways_stays_as_it_is() -> None:
    lines = [f"            if x == {n}:\n                LOG.append({n})\n" for n in range(9)]
    ways = [line + "                continue\n" if n % 2 else line for n, line in enumerate(lines)]
    text = [f"            if y == {n}:\n                return {n}\n" for n in range(9)]
    source = "def f(x, y):\n    for _ in range(2):\n        with Block(1):\n"
    names: dict[str, Any] = {"Block": Block, "LOG": LOG}
    exec(source + "".join(ways) + "".join(text) + "    return x\n", names)
    facts = _facts(names["f"])
    assert with_shared_exits(facts, lambda facts, branch: True) is facts


@pytest.mark.parametrize(("ways", "is_shared"), [(5, True), (6, False)])
def test_so_many_ways_on_are_told_apart_and_no_more(ways: int, is_shared: bool) -> None:
    returns = "".join(f"        if x == {n}:\n            return {n}\n" for n in range(ways))
    names: dict[str, Any] = {"Block": Block}
    exec(f"def f(x):\n    with Block(1):\n{returns}    return x\n", names)
    facts = _facts(names["f"])
    assert (with_shared_exits(facts, lambda facts, branch: True) is not facts) is is_shared
    mended = installed(names["f"], EverythingMended())
    for x in range(ways + 1):
        assert mended(x) == x
