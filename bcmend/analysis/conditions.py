"""Whether the condition of a jump may be a tensor.

Bytecode has no types, but most conditions show what they are: the result of ``is``, of ``len``, of
a comparison with a string. Follows the value back to the instructions that made it. Three answers:
``"never"``, ``"unlikely"`` (a bare parameter or attribute, mostly a flag; such a jump is mended
when Dynamo stops there) and ``"likely"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from bcmend.analysis.effects import names_of
from bcmend.codeobj.decode import Instruction
from bcmend.codeobj.opcodes import row
from bcmend.names import LEAVES_BEGINS
from bcmend.torch_knowledge import NEVER_TENSOR_ATTRIBUTES, NEVER_TENSOR_CALLS

__all__ = ["FINDS_INDICES", "TAKE_OUT", "Evidence", "may_be_open", "may_be_tensor"]

#: Calls that may take a number out of a tensor and are mostly made for that.
TAKE_OUT: Final = frozenset(["int", "item"])

#: Calls that tell where a mask is true.
FINDS_INDICES: Final = frozenset(["argwhere", "nonzero", "where"])

_NEVER_TENSOR: Final = frozenset(
    """
    IS_OP CONTAINS_OP CHECK_EXC_MATCH CHECK_EG_MATCH WITH_EXCEPT_START LOAD_CONST BUILD_TUPLE
    BUILD_LIST BUILD_MAP BUILD_SET BUILD_STRING BUILD_CONST_KEY_MAP
    """.split()
)
#: Instructions that make a tensor only of one: their operands, -1 being the top.
_MADE_FROM: Final = {
    "TO_BOOL": (-1,),
    "UNARY_NOT": (-1,),
    "UNARY_NEGATIVE": (-1,),
    "UNARY_INVERT": (-1,),
    "UNARY_POSITIVE": (-1,),
    "GET_ITER": (-1,),
    "FOR_ITER": (-1,),
    "UNPACK_SEQUENCE": (-1,),
    "BINARY_SUBSCR": (-2,),
    "BINARY_OP": (-2, -1),
}
_FOLLOW_AT_MOST: Final = 6


@dataclass(frozen=True, slots=True)
class _Trail:
    """How far a value is still followed back, and through which variables it was."""

    left: int
    names: frozenset[str] = frozenset()

    def shorter(self) -> _Trail:
        return _Trail(self.left - 1, self.names)

    def through(self, name: str) -> _Trail:
        return _Trail(self.left, self.names | {name})


class Evidence(Protocol):
    """What conditions are judged by: all the facts about a function, or a sketch of it."""

    @property
    def instructions(self) -> Sequence[Instruction]: ...

    @property
    def stores(self) -> Mapping[str, Sequence[int]]:
        """For each local or cell, the instructions that bind it."""

    @property
    def argument_names(self) -> Sequence[str]: ...

    def operand(self, index: int, position: int) -> Iterable[int]:
        """Return what can have made an operand of an instruction; ``position`` is -1 at the top."""


def may_be_tensor(evidence: Evidence, jump: int) -> str:
    """Return "never", "unlikely" or "likely" for the condition of the jump at ``jump``."""
    return _of_operand(evidence, jump, -1, _Trail(_FOLLOW_AT_MOST + 1))


def may_be_open(evidence: Evidence, loop: int) -> bool:
    """Whether the FOR_ITER at ``loop`` may go over a range up to a number out of a tensor."""
    return any(
        _is_open_range(evidence, made)
        for maker in evidence.operand(loop, -1)
        if maker >= 0 and evidence.instructions[maker].op == "GET_ITER"
        for made in _values_of(evidence, maker, -1, set())
    )


def _is_open_range(evidence: Evidence, call: int) -> bool:
    instruction = evidence.instructions[call]
    if not instruction.op.startswith("CALL") or called_name(evidence, call) != "range":
        return False
    seen: set[int] = set()
    return isinstance(instruction.arg, int) and any(
        _is_taken_out(evidence, source, seen)
        for position in range(-instruction.arg, 0)
        for source in _values_of(evidence, call, position, seen)
    )


def _is_taken_out(evidence: Evidence, maker: int, seen: set[int]) -> bool:
    """Whether a value is a number that a call took out of something, or computed from one."""
    if evidence.instructions[maker].op.startswith("CALL"):
        return called_name(evidence, maker) in TAKE_OUT
    return evidence.instructions[maker].op == "BINARY_OP" and any(
        _is_taken_out(evidence, source, seen)
        for side in (-2, -1)
        for source in _values_of(evidence, maker, side, seen)
    )


def _values_of(evidence: Evidence, index: int, position: int, seen: set[int]) -> Iterator[int]:
    """Yield what can have made an operand, if need be by way of variables; each only once."""
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


def _most(answers: Iterable[str]) -> str:
    most = "never"
    for answer in answers:
        if answer == "likely":
            return answer
        if answer == "unlikely":
            most = answer
    return most


def _of_maker(evidence: Evidence, maker: int, trail: _Trail) -> str:
    if maker < 0:
        return "never"
    if trail.left == 0:
        return "likely"
    instruction = evidence.instructions[maker]
    op, known = instruction.op, row(instruction.op)
    if op in _NEVER_TENSOR:
        return "never"
    if op in _MADE_FROM:
        sides = _MADE_FROM[op]
        return _most(_of_operand(evidence, maker, side, trail) for side in sides)
    if op == "COMPARE_OP":
        return _of_comparison(evidence, maker, trail)
    if known.reads in ("local", "cell"):
        return _of_variable(evidence, instruction.arg, trail)
    if known.reads == "global":
        return "unlikely"
    if known.argument in ("name", "flagged_name") and known.pops == 1:
        return "never" if names_of(instruction) in NEVER_TENSOR_ATTRIBUTES else "unlikely"
    return _of_call(evidence, maker) if op.startswith("CALL") else "likely"


def _of_operand(evidence: Evidence, index: int, position: int, trail: _Trail) -> str:
    makers = evidence.operand(index, position)
    return _most(_of_maker(evidence, maker, trail.shorter()) for maker in makers)


def _of_variable(evidence: Evidence, name: str, trail: _Trail) -> str:
    """A parameter is unlikely; a local is what was stored to it; a flag of ours is likely.

    A counter (``k = k + 1``) is no more than what else is stored to it.
    """
    if name.startswith(LEAVES_BEGINS):
        return "likely"
    if name in trail.names:
        return "never"
    stores = evidence.stores.get(name, ())
    answers = [_of_operand(evidence, store, -1, trail.through(name)) for store in stores]
    if name in evidence.argument_names or not answers:
        answers.append("unlikely")
    return _most(answers)


def _of_comparison(evidence: Evidence, maker: int, trail: _Trail) -> str:
    """A comparison with a string, or of two things that are no tensors, gives a bool."""
    for side in (-2, -1):
        if any(_is_plain_constant(evidence, source) for source in evidence.operand(maker, side)):
            return "never"
    return _most(_of_operand(evidence, maker, side, trail) for side in (-2, -1))


def _is_plain_constant(evidence: Evidence, source: int) -> bool:
    if source < 0:
        return False
    instruction = evidence.instructions[source]
    return instruction.op == "LOAD_CONST" and isinstance(
        instruction.arg, (str, bytes, tuple, type(None), frozenset)
    )


def _of_call(evidence: Evidence, maker: int) -> str:
    called = called_name(evidence, maker)
    return "never" if called in NEVER_TENSOR_CALLS else "likely"


def _is_null(evidence: Evidence, slot: Iterable[int]) -> bool:
    """Whether an operand, made by other instructions than its neighbour, is a load's NULL."""
    args = [evidence.instructions[source].arg for source in slot if source >= 0]
    return bool(args) and all(isinstance(arg, tuple) and arg[:1] == (True,) for arg in args)


def callees(evidence: Evidence, call: int) -> list[frozenset[int]]:
    """Return the operands of which one is what a call calls, each as what can have made it."""
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
