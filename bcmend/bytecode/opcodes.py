"""One row of facts per canonical opcode.

An opcode without a row is one whose meaning is not known: ``row`` raises, and the code that holds
it is refused.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from bcmend.bytecode import behavior
from bcmend.bytecode.instructions import UnknownOpcode

Count = int | Callable[[Any], int]


@dataclass(frozen=True, slots=True)
class Row:
    """The facts about one canonical opcode."""

    name: str
    #: What the argument is: a kind of variable, ``"none"``, ``"int"``, ``"const"``, ``"name"``,
    #: ``"flagged_name"`` (``(bool, name)``), ``"super"`` (``(bool, bool, name)``), ``"jump"`` or
    #: one of ``decode.ENUMERATIONS``.
    argument: str = "none"
    pops: Count = 0  # on the way to the next instruction; operands only looked at do not count
    pushes: Count = 0
    #: "always", "if_true", "if_false", "if_none", "if_not_none", "for_iter" or "send".
    jump: str | None = None
    jump_pops: int = 0
    jump_pushes: int = 0
    ends: str | None = None  # "return" or "raise"
    reads: str | None = None  # "local", "cell" (or free variable), "global" or "name"
    writes: str | None = None
    deletes: str | None = None
    may_raise: bool = True
    moves: str | None = None  # "copy" or "swap" where operands are moved, not made
    suspends: bool = False  # the frame, to be resumed later or never

    # Computed from the fields above, and stored since it is read for every instruction.
    jump_effect: tuple[int, int] = field(init=False, repr=False)
    falls_through: bool = field(init=False, repr=False)
    tests_truth: bool = field(init=False, repr=False)
    _fixed_effect: tuple[int, int] | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        fixed = isinstance(self.pops, int) and isinstance(self.pushes, int)
        derived = {
            "jump_effect": (self.jump_pops, self.jump_pushes),
            "falls_through": self.ends is None and self.jump != "always",
            "tests_truth": self.jump in ("if_true", "if_false"),
            "_fixed_effect": (self.pops, self.pushes) if fixed else None,
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    def effect(self, arg: object) -> tuple[int, int]:
        """Return how many operands are popped and pushed on the way to the next instruction."""
        if self._fixed_effect is not None:
            return self._fixed_effect
        pops, pushes = self.pops, self.pushes
        return (
            pops if isinstance(pops, int) else pops(arg),
            pushes if isinstance(pushes, int) else pushes(arg),
        )

    @property
    def pops_condition(self) -> bool:
        """Return whether a conditional jump pops its condition, whether it jumps or not."""
        return self.jump is not None and self.pops == 1 and self.jump_pops == 1


def _same(arg: int) -> int:
    return arg


def _more_by(count: int) -> Callable[[int], int]:
    return lambda arg: arg + count


def _one_or_two(arg: tuple[object, ...]) -> int:
    """Return how many operands a load pushes whose flag asks for a NULL, or ``self``, as well."""
    return 1 + bool(arg[0])


_UNARY: Final = ("UNARY_POSITIVE", "UNARY_NEGATIVE", "UNARY_NOT", "UNARY_INVERT", "TO_BOOL")
#: How many operands the jump of FOR_ITER takes and puts back, and how many that of SEND takes.
_FOR_ITER_JUMP: Final = (1, 0) if behavior.FOR_ITER_POPS_ITERATOR else (0, 1)
_SEND_POPS: Final = 2 if behavior.SEND_POPS_RECEIVER else 1
_UNBOUND_RAISES: Final = not behavior.LOAD_FAST_MUST_BE_BOUND
_TRUTH_RAISES: Final = not behavior.HAS_TO_BOOL

_ROWS: Final = (
    # Moving operands, or pushing new ones
    Row("NOP", may_raise=False),
    Row("RESUME", "int", may_raise=False),
    Row("POP_TOP", pops=1, may_raise=False),
    Row("PUSH_NULL", pushes=1, may_raise=False),
    Row("COPY", "int", 0, 1, moves="copy", may_raise=False),
    Row("SWAP", "int", moves="swap", may_raise=False),
    Row("LOAD_CONST", "const", 0, 1, may_raise=False),
    Row("LOAD_ASSERTION_ERROR", pushes=1, may_raise=False),
    Row("LOAD_BUILD_CLASS", pushes=1),
    Row("LOAD_LOCALS", pushes=1),
    Row("SETUP_ANNOTATIONS"),
    Row("KW_NAMES", "const", may_raise=False),
    # Variables
    Row("LOAD_FAST", "local", 0, 1, reads="local", may_raise=_UNBOUND_RAISES),
    Row("LOAD_FAST_CHECK", "local", 0, 1, reads="local"),
    Row("LOAD_FAST_AND_CLEAR", "local", 0, 1, reads="local", deletes="local", may_raise=False),
    Row("STORE_FAST", "local", 1, 0, writes="local", may_raise=False),
    Row("DELETE_FAST", "local", deletes="local"),
    Row("LOAD_CLOSURE", "cell", 0, 1, may_raise=False),
    Row("LOAD_DEREF", "cell", 0, 1, reads="cell"),
    Row("LOAD_CLASSDEREF", "cell", 0, 1, reads="cell"),
    Row("LOAD_FROM_DICT_OR_DEREF", "cell", 1, 1, reads="cell"),
    Row("STORE_DEREF", "cell", 1, 0, writes="cell", may_raise=False),
    Row("DELETE_DEREF", "cell", deletes="cell"),
    Row("MAKE_CELL", "cell", may_raise=False),
    Row("COPY_FREE_VARS", "int", may_raise=False),
    Row("LOAD_GLOBAL", "flagged_name", 0, _one_or_two, reads="global"),
    Row("STORE_GLOBAL", "name", 1, 0, writes="global"),
    Row("DELETE_GLOBAL", "name", deletes="global"),
    Row("LOAD_NAME", "name", 0, 1, reads="name"),
    Row("LOAD_FROM_DICT_OR_GLOBALS", "name", 1, 1, reads="name"),
    Row("STORE_NAME", "name", 1, 0, writes="name"),
    Row("DELETE_NAME", "name", deletes="name"),
    # Operators, subscripts and attributes
    *(Row(name, pops=1, pushes=1) for name in _UNARY),
    Row("BINARY_OP", "binary", 2, 1),
    Row("BINARY_SUBSCR", pops=2, pushes=1),
    Row("BINARY_SLICE", pops=3, pushes=1),
    Row("STORE_SUBSCR", pops=3),
    Row("STORE_SLICE", pops=4),
    Row("DELETE_SUBSCR", pops=2),
    Row("COMPARE_OP", "compare", 2, 1),
    Row("IS_OP", "int", 2, 1, may_raise=False),
    Row("CONTAINS_OP", "int", 2, 1),
    (
        Row("LOAD_ATTR", "name", 1, 1)
        if behavior.HAS_LOAD_METHOD
        else Row("LOAD_ATTR", "flagged_name", 1, _one_or_two)
    ),
    Row("LOAD_METHOD", "name", 1, 2),
    Row("LOAD_SUPER_ATTR", "super", 3, _one_or_two),
    Row("STORE_ATTR", "name", 2, 0),
    Row("DELETE_ATTR", "name", 1, 0),
    # Containers and strings
    Row("BUILD_TUPLE", "int", _same, 1, may_raise=False),
    Row("BUILD_LIST", "int", _same, 1, may_raise=False),
    Row("BUILD_SET", "int", _same, 1),
    Row("BUILD_MAP", "int", lambda count: 2 * count, 1),
    Row("BUILD_CONST_KEY_MAP", "int", _more_by(1), 1),
    Row("BUILD_STRING", "int", _same, 1),
    Row("BUILD_SLICE", "int", lambda count: 3 if count == 3 else 2, 1, may_raise=False),
    Row("LIST_APPEND", "int", 1, 0),
    Row("LIST_EXTEND", "int", 1, 0),
    Row("LIST_TO_TUPLE", pops=1, pushes=1),
    Row("SET_ADD", "int", 1, 0),
    Row("SET_UPDATE", "int", 1, 0),
    Row("MAP_ADD", "int", 2, 0),
    Row("DICT_UPDATE", "int", 1, 0),
    Row("DICT_MERGE", "int", 1, 0),
    Row("UNPACK_SEQUENCE", "int", 1, _same),
    Row("UNPACK_EX", "int", 1, lambda arg: (arg & 0xFF) + (arg >> 8) + 1),
    Row("FORMAT_VALUE", "int", lambda flags: 2 if flags & 4 else 1, 1),
    Row("FORMAT_SIMPLE", pops=1, pushes=1),
    Row("FORMAT_WITH_SPEC", pops=2, pushes=1),
    Row("CONVERT_VALUE", "convert", 1, 1),
    Row("GET_LEN", pushes=1),
    Row("MATCH_MAPPING", pushes=1, may_raise=False),
    Row("MATCH_SEQUENCE", pushes=1, may_raise=False),
    Row("MATCH_KEYS", pushes=1),
    Row("MATCH_CLASS", "int", 3, 1),
    # Calls, functions and imports
    Row("CALL", "int", _more_by(2), 1),
    Row("CALL_KW", "int", _more_by(3), 1),
    Row("CALL_FUNCTION_EX", "int", lambda flags: 3 + (flags & 1), 1),
    Row("CALL_INTRINSIC_1", "intrinsic_1", 1, 1),
    Row("CALL_INTRINSIC_2", "intrinsic_2", 2, 1),
    (
        Row("MAKE_FUNCTION", pops=1, pushes=1, may_raise=False)
        if behavior.FUNCTION_ATTRIBUTES_ARE_SET_AFTER
        else Row("MAKE_FUNCTION", "int", lambda flags: 1 + flags.bit_count(), 1, may_raise=False)
    ),
    Row("SET_FUNCTION_ATTRIBUTE", "int", 2, 1, may_raise=False),
    Row("IMPORT_NAME", "name", 2, 1),
    Row("IMPORT_FROM", "name", 0, 1),
    Row("IMPORT_STAR", pops=1),
    Row("PRINT_EXPR", pops=1),
    # Jumps and ends
    Row("JUMP", "jump", jump="always", may_raise=False),
    Row("JUMP_NO_INTERRUPT", "jump", jump="always", may_raise=False),
    Row("POP_JUMP_IF_TRUE", "jump", 1, 0, "if_true", 1, may_raise=_TRUTH_RAISES),
    Row("POP_JUMP_IF_FALSE", "jump", 1, 0, "if_false", 1, may_raise=_TRUTH_RAISES),
    Row("POP_JUMP_IF_NONE", "jump", 1, 0, "if_none", 1, may_raise=False),
    Row("POP_JUMP_IF_NOT_NONE", "jump", 1, 0, "if_not_none", 1, may_raise=False),
    Row("JUMP_IF_TRUE_OR_POP", "jump", 1, 0, "if_true"),
    Row("JUMP_IF_FALSE_OR_POP", "jump", 1, 0, "if_false"),
    Row("FOR_ITER", "jump", 0, 1, "for_iter", *_FOR_ITER_JUMP),
    Row("END_FOR", pops=2 if behavior.END_FOR_POPS_ITERATOR else 1, may_raise=False),
    Row("SEND", "jump", 1, 1, "send", _SEND_POPS, 1),
    Row("END_SEND", pops=2, pushes=1, may_raise=False),
    Row("RETURN_VALUE", pops=1, ends="return", may_raise=False),
    Row("RETURN_CONST", "const", ends="return", may_raise=False),
    Row("RAISE_VARARGS", "int", _same, 0, ends="raise"),
    Row("RERAISE", "int", 1, 0, ends="raise"),
    # Iteration, generators, ``with`` and exception handling
    Row("GET_ITER", pops=1, pushes=1),
    Row("GET_YIELD_FROM_ITER", pops=1, pushes=1),
    Row("GET_AWAITABLE", "int", 1, 1),
    Row("GET_AITER", pops=1, pushes=1),
    Row("GET_ANEXT", pushes=1),
    Row("END_ASYNC_FOR", pops=2),
    # The caller gets the generator here; whoever resumes it pushes a value first.
    Row("RETURN_GENERATOR", pushes=1, may_raise=False),
    Row("YIELD_VALUE", "int" if behavior.YIELD_HAS_ARGUMENT else "none", 1, 1, suspends=True),
    Row("ASYNC_GEN_WRAP", pops=1, pushes=1),
    Row("CLEANUP_THROW", pops=3, pushes=2),
    Row("BEFORE_WITH", pops=1, pushes=2),
    Row("BEFORE_ASYNC_WITH", pops=1, pushes=2),
    Row("WITH_EXCEPT_START", pushes=1),
    Row("PUSH_EXC_INFO", pops=1, pushes=2, may_raise=False),
    Row("POP_EXCEPT", pops=1, may_raise=False),
    Row("CHECK_EXC_MATCH", pops=1, pushes=1),
    Row("CHECK_EG_MATCH", pops=2, pushes=2),
    Row("PREP_RERAISE_STAR", pops=2, pushes=1),
)


class _Rows(dict[str, Row]):
    def __missing__(self, name: str) -> Row:
        raise UnknownOpcode(f"no facts are known about the opcode {name}")


#: Every row, by canonical name.
ROWS: Final[dict[str, Row]] = _Rows((each.name, each) for each in _ROWS)


def opcode_names(*texts: str) -> frozenset[str]:
    """Return the canonical opcode names in ``texts``, which spaces separate.

    Raises ``UnknownOpcode`` for a name that no supported Python has: a table with such a name
    would silently match nothing.
    """
    return frozenset(row(name).name for text in texts for name in text.split())


#: Return the facts about an opcode; raise ``UnknownOpcode`` without a row. The bound method itself,
#: since it is asked of every instruction many times.
row: Final[Callable[[str], Row]] = ROWS.__getitem__
