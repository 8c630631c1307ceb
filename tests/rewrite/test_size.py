"""The size of mended code grows with the length of the function, whatever form its branches have.

Each family writes a function of ``count`` branches as text. Counted is every code object that a
mended body can reach, each once.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Iterator
from types import CodeType
from typing import Final

import pytest

from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import BranchLowering

COUNTS: Final = (1, 2, 5, 10, 20, 50)
#: How much more than five times the code of 10 branches the code of 50 may be.
SLACK: Final = 1.25


def _function(*lines: str) -> str:
    return "\n".join(["def f(x, y):", *(f"    {line}" for line in lines), "    return y\n"])


def _in_sequence(count: int) -> str:
    return _function(
        *(line for n in range(count) for line in (f"if x.sum() > {n}:", f"    y = y + {n}"))
    )


def _early_returns(count: int) -> str:
    return _function(
        *(
            line
            for n in range(count)
            for line in (f"if x.sum() > {n}:", f"    return y + {n}", "y = y * 2")
        )
    )


def _elifs(count: int) -> str:
    words = ("if", *["elif"] * (count - 1))
    return _function(
        *(
            line
            for n, word in enumerate(words)
            for line in (f"{word} x.sum() > {n}:", f"    y = y + {n}")
        )
    )


def _breaks(count: int) -> str:
    return _function(
        "for each in range(9):",
        *(
            f"    {line}"
            for n in range(count)
            for line in (f"if x.sum() > {n}:", "    break", f"y = y + {n}")
        ),
    )


FAMILIES: Final[dict[str, Callable[[int], str]]] = {
    "ifs": _in_sequence,
    "early returns": _early_returns,
    "elifs": _elifs,
    "breaks": _breaks,
}


def _compiled(source: str) -> CodeType:
    names: dict[str, object] = {}
    exec(source, names)
    code = names["f"].__code__  # type: ignore[attr-defined]
    assert isinstance(code, CodeType)
    return code


def _reachable(code: CodeType, known: set[int]) -> Iterator[CodeType]:
    if id(code) in known:
        return
    known.add(id(code))
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _reachable(constant, known)


def _size(code: CodeType) -> int:
    return sum(len(each.co_code) for each in _reachable(code, set()))


def _sizes(source: str, count: int, *, is_wide: bool) -> tuple[int, int]:
    """Return the size of a function, original and mended; all its branches have to be mended."""
    original = _compiled(source)
    jumps = frozenset((id(original), each.offset) for each in dis.get_instructions(original))
    wide = jumps if is_wide else frozenset()
    found = mend(original, Context("module", {}, DEFAULT, asked=jumps, wide=wide))
    lowered = [site for _, site in found.sites if isinstance(site.decision, BranchLowering)]
    assert len(lowered) >= count
    return _size(original), _size(found.body)


@pytest.mark.parametrize("is_wide", [False, True], ids=["narrow", "with wider forms"])
@pytest.mark.parametrize("family", FAMILIES)
def test_mended_code_grows_with_the_length_of_the_function(family: str, is_wide: bool) -> None:
    sizes = {count: _sizes(FAMILIES[family](count), count, is_wide=is_wide) for count in COUNTS}
    for count, (before, after) in sizes.items():
        print(f"{family:14} {count:3} {before:7} {after:7} {after / before:6.1f}")
    assert sizes[50][1] / sizes[10][1] <= SLACK * 5
    longest, shorter = (sizes[count][1] / sizes[count][0] for count in (50, 10))
    assert longest <= SLACK * shorter


def test_the_measure_sees_code_that_is_nested_and_counts_it_once() -> None:
    inner = "    g = [lambda: x, lambda: x]\n"
    one = _compiled(f"def f(x, y):\n{inner}")
    assert len(list(_reachable(one, set()))) == 3
    nested = [each for each in one.co_consts if isinstance(each, CodeType)]
    assert _size(one) == len(one.co_code) + sum(len(each.co_code) for each in nested)
    again = one.replace(co_consts=(*one.co_consts, nested[0]))
    assert _size(again) == _size(one)
