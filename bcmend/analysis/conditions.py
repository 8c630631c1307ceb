"""Judge whether the condition of a jump may be a tensor, by the instructions that made it.

A bare parameter or attribute is mostly a flag; such a jump is mended when Dynamo stops there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from typing import Final, Protocol

from bcmend.analysis.code_effects import names_of
from bcmend.bytecode.instructions import Instruction
from bcmend.bytecode.opcodes import (
    BINARY_OPERATORS,
    BUILDS,
    CALLS,
    COMPARISONS,
    CONSTANT_LOADS,
    EXCEPTION_TESTS,
    EXITS,
    IDENTITIES,
    ITEM_READS,
    ITERATORS,
    LOOPS,
    MEMBERSHIPS,
    TRUTHS,
    UNARY_OPERATORS,
    UNPACKS,
    row,
)
from bcmend.knowledge.callable_names import NEVER_TENSOR_ATTRIBUTES, NEVER_TENSOR_CALLS
from bcmend.names import LEAVES_BEGINS


class Chance(IntEnum):
    """How likely the condition of a jump is a tensor."""

    NEVER = 0
    UNLIKELY = 1
    LIKELY = 2


#: Calls that may take a number out of a tensor and are mostly made for that.
TAKE_OUT: Final = frozenset(["int", "item"])

#: Calls that return the indices at which a mask is true.
FINDS_INDICES: Final = frozenset(["argwhere", "nonzero", "where"])

_NEVER_TENSOR: Final = IDENTITIES | MEMBERSHIPS | EXCEPTION_TESTS | EXITS | CONSTANT_LOADS | BUILDS
#: Instructions that make a tensor only of one: their operands, -1 being the top.
_MADE_FROM: Final = {
    **dict.fromkeys(UNARY_OPERATORS | TRUTHS | ITERATORS | LOOPS | UNPACKS, (-1,)),
    **dict.fromkeys(ITEM_READS, (-2,)),
    **dict.fromkeys(BINARY_OPERATORS, (-2, -1)),
}
#: Constants that a comparison of a tensor does not give a tensor with.
_PLAIN: Final = (str, bytes, tuple, type(None), frozenset)
_FOLLOW_AT_MOST: Final = 6


class Instructions(Protocol):
    """The instructions of a function, by index."""

    def __getitem__(self, index: int, /) -> Instruction: ...


class Evidence(Protocol):
    """What conditions are judged by: the facts about a function, or a sketch of it."""

    @property
    def instructions(self) -> Instructions: ...

    @property
    def stores(self) -> Mapping[str, Sequence[int]]:
        """For each local or cell, the instructions that bind it."""

    @property
    def argument_names(self) -> Sequence[str]: ...

    def operand(self, index: int, position: int) -> Iterable[int]:
        """Return what can have made an operand of an instruction; ``position`` is -1 at the top."""


def may_be_tensor(evidence: Evidence, jump: int) -> Chance:
    """Return how likely the condition of the jump at ``jump`` is a tensor."""
    return _of_operand(evidence, jump, -1, _FOLLOW_AT_MOST, frozenset())


def may_be_open(evidence: Evidence, loop: int) -> bool:
    """Return whether the range of the loop at ``loop`` may end at a data-dependent number."""
    return any(
        _is_open_range(evidence, made)
        for maker in evidence.operand(loop, -1)
        if maker >= 0 and evidence.instructions[maker].op in ITERATORS
        for made in _values_of(evidence, maker, -1, set())
    )


def _is_open_range(evidence: Evidence, call: int) -> bool:
    instruction = evidence.instructions[call]
    if instruction.op not in CALLS or called_name(evidence, call) != "range":
        return False
    seen: set[int] = set()
    return isinstance(instruction.arg, int) and any(
        _is_taken_out(evidence, source, seen)
        for position in range(-instruction.arg, 0)
        for source in _values_of(evidence, call, position, seen)
    )


def _is_taken_out(evidence: Evidence, maker: int, seen: set[int]) -> bool:
    """Return whether a call took a number out of something, or it is computed from one."""
    if evidence.instructions[maker].op in CALLS:
        return called_name(evidence, maker) in TAKE_OUT
    return evidence.instructions[maker].op in BINARY_OPERATORS and any(
        _is_taken_out(evidence, source, seen)
        for position in (-2, -1)
        for source in _values_of(evidence, maker, position, seen)
    )


def _values_of(evidence: Evidence, index: int, position: int, seen: set[int]) -> Iterator[int]:
    """Yield what can have made an operand, also through variables; each only once."""
    for maker in evidence.operand(index, position):
        if maker < 0 or maker in seen:
            continue
        seen.add(maker)
        instruction = evidence.instructions[maker]
        if row(instruction.op).reads not in ("local", "cell"):
            yield maker
            continue
        for store in evidence.stores.get(instruction.arg, ()):
            yield from _values_of(evidence, store, -1, seen)


def _most(answers: Iterable[Chance]) -> Chance:
    most = Chance.NEVER
    for answer in answers:
        most = max(most, answer)
        if most is Chance.LIKELY:
            break
    return most


def _of_maker(evidence: Evidence, maker: int, left: int, followed: frozenset[str]) -> Chance:
    """Return the answer for a value, ``left`` steps before it is not followed any further.

    ``followed`` are the variables that it has passed through.
    """
    if maker < 0:
        return Chance.NEVER
    if left == 0:
        return Chance.LIKELY
    instruction = evidence.instructions[maker]
    op, known = instruction.op, row(instruction.op)
    if op in _NEVER_TENSOR:
        return Chance.NEVER
    if op in _MADE_FROM:
        positions = _MADE_FROM[op]
        return _most(_of_operand(evidence, maker, each, left - 1, followed) for each in positions)
    if op in COMPARISONS:
        return _of_comparison(evidence, maker, left - 1, followed)
    if known.reads in ("local", "cell"):
        return _of_variable(evidence, instruction.arg, left - 1, followed)
    if known.reads == "global":
        return Chance.UNLIKELY
    if known.argument in ("name", "flagged_name") and known.pops == 1:
        name, is_never, other = names_of(instruction), NEVER_TENSOR_ATTRIBUTES, Chance.UNLIKELY
    else:
        name = called_name(evidence, maker) if op in CALLS else ""
        is_never, other = NEVER_TENSOR_CALLS, Chance.LIKELY
    if name in ("shape", "len") and _are_indices(evidence, maker):
        return Chance.LIKELY  # how many there are depends on data
    return Chance.NEVER if name in is_never else other


def _are_indices(evidence: Evidence, index: int) -> bool:
    """Return whether the operand of an instruction has a place for each item that a mask selects.

    So has each part of what such a call returns.
    """
    seen: set[int] = set()
    makers = list(_values_of(evidence, index, -1, seen))
    for maker in makers:
        instruction = evidence.instructions[maker]
        if instruction.op in UNPACKS:
            makers.extend(_values_of(evidence, maker, -1, seen))
        elif instruction.op in ITEM_READS:
            makers.extend(_values_of(evidence, maker, -2, seen))
        elif instruction.op in CALLS and _finds_indices(evidence, maker):
            return True
    return False


def _finds_indices(evidence: Evidence, call: int) -> bool:
    name = called_name(evidence, call)
    is_choice = name == "where" and evidence.instructions[call].arg != 1
    return name in FINDS_INDICES and not is_choice


def _of_operand(
    evidence: Evidence, index: int, position: int, left: int, followed: frozenset[str]
) -> Chance:
    makers = evidence.operand(index, position)
    return _most(_of_maker(evidence, maker, left, followed) for maker in makers)


def _of_variable(evidence: Evidence, name: str, left: int, followed: frozenset[str]) -> Chance:
    """Return the answer for a variable.

    A parameter is unlikely to be a tensor, a local is judged by what is stored to it, and a flag of
    ours is likely. A counter (``k = k + 1``) is judged by what else is stored to it.
    """
    if name.startswith(LEAVES_BEGINS):
        return Chance.LIKELY
    if name in followed:
        return Chance.NEVER
    stores, followed = evidence.stores.get(name, ()), followed | {name}
    answers = [_of_operand(evidence, store, -1, left, followed) for store in stores]
    if name in evidence.argument_names or not answers:
        answers.append(Chance.UNLIKELY)
    return _most(answers)


def _of_comparison(evidence: Evidence, maker: int, left: int, followed: frozenset[str]) -> Chance:
    """Return the answer for a comparison; with a string, or without tensors, it gives a bool."""
    sources = (each for position in (-2, -1) for each in evidence.operand(maker, position))
    made = (evidence.instructions[source] for source in sources if source >= 0)
    if any(each.op in CONSTANT_LOADS and isinstance(each.arg, _PLAIN) for each in made):
        return Chance.NEVER
    return _most(_of_operand(evidence, maker, each, left, followed) for each in (-2, -1))


def _is_null(evidence: Evidence, slot: Iterable[int]) -> bool:
    """Return whether an operand, not made by the same loads as the next, is the NULL of a load."""
    args = [evidence.instructions[source].arg for source in slot if source >= 0]
    return bool(args) and all(isinstance(arg, tuple) and arg[:1] == (True,) for arg in args)


def callees(evidence: Evidence, call: int) -> list[frozenset[int]]:
    """Return the makers of the operands of which one is the callee of a call."""
    instruction = evidence.instructions[call]
    pops, _ = row(instruction.op).effect(instruction.arg)
    slots = [frozenset(evidence.operand(call, position)) for position in range(-pops, 0)[:2]]
    if len(slots) == 2 and slots[0] != slots[1] and _is_null(evidence, slots[0]):
        del slots[0]
    return slots


def called_name(evidence: Evidence, call: int) -> str:
    """Return the last name of what a call calls (``any`` for ``x.any()``); empty if unknown."""
    for slot in callees(evidence, call):
        for source in slot:
            name = names_of(evidence.instructions[source]) if source >= 0 else ""
            if name:
                return name
    return ""
