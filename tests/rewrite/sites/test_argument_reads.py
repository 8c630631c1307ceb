"""What of an argument is evaluated where its statement stands."""

from __future__ import annotations

from typing import Any

import pytest

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import CALLS, row
from bcmend.rewrite.sites.argument_reads import bindings_in, early_reads, is_untraceable
from bcmend.rewrite.sites.call_parts import arguments_of, start_of
from bcmend.rewrite.sites.plan import CodeRange

NAMES: frozenset[str] = frozenset()


def _argument(function: Any) -> tuple[Facts, CodeRange]:
    """Return the only argument of the last call of a function, which ``show`` stands for."""
    facts = facts_of(decode(function.__code__))
    call = max(i for i, each in enumerate(facts.instructions) if each.op in CALLS)
    instruction = facts.instructions[call]
    start = start_of(facts, call, row(instruction.op).effect(instruction.arg)[0])
    assert start is not None
    (argument,) = arguments_of(facts, start, call)
    return facts, argument


def _variable(show, x):
    show(x)


def _attribute(show, x):
    show(x.shape)


def _tensor_method(show, x):
    show(x.mean())


def _sum_of_numbers(show, x):
    show(x + 1)


def _item(show, x):
    show(x.item())


def _text(show, x):
    show(str(x))


def _numpy_method(show, x):
    show(x.numpy())


def _numpy_module(show, x):
    show(numpy.mean)  # noqa: F821


def _chosen(show, x):
    show(x or 1)


def _formatted(show, x):
    show(f"{x}")


def _formatted_size(show, x):
    show(f"{x.ndim}")


def _formatted_representation(show, x):
    show(f"{x.ndim!r}")


def _percent(show, x):
    show("%s" % x)  # noqa: UP031


def _remainder(show, x):
    show(x % 2)


def _masked(show, x):
    show(x[x > 0])


def _indexed(show, x):
    show(x[0])


def _closes_over(show, x):
    show(lambda: x)


def _closes_over_nothing(show, x):
    show(lambda y: y)


def _calls_inside(show, x):
    show(lambda y: y.item())


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_variable, False),
        (_attribute, False),
        (_tensor_method, False),
        (_sum_of_numbers, False),
        (_item, True),
        (_text, True),
        (_numpy_method, True),
        (_numpy_module, False),
        (_chosen, True),
        (_formatted, True),
        (_formatted_size, False),
        (_formatted_representation, True),
        (_percent, True),
        (_remainder, False),
        (_masked, True),
        (_indexed, False),
        (_closes_over, True),
        (_closes_over_nothing, False),
        (_calls_inside, True),
    ],
)
def test_what_dynamo_cannot_evaluate(function: Any, expected: bool) -> None:
    assert is_untraceable(*_argument(function)) is expected


# --- reads that are made at once -----------------------------------------------------------------


def _reads(function: Any, data: frozenset[tuple[str, ...]] = frozenset()) -> list[object]:
    """Return the names along each read of the argument, ``None`` for one that cannot be made."""
    facts, argument = _argument(function)
    found = early_reads(facts, argument, data, NAMES)
    return [
        None
        if part is None
        else [names_of(each) for each in facts.instructions[part.start : part.end]]
        for part in found
    ]


def _two_reads(show, x, y):
    show(x.part.item() + y.item())


def _one_read_twice(show, x):
    show(str(x.loss) + str(x.loss))


def test_the_longest_reads_of_variables_and_attributes() -> None:
    assert _reads(_two_reads) == [["x", "part"], ["y"]]
    assert _reads(_one_read_twice) == [["x", "loss"], ["x", "loss"]]


def test_nothing_is_read_of_a_constant() -> None:
    def f(show):
        show(str(1))

    assert _reads(f) == []


def test_a_global_is_read_if_its_value_may_change() -> None:
    def f(show):
        show(str(state.loss))  # noqa: F821

    assert _reads(f) == []
    assert _reads(f, frozenset([("state",)])) == [["state", "loss"]]
    assert _reads(f, frozenset([("state", "loss")])) == [["state", "loss"]]
    assert _reads(f, frozenset([("state", "other")])) == []


# Each goes on behind the statement, so that CPython 3.12 does not copy its end into both arms.


def _reads_an_attribute_before_and_behind(show, x, y):
    show(str(x.loss) if x.loss else y)
    return x, y, x, y, x


def _reads_an_attribute_in_both_arms(show, x, y):
    show(x.loss + 1 if y else x.loss - 1)
    return x, y, x, y, x


def _reads_variables(show, x, y):
    show(str(y) if x else str(y.shape))
    return x, y, x, y, x


def _reads_an_attribute_in_one_arm(show, x, y):
    show(str(x) if x else str(y.loss))
    return x, y, x, y, x


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_reads_an_attribute_before_and_behind, [["x", "loss"], ["x", "loss"], ["y"]]),
        # Neither is read in any case, and reading an attribute may fail.
        (_reads_an_attribute_in_both_arms, [["y"], None, None]),
        # The shape of what is read does not change.
        (_reads_variables, [["x"], ["y"], ["y"]]),
        (_reads_an_attribute_in_one_arm, [["x"], ["x"], None]),
    ],
)
def test_behind_a_test_only_what_cannot_fail_is_read(function: Any, expected: object) -> None:
    assert _reads(function) == expected


def test_a_variable_that_may_be_unbound_cannot_be_read() -> None:
    def f(show, x):
        if x:
            y = x
        show(str(y))

    assert _reads(f) == [None]


def test_what_is_bound_to_a_variable_is_evaluated_at_once() -> None:
    def f(show, x):
        show(str(y := x.value))
        return y

    facts, argument = _argument(f)
    (found,) = early_reads(facts, argument, frozenset(), NAMES)
    assert found is not None
    ops = [each.op for each in facts.instructions[found.start : found.end]]
    assert ops[0] == "LOAD_FAST" and ops[-2:] == ["COPY", "STORE_FAST"]
    assert bindings_in(facts, argument) == {found.start: found}


def test_an_operand_that_a_call_gives_is_evaluated_at_once() -> None:
    def f(show, x, y):
        show(str(x.advance(y)) + "!")

    facts, argument = _argument(f)
    (found,) = early_reads(facts, argument, frozenset(), NAMES)
    assert found is not None and facts.instructions[found.end - 1].op == "CALL"
    names = [names_of(each) for each in facts.instructions[found.start : found.end]]
    assert [each for each in names if each] == ["x", "advance", "y"]


def test_variables_of_the_statement_alone_are_not_read() -> None:
    def f(show, x):
        show(str(x) + str(x.shape))

    facts, argument = _argument(f)
    assert list(early_reads(facts, argument, frozenset(), frozenset(["x"]))) == []


@pytest.mark.parametrize("missing", [frozenset(), frozenset(["elsewhere"])])
def test_a_global_that_does_not_exist_is_not_read_in_front_of_a_test(missing: Any) -> None:
    def f(show, x):
        show(x if x else elsewhere)  # noqa: F821
        return [show, x, show, x]  # a tail that is too long for CPython to copy

    facts, argument = _argument(f)
    found = list(early_reads(facts, argument, frozenset([("elsewhere",)]), NAMES, missing))
    assert (None in found) is bool(missing)


def test_an_argument_without_a_binding() -> None:
    assert bindings_in(*_argument(_two_reads)) == {}
