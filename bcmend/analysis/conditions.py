"""Whether the condition of a jump may be a tensor.

Bytecode has no types, but most conditions show what they are: the result of ``is``, of ``len``, of
a comparison with a string. Follows the value back to the instructions that made it. Three answers:
``"never"``, ``"unlikely"`` (a bare parameter or attribute, mostly a flag; such a jump is mended when
Dynamo stops there) and ``"likely"``.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bcmend.analysis.effects import names_of
from bcmend.analysis.facts import Facts
from bcmend.codeobj.opcodes import row
from bcmend.torch_knowledge import NEVER_TENSOR_ATTRIBUTES, NEVER_TENSOR_CALLS

__all__ = ["may_be_tensor"]

_RANKS: Final = ("never", "unlikely", "likely")
_ALWAYS_BOOL: Final = frozenset(
    ["IS_OP", "CONTAINS_OP", "CHECK_EXC_MATCH", "CHECK_EG_MATCH", "WITH_EXCEPT_START"]
)
_PASSES_ON: Final = frozenset(["TO_BOOL", "UNARY_NOT", "COPY", "SWAP", "NOP"])
_MADE_FROM_TOP: Final = frozenset(
    ["UNPACK_SEQUENCE", "FOR_ITER", "GET_ITER", "UNARY_NEGATIVE", "UNARY_INVERT", "UNARY_POSITIVE"]
)
_DISPLAYS: Final = frozenset(
    ["BUILD_TUPLE", "BUILD_LIST", "BUILD_MAP", "BUILD_SET", "BUILD_STRING", "BUILD_CONST_KEY_MAP"]
)
_FOLLOW_AT_MOST: Final = 6


def may_be_tensor(facts: Facts, jump: int) -> str:
    """Return "never", "unlikely" or "likely" for the condition of the jump at ``jump``."""
    stack = facts.stacks[jump]
    if not stack:
        return "never"
    return _most(_of_maker(facts, maker, _FOLLOW_AT_MOST) for maker in stack[-1])


def _most(answers: Iterable[str]) -> str:
    return max(answers, key=_RANKS.index, default="never")


def _of_maker(facts: Facts, maker: int, follow: int) -> str:
    if maker < 0:
        return "never"
    if follow == 0:
        return "likely"
    instruction = facts.instructions[maker]
    op, known = instruction.op, row(instruction.op)
    if op in _ALWAYS_BOOL or op in _DISPLAYS or op == "LOAD_CONST":
        return "never"
    if op in _PASSES_ON:
        return _of_operand(facts, maker, -1, follow)
    if op == "COMPARE_OP":
        return _of_comparison(facts, maker, follow)
    if known.reads in ("local", "cell"):
        return _of_variable(facts, instruction.arg, follow)
    if known.reads == "global":
        return "unlikely"
    if known.argument in ("name", "flagged_name") and known.pops == 1:
        return "never" if names_of(instruction) in NEVER_TENSOR_ATTRIBUTES else "unlikely"
    if op.startswith("CALL"):
        return _of_call(facts, maker)
    if op in ("BINARY_SUBSCR", "BINARY_OP"):
        sides = (-2,) if op == "BINARY_SUBSCR" else (-2, -1)
        return _most(_of_operand(facts, maker, side, follow) for side in sides)
    if op in _MADE_FROM_TOP:
        return _of_operand(facts, maker, -1, follow)
    return "likely"


def _of_operand(facts: Facts, index: int, position: int, follow: int) -> str:
    stack = facts.stacks[index]
    if stack is None or len(stack) < -position:
        return "never"
    return _most(_of_maker(facts, maker, follow - 1) for maker in stack[position])


def _of_variable(facts: Facts, name: str, follow: int) -> str:
    """A parameter is unlikely; a local is what was stored to it."""
    stores = facts.stores.get(name, ())
    answers = [_of_operand(facts, store, -1, follow) for store in stores]
    if name in facts.function.shape.argnames or not answers:
        answers.append("unlikely")
    return _most(answers)


def _of_comparison(facts: Facts, maker: int, follow: int) -> str:
    """A comparison with a string, or of two things that are no tensors, gives a bool."""
    stack = facts.stacks[maker]
    assert stack is not None
    for slot in stack[-2:]:
        for source in slot:
            if source >= 0 and _is_plain_constant(facts, source):
                return "never"
    sides = [_most(_of_maker(facts, source, follow - 1) for source in slot) for slot in stack[-2:]]
    return _most(sides)


def _is_plain_constant(facts: Facts, source: int) -> bool:
    instruction = facts.instructions[source]
    return instruction.op == "LOAD_CONST" and isinstance(
        instruction.arg, (str, bytes, tuple, type(None), frozenset)
    )


def _of_call(facts: Facts, maker: int) -> str:
    called = called_name(facts, maker)
    return "never" if called in NEVER_TENSOR_CALLS else "likely"


def called_name(facts: Facts, call: int) -> str:
    """Return the last name of what a call calls (``any`` for ``x.any()``); empty if unknown."""
    stack = facts.stacks[call]
    instruction = facts.instructions[call]
    pops, _ = row(instruction.op).effect(instruction.arg)
    if stack is None or len(stack) < pops:
        return ""
    for slot in stack[-pops:][:2]:
        for source in slot:
            if source >= 0:
                name = names_of(facts.instructions[source])
                if name:
                    return name
    return ""
