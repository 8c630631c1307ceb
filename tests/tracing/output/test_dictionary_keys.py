"""Dictionaries from before a call that only output reads: each call shows what it finds."""

from __future__ import annotations

import copy
import linecache
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call

#: What is written of a dictionary ``d``.
SHOWN = [
    "d",
    "[d], (d, {'in': d})",
    "f'{d}'",
    "'%s' % d",
    "{**d}",
    "d.copy()",
    "dict(d)",
    "dict(d, z=1)",
    "d | {'z': 1}",
    "copy.copy(d), copy.deepcopy(d)",
    "tuple(d), *d",
    "sorted(d), [k for k in d]",
    "set(d) | {'-'} == {*d, '-'}",
    "sorted(frozenset(d))",
    "not d",
    "bool(d), d or 'none'",
    "len(d), 'p' in d, d.get('p')",
    "d.keys(), d.values(), d.items()",
    "sum(d.values()), max(d, default=0)",
    "list(reversed(d)), next(iter(d), None)",
]


def _program(shown: str) -> Callable[..., Any]:
    text = (
        "def program(x, d):\n"
        "    if x.sum() > 0:\n"
        "        x = x + 1\n"
        f"    print({shown})\n"
        "    return x * 2\n"
    )
    file = f"<a dictionary: {shown}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    names: dict[str, Any] = {"copy": copy}
    exec(compile(text, file, "exec"), names)
    made: Callable[..., Any] = names["program"]
    return made


def _calls() -> list[Any]:
    x = torch.tensor([1.0, 2.0])
    given: list[tuple[Tensor, dict[str, int]]] = [
        (x, {}),
        (-x, {"p": 1}),
        (x, {"p": 1, "q": 2}),
        (x, {"q": 2, "p": 1}),
        (x, {"p": 1}),
        (x, {}),
    ]
    return [call(*each) for each in given]


@pytest.mark.parametrize("shown", SHOWN)
def test_each_call_shows_what_it_is_given(shown: str) -> None:
    program = _program(shown)
    assert_equivalent(lambda: program, _calls, fullgraph=False, graphs=None, recompiles=None)


def _copied(x: Tensor, table: dict[str, int]) -> Any:
    return x + 1, list({**table})


def _negated(x: Tensor, table: dict[str, int]) -> Any:
    return x + 1, not table


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_keys_of_a_copied_dictionary_are_required_in_any_order() -> None:
    """So it is in torch alone; in mended code each call has its own."""
    x, one, other = torch.ones(1), {"p": 1, "q": 2}, {"q": 2, "p": 1}
    copied, negated = (torch.compile(each, backend="eager") for each in (_copied, _negated))
    assert copied(x, one)[1] == copied(x, other)[1] == ["p", "q"]
    assert negated(x, {})[1] is negated(x, one)[1] is True
