"""Which conditions may be tensors, and which loops may go up to a data-dependent number."""

from __future__ import annotations

from typing import Any

import pytest

from bcmend.analysis.conditions import Chance, called_name, callees, may_be_open, may_be_tensor
from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.names import LEAVES
from tests.listing import listing

#: A name in functions that are read and never called.
torch: Any = None


def _open_loops(function: Any) -> list[bool]:
    facts = facts_of(decode(function.__code__))
    loops = [i for i, each in enumerate(facts.instructions) if each.op == "FOR_ITER"]
    return [may_be_open(facts, loop) for loop in loops]


def _number(x: Any) -> None:
    for _ in range(int(x)):
        pass


def _item(x: Any) -> None:
    for _ in range(x.max().item()):
        pass


def _in_a_variable(x: Any) -> None:
    count = x.sum().item()
    limits = range(2, count + 1, 3)
    for _ in limits:
        pass


def _counted_up(x: Any) -> None:
    count = 0
    count = count + 1
    count = count + int(x)
    count = count * 2
    for _ in range(count):
        pass


@pytest.mark.parametrize("function", [_number, _item, _in_a_variable, _counted_up])
def test_a_loop_that_may_be_open_is_found(function: Any) -> None:
    assert _open_loops(function) == [True]


def _of_a_list(x: Any) -> None:
    for _ in [int(x)]:
        pass


def _of_a_length(x: Any) -> None:
    for _ in range(len(x)):
        pass


def _of_a_size(x: Any) -> None:
    for _ in range(x.shape[0] // 2):
        pass


def _of_another_function(x: Any) -> None:
    for _ in reversed(int(x)):  # type: ignore[call-overload]
        pass


def _of_an_argument(count: int) -> None:
    for _ in range(count):
        pass


@pytest.mark.parametrize(
    "function", [_of_a_list, _of_a_length, _of_a_size, _of_another_function, _of_an_argument]
)
def test_any_other_loop_is_not(function: Any) -> None:
    assert _open_loops(function) == [False]


def test_variables_that_are_made_of_each_other_are_followed_once() -> None:
    lines = ["def function(x):", " a = b = x"]
    lines += [f" a = a + b * {i}; b = b * a" for i in range(60)]
    lines += [" for _ in range(a + b): pass"]
    names: dict[str, Any] = {}
    exec("\n".join(lines), names)
    assert _open_loops(names["function"]) == [False]


# --- conditions ----------------------------------------------------------------------------------


def _is_another(x: Any, y: Any) -> Any:
    return 1 if x is y else 2


def _is_in(x: Any, y: Any) -> Any:
    return 1 if x in y else 2


def _is_a_string(x: Any) -> Any:
    return 1 if x == "mean" else 2


def _has_a_size(x: Any) -> Any:
    return 1 if len(x) else 2


def _has_two_dimensions(x: Any) -> Any:
    return 1 if x.ndim == 2 else 2


def _is_no_instance(x: Any) -> Any:
    return 1 if not isinstance(x, int) else 2


def _counts(xs: Any) -> Any:
    count = 0
    for _ in xs:
        count = count + 1
    return 1 if count else 2


def _has_a_flag(self: Any) -> Any:
    return 1 if self.flag else 2


def _is_flagged(flag: Any) -> Any:
    return 1 if flag else 2


def _is_an_argument_below(x: Any) -> Any:
    return 1 if x < 0 else 2


def _is_configured(x: Any) -> Any:
    return 1 if DEBUG else x  # type: ignore[name-defined] # noqa: F821


def _calls(x: Any) -> Any:
    return 1 if x.any() else 2


def _compares_a_sum(x: Any) -> Any:
    return 1 if x.sum() > 0 else 2


def _stores_a_call(x: Any) -> Any:
    y = x.sum()
    z = -y[0]
    return 1 if not z else 2


def _binds_an_argument(x: Any) -> Any:
    x = x.sum()
    return 1 if x else 2


def _is_captured(x: Any) -> Any:
    y = x.sum()

    def inner() -> Any:
        return y

    return inner if y else 2


def _goes_far(x: Any) -> Any:
    return 1 if ~(-(~(-(~(-(~(-x))))))) else 2


def _counts_places(x: Any) -> int:
    rows, _ = torch.where(x)
    return 1 if rows.shape[0] == 0 else 2


def _counts_places_found(x: Any) -> int:
    return 1 if len(x.nonzero()) > 2 else 2


def _counts_one_part(x: Any) -> int:
    places = x.nonzero(as_tuple=True)[0]
    return 1 if places.shape[0] else 2


def _has_the_size_of_a_choice(x: Any) -> int:
    chosen = torch.where(x > 0, x, 1)
    return 1 if chosen.shape[0] == 0 else 2


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_is_another, Chance.NEVER),
        (_is_in, Chance.NEVER),
        (_is_a_string, Chance.NEVER),
        (_has_a_size, Chance.NEVER),
        (_has_two_dimensions, Chance.NEVER),
        (_is_no_instance, Chance.NEVER),
        (_counts, Chance.NEVER),
        (_has_a_flag, Chance.UNLIKELY),
        (_is_flagged, Chance.UNLIKELY),
        (_is_an_argument_below, Chance.UNLIKELY),
        (_is_configured, Chance.UNLIKELY),
        (_calls, Chance.LIKELY),
        (_compares_a_sum, Chance.LIKELY),
        (_stores_a_call, Chance.LIKELY),
        (_binds_an_argument, Chance.LIKELY),
        (_is_captured, Chance.LIKELY),
        (_goes_far, Chance.LIKELY),
        (_counts_places, Chance.LIKELY),
        (_counts_places_found, Chance.LIKELY),
        (_counts_one_part, Chance.LIKELY),
        (_has_the_size_of_a_choice, Chance.NEVER),
    ],
)
def test_whether_a_condition_may_be_a_tensor(function: Any, expected: str) -> None:
    facts = facts_of(decode(function.__code__))
    assert may_be_tensor(facts, facts.branches[-1].jump) == expected


def test_a_flag_of_an_exit_is_likely_a_tensor() -> None:
    text = f"LOAD_FAST {LEAVES.format(8, 0)}\nPOP_JUMP_IF_TRUE -> end\nend:\nRETURN_CONST 1"
    assert may_be_tensor(facts_of(listing(text).function), 1) == Chance.LIKELY


def test_a_caught_exception_is_no_tensor() -> None:
    made = listing(
        """
        start:
            NOP
        end:
            RETURN_CONST 1
        handler:
            POP_JUMP_IF_TRUE -> other
            RETURN_CONST 2
        other:
            RETURN_CONST 3
        .try start end handler 0
        """
    )
    assert may_be_tensor(facts_of(made.function), made.at["handler"]) == Chance.NEVER


# --- calls ---------------------------------------------------------------------------------------


def _names_called(function: Any) -> list[str]:
    facts = facts_of(decode(function.__code__))
    calls = [i for i, each in enumerate(facts.instructions) if each.op.startswith("CALL")]
    return [called_name(facts, call) for call in calls]


def test_names_of_what_is_called() -> None:
    def f(x: Any, y: Any) -> Any:
        return [x.any(), len(x), y(), x.inner.method(y, key=1), max(*x)]

    assert _names_called(f) == ["any", "len", "y", "method", "max"]


def test_a_function_without_a_name_is_called() -> None:
    def f() -> Any:
        return (lambda: 1)()

    assert _names_called(f) == [""]


def test_the_callee_is_among_the_operands_that_may_be_it() -> None:
    def f(x: Any) -> Any:
        return len(x)

    facts = facts_of(decode(f.__code__))
    (call,) = (i for i, each in enumerate(facts.instructions) if each.op == "CALL")
    (load,) = (i for i, each in enumerate(facts.instructions) if each.op == "LOAD_GLOBAL")
    assert frozenset([load]) in callees(facts, call)
