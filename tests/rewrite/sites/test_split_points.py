"""Code that is split in front of an instruction does what it did, in either half."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.analysis.facts import facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import row
from bcmend.names import CALLBACK, NAMESPACE, SPLIT, TRACING
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import BranchLowering
from bcmend.rewrite.sites.split_points import facts_with_splits, propose_split
from tests.rewrite.programs import PROGRAMS
from tests.stand_ins import EverythingMended, NothingToMend, jumps_in, outcome_of, with_code


class Halved(NothingToMend):
    """Continues in one half, and in the half past the instruction itself."""

    def __init__(self, form: int, half: int) -> None:
        super().__init__()
        self.form, self.half = form, half
        self.inside: set[str] = set()
        self.splits = 0

    def nothing(self) -> None:
        return None

    def undecided(self, key: str, operands: tuple[Any, ...], subscripts: bool) -> bool:
        return key not in self.inside

    def split(
        self,
        key: str,
        form: int,
        function: FunctionType,
        first: tuple[Any, ...],
        entry: int,
        inputs: tuple[Any, ...],
        operands: tuple[Any, ...],
        subscripts: bool,
    ) -> Any:
        if form != self.form:
            return None
        self.splits += 1
        self.inside.add(key)
        try:
            return function(*first, function, entry + self.half, inputs)
        finally:
            self.inside.discard(key)


class HalvedAndMended(Halved, EverythingMended):
    """Continues in a half, and in the arm that is taken."""


def _reading(code: CodeType) -> Iterator[int]:
    """Yield the offsets of the instructions that take an operand, each to split in front of."""
    for instruction in decode(code).instructions:
        takes, _ = row(instruction.op).effect(instruction.arg)
        if takes:
            yield instruction.offset


def _split_at(
    function: FunctionType, offsets: int | tuple[int, ...], primitives: object
) -> FunctionType:
    names = {
        **function.__globals__,
        NAMESPACE: primitives,
        TRACING: lambda: True,
        CALLBACK: lambda: None,
    }
    each = (offsets,) if isinstance(offsets, int) else offsets
    places = frozenset((id(function.__code__), offset) for offset in each)
    context = Context("module", names, DEFAULT, splits=places)
    return with_code(function, mend(function.__code__, context).shell, names)


@pytest.mark.parametrize(
    ("name", "form"),
    [
        # one form of each, in turn; the others on demand
        pytest.param(name, form, marks=[] if at % 3 == form else [pytest.mark.slow])
        for at, name in enumerate(PROGRAMS)
        for form in range(3)
    ],
)
def test_a_half_does_what_the_code_in_its_place_did(name: str, form: int) -> None:
    program = PROGRAMS[name]
    arguments = program.calls[0]
    for number, offset in enumerate(_reading(program.function.__code__)):
        primitives = Halved(form, number % 2)
        split = _split_at(program.function, offset, primitives)
        seen = []
        for function in (program.function, split):
            log: list[object] = []
            given = (log, *arguments) if program.takes_log else arguments
            outcome = outcome_of(function, *given)
            seen.append((repr(outcome.value), outcome.error and outcome.error[0], repr(log)))
        assert seen[1] == seen[0], offset


def _call(values, scale):
    result = sorted(values, key=abs)[0] + max(scale, 2).bit_length()
    return result


@pytest.mark.parametrize("form", [0, 1, 2])
def test_calls_are_split_with_their_null_and_their_method(form: int) -> None:
    """Every instruction can be split in its narrowest form, and most in the others."""
    offsets = list(_reading(_call.__code__))
    made = 0
    for offset in offsets:
        primitives = Halved(form, 1)
        assert _split_at(_call, offset, primitives)([-3, 2, 1], 5) == 4
        made += primitives.splits
    assert made == len(offsets) if form == 0 else made


def _methods(text):
    if text.upper().count("A") > 1:
        text = text.lower()
    return text.strip()


@pytest.mark.parametrize("form", [0, 1, 2])
def test_no_split_ends_where_a_null_is_left(form: int) -> None:
    """The first ends nowhere where the second has set an operand apart."""
    made = 0
    for offsets in itertools.combinations(_reading(_methods.__code__), 2):
        primitives = Halved(form, 1)
        split = _split_at(_methods, offsets, primitives)
        assert [split(text) for text in ("Aa ", "b ")] == ["aa", "b"], offsets
        made += primitives.splits
    assert made


def _logging(values):
    logging.getLogger("bcmend.tests").log(10, "at %s", max(values, 2))
    return min(values, 3)


@pytest.mark.parametrize("form", [0, 1])
def test_a_logger_that_a_call_finds_is_split_with_the_null_of_that_call(form: int) -> None:
    made = 0
    for offset in _reading(_logging.__code__):
        primitives = HalvedAndMended(form, 1)
        assert _split_at(_logging, offset, primitives)(5) == 3, offset
        made += primitives.splits
    assert made


def _loop(values):
    total = 0
    for value in values:
        total = total + value * 2
    return total


def test_the_narrowest_form_ends_behind_the_instruction_the_next_behind_the_statement() -> None:
    code = decode(_loop.__code__)
    multiply = next(each for each in code.instructions if each.op == "BINARY_OP")
    facts, (index,) = facts_with_splits(facts_of(code), [multiply.offset])
    lowering = propose_split(facts, index)
    assert isinstance(lowering, BranchLowering)
    first, second, *_ = lowering.alternatives
    starts = [facts.graph.blocks[form.join].start for form in (first, second)]
    assert starts[0] == index + 1
    assert facts.instructions[starts[1] - 1].op == "STORE_FAST"
    assert (first.extra, second.outputs) == (1, ("total",))
    assert lowering.alternatives[-1].returns


def test_a_split_is_a_site_of_its_kind() -> None:
    offset = next(iter(_reading(_loop.__code__)))
    context = Context("module", {}, DEFAULT, splits=frozenset([(id(_loop.__code__), offset)]))
    (site,) = [site for _, site in mend(_loop.__code__, context).sites]
    assert site.kind == SPLIT
    assert site.offset == offset


def _failing(log, a):
    if a > 1:
        if a > 3:
            log.append(a)
            raise ValueError(a + 1)
        if a > 2:
            return a
        log.append(0)
    return a + 1


@pytest.mark.parametrize("form", [0, 1, 2])
@pytest.mark.parametrize("a", [1, 3, 4])
def test_a_way_that_raises_is_split_with_every_jump_mended(form: int, a: int) -> None:
    """Its region is that of the whole function, of which it is a part."""
    code = _failing.__code__
    for offset in _reading(code):
        names = {**_failing.__globals__, NAMESPACE: HalvedAndMended(form, 1)}
        names |= {TRACING: lambda: True, CALLBACK: lambda: None}
        place = frozenset([(id(code), offset)])
        asked = frozenset(jumps_in(code))
        context = Context("module", names, DEFAULT, asked, asked, place)
        split = with_code(_failing, mend(code, context).shell, names)
        logs: tuple[list[object], list[object]] = ([], [])
        one, other = outcome_of(_failing, logs[0], a), outcome_of(split, logs[1], a)
        assert (one, logs[0]) == (other, logs[1]), offset


def _raises_in_its_finally(log, values, block):
    for v in values:
        try:
            head = v * 2
        finally:
            log.append(v)
            if v > 1:
                raise ValueError
    return head


def _raises_in_a_finally_in_a_block(log, values, block):
    for v in values:
        with block:
            try:
                head = v * 2
            finally:
                log.append(v)
                if v > 1:
                    raise ValueError
            log.append(-head)
    return log


class _Block:
    """Writes down how it is left."""

    def __init__(self, log: list[object]) -> None:
        self.log = log

    def __enter__(self) -> None:
        self.log.append("entered")

    def __exit__(self, kind: type[BaseException] | None, *rest: object) -> None:
        self.log.append(kind)


@pytest.mark.parametrize("program", [_raises_in_its_finally, _raises_in_a_finally_in_a_block])
@pytest.mark.parametrize("kind", [Halved, HalvedAndMended])
@pytest.mark.parametrize("form", [0, 1, 2])
def test_no_handler_takes_what_is_raised_behind_its_try(
    form: int, kind: type[Halved], program: FunctionType
) -> None:
    for offset in _reading(program.__code__):
        split = _split_at(program, offset, kind(form, 0))
        for values in ([1], [1, 2], [2, 1]):
            seen = []
            for function in (program, split):
                log: list[object] = []
                outcome = outcome_of(function, log, values, _Block(log))
                seen.append((outcome.error and outcome.error[0], log))
            assert seen[1] == seen[0], offset
