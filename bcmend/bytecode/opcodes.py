"""One row of facts per canonical opcode.

An opcode without a row is one whose meaning is not known: ``row`` raises, and the code that holds
it is refused.
"""

from __future__ import annotations

import dis
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Any, Final

from bcmend.bytecode import behavior
from bcmend.bytecode.instructions import UnknownOpcode

Count = int | Callable[[Any], int]


class OpKind(Flag):
    """What an opcode is to those who look for it in code, as far as no other field of a row says.

    An opcode may be of several kinds: a store of an attribute is a ``STORE`` and an ``ATTRIBUTE``.
    """

    LOAD = auto()  # of anything but a variable, of which the other fields of a row say it
    READ = auto()  # of an item or a slice
    STORE = auto()
    DELETE = auto()
    ATTRIBUTE = auto()
    METHOD = auto()  # loaded as two operands
    ITEM = auto()
    SLICE = auto()
    CONSTANT = auto()
    CELL_ITSELF = auto()
    CLASS = auto()
    ASSERTION = auto()
    FILLER = auto()  # does nothing
    START = auto()  # of the code of the program
    DISCARD = auto()
    NULL = auto()  # pushes nothing else
    UNARY = auto()
    NEGATE = auto()
    NOT = auto()
    INVERT = auto()
    TRUTH = auto()  # makes a bool of anything
    IDENTITY = auto()
    MEMBERSHIP = auto()
    BUILD = auto()
    APPEND = auto()
    EXTEND = auto()
    MERGE = auto()  # the keywords of a call
    UNPACK = auto()
    FORMAT = auto()
    CALL = auto()
    KEYWORDS = auto()  # a call with keyword arguments, whose names are pushed before it
    STARRED = auto()  # a call with arguments in a tuple and a dictionary
    KEYWORD_NAMES = auto()  # of the call that follows
    FUNCTION = auto()  # made, or given its closure and defaults
    IMPORT = auto()
    MODULE = auto()  # imported
    GENERATOR = auto()  # made
    RAISE = auto()
    RAISE_AGAIN = auto()
    ITERATOR = auto()  # made
    LOOP_END = auto()
    ASYNC = auto()
    WITH = auto()  # enters a block
    EXIT = auto()  # calls ``__exit__`` for an exception
    HANDLER = auto()  # begins
    HANDLER_END = auto()
    EXCEPTION_TEST = auto()


_NO_KIND: Final = OpKind(0)


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
    #: How many of the topmost operands it looks at, those included that it takes; 0: it takes all.
    looks_at: Count = 0
    #: Operands that it makes room for while it runs, above those that it leaves.
    room: int = 0
    kind: OpKind = _NO_KIND

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

    def needs(self, arg: Any) -> int:
        """Return how many operands have to be there when the instruction runs."""
        looks_at = self.looks_at
        if looks_at == 0:
            return self.effect(arg)[0]
        return max(self.effect(arg)[0], looks_at if isinstance(looks_at, int) else looks_at(arg))

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


_UNARY: Final = {
    "UNARY_POSITIVE": OpKind.UNARY,
    "UNARY_NEGATIVE": OpKind.UNARY | OpKind.NEGATE,
    "UNARY_NOT": OpKind.UNARY | OpKind.NOT,
    "UNARY_INVERT": OpKind.UNARY | OpKind.INVERT,
    "TO_BOOL": OpKind.TRUTH,
}
#: How many operands the jump of FOR_ITER takes and puts back, and how many that of SEND takes.
_FOR_ITER_JUMP: Final = (1, 0) if behavior.FOR_ITER_POPS_ITERATOR else (0, 1)
_SEND_POPS: Final = 2 if behavior.SEND_POPS_RECEIVER else 1
_END_FOR_POPS: Final = 2 if behavior.END_FOR_POPS_ITERATOR else 1
_YIELD_ARGUMENT: Final = "int" if behavior.YIELD_HAS_ARGUMENT else "none"
#: How many operands the block of a ``with`` begins with, and how many more there are before that.
_ENTERED: Final = 1 + behavior.WITH_KEEPS
_ENTERING: Final = behavior.WITH_KEEPS - 1
_UNBOUND_RAISES: Final = not behavior.LOAD_FAST_MUST_BE_BOUND
_TRUTH_RAISES: Final = not behavior.HAS_TO_BOOL

_ROWS: Final = (
    # Moving operands, or pushing new ones
    Row("NOP", may_raise=False, kind=OpKind.FILLER),
    Row("NOT_TAKEN", may_raise=False, kind=OpKind.FILLER),
    Row("RESUME", "int", may_raise=False, kind=OpKind.START),
    Row("POP_TOP", pops=1, may_raise=False, kind=OpKind.DISCARD),
    Row("PUSH_NULL", pushes=1, may_raise=False, kind=OpKind.NULL),
    Row("COPY", "int", 0, 1, moves="copy", may_raise=False, looks_at=_same),
    Row("SWAP", "int", moves="swap", may_raise=False, looks_at=_same),
    Row("LOAD_CONST", "const", 0, 1, may_raise=False, kind=OpKind.LOAD | OpKind.CONSTANT),
    Row("LOAD_ASSERTION_ERROR", pushes=1, may_raise=False, kind=OpKind.LOAD | OpKind.ASSERTION),
    Row("LOAD_COMMON_CONSTANT", "common", 0, 1, may_raise=False, kind=OpKind.LOAD),
    Row("LOAD_BUILD_CLASS", pushes=1, kind=OpKind.LOAD | OpKind.CLASS),
    Row("LOAD_LOCALS", pushes=1, kind=OpKind.LOAD),
    Row("SETUP_ANNOTATIONS"),
    Row("KW_NAMES", "const", may_raise=False, kind=OpKind.KEYWORD_NAMES),
    # Variables
    Row("LOAD_FAST", "local", 0, 1, reads="local", may_raise=_UNBOUND_RAISES),
    Row("LOAD_FAST_CHECK", "local", 0, 1, reads="local"),
    Row("LOAD_FAST_AND_CLEAR", "local", 0, 1, reads="local", deletes="local", may_raise=False),
    Row("STORE_FAST", "local", 1, 0, writes="local", may_raise=False),
    Row("DELETE_FAST", "local", deletes="local"),
    Row("LOAD_CLOSURE", "cell", 0, 1, may_raise=False, kind=OpKind.LOAD | OpKind.CELL_ITSELF),
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
    *(Row(name, pops=1, pushes=1, kind=kind) for name, kind in _UNARY.items()),
    Row("BINARY_OP", "binary", 2, 1),
    Row("BINARY_SUBSCR", pops=2, pushes=1, kind=OpKind.READ | OpKind.ITEM),
    Row("BINARY_SLICE", pops=3, pushes=1, kind=OpKind.READ | OpKind.SLICE),
    Row("STORE_SUBSCR", pops=3, kind=OpKind.STORE | OpKind.ITEM),
    Row("STORE_SLICE", pops=4, kind=OpKind.STORE | OpKind.SLICE),
    Row("DELETE_SUBSCR", pops=2, kind=OpKind.DELETE | OpKind.ITEM),
    Row("COMPARE_OP", "compare", 2, 1),
    Row("IS_OP", "int", 2, 1, may_raise=False, kind=OpKind.IDENTITY),
    Row("CONTAINS_OP", "int", 2, 1, kind=OpKind.MEMBERSHIP),
    (
        Row("LOAD_ATTR", "name", 1, 1, kind=OpKind.LOAD | OpKind.ATTRIBUTE)
        if behavior.HAS_LOAD_METHOD
        else Row("LOAD_ATTR", "flagged_name", 1, _one_or_two, kind=OpKind.LOAD | OpKind.ATTRIBUTE)
    ),
    Row("LOAD_METHOD", "name", 1, 2, kind=OpKind.LOAD | OpKind.ATTRIBUTE | OpKind.METHOD),
    Row("LOAD_SUPER_ATTR", "super", 3, _one_or_two, kind=OpKind.LOAD),
    Row("STORE_ATTR", "name", 2, 0, kind=OpKind.STORE | OpKind.ATTRIBUTE),
    Row("DELETE_ATTR", "name", 1, 0, kind=OpKind.DELETE | OpKind.ATTRIBUTE),
    # Containers and strings
    Row("BUILD_TUPLE", "int", _same, 1, may_raise=False, kind=OpKind.BUILD),
    Row("BUILD_LIST", "int", _same, 1, may_raise=False, kind=OpKind.BUILD),
    Row("BUILD_SET", "int", _same, 1, kind=OpKind.BUILD),
    Row("BUILD_MAP", "int", lambda count: 2 * count, 1, kind=OpKind.BUILD),
    Row("BUILD_CONST_KEY_MAP", "int", _more_by(1), 1, kind=OpKind.BUILD),
    Row("BUILD_STRING", "int", _same, 1, kind=OpKind.BUILD),
    Row("BUILD_SLICE", "int", lambda n: 3 if n == 3 else 2, 1, may_raise=False, kind=OpKind.BUILD),
    Row("LIST_APPEND", "int", 1, 0, looks_at=_more_by(1), kind=OpKind.APPEND),
    Row("LIST_EXTEND", "int", 1, 0, looks_at=_more_by(1), kind=OpKind.EXTEND),
    Row("LIST_TO_TUPLE", pops=1, pushes=1),
    Row("SET_ADD", "int", 1, 0, looks_at=_more_by(1)),
    Row("SET_UPDATE", "int", 1, 0, looks_at=_more_by(1), kind=OpKind.EXTEND),
    Row("MAP_ADD", "int", 2, 0, looks_at=_more_by(2)),
    Row("DICT_UPDATE", "int", 1, 0, looks_at=_more_by(1), kind=OpKind.EXTEND),
    Row("DICT_MERGE", "int", 1, 0, looks_at=_more_by(1), kind=OpKind.MERGE),
    Row("UNPACK_SEQUENCE", "int", 1, _same, kind=OpKind.UNPACK),
    Row("UNPACK_EX", "int", 1, lambda arg: (arg & 0xFF) + (arg >> 8) + 1),
    Row("FORMAT_VALUE", "int", lambda flags: 2 if flags & 4 else 1, 1, kind=OpKind.FORMAT),
    Row("FORMAT_SIMPLE", pops=1, pushes=1, kind=OpKind.FORMAT),
    Row("FORMAT_WITH_SPEC", pops=2, pushes=1, kind=OpKind.FORMAT),
    Row("CONVERT_VALUE", "convert", 1, 1),
    Row("BUILD_INTERPOLATION", "int", lambda flags: 2 + (flags & 1), 1),
    Row("BUILD_TEMPLATE", pops=2, pushes=1),
    Row("GET_LEN", pushes=1, looks_at=1),
    Row("MATCH_MAPPING", pushes=1, may_raise=False, looks_at=1),
    Row("MATCH_SEQUENCE", pushes=1, may_raise=False, looks_at=1),
    Row("MATCH_KEYS", pushes=1, looks_at=2),
    Row("MATCH_CLASS", "int", 3, 1),
    # Calls, functions and imports
    Row("CALL", "int", _more_by(2), 1, kind=OpKind.CALL),
    Row("CALL_KW", "int", _more_by(3), 1, kind=OpKind.CALL | OpKind.KEYWORDS),
    (
        Row("CALL_FUNCTION_EX", "int", lambda n: 3 + (n & 1), 1, kind=OpKind.CALL | OpKind.STARRED)
        if behavior.STARRED_CALL_HAS_FLAG
        else Row("CALL_FUNCTION_EX", pops=4, pushes=1, kind=OpKind.CALL | OpKind.STARRED)
    ),
    Row("CALL_INTRINSIC_1", "intrinsic_1", 1, 1),
    Row("CALL_INTRINSIC_2", "intrinsic_2", 2, 1),
    (
        Row("MAKE_FUNCTION", pops=1, pushes=1, may_raise=False, kind=OpKind.FUNCTION)
        if behavior.FUNCTION_ATTRIBUTES_ARE_SET_AFTER
        else Row(
            "MAKE_FUNCTION",
            "int",
            lambda flags: 1 + flags.bit_count(),
            1,
            may_raise=False,
            kind=OpKind.FUNCTION,
        )
    ),
    Row("SET_FUNCTION_ATTRIBUTE", "int", 2, 1, may_raise=False, kind=OpKind.FUNCTION),
    Row("IMPORT_NAME", "name", 2, 1, kind=OpKind.IMPORT | OpKind.MODULE),
    Row("IMPORT_FROM", "name", 0, 1, looks_at=1, kind=OpKind.IMPORT),
    Row("IMPORT_STAR", pops=1, kind=OpKind.IMPORT),
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
    Row("FOR_ITER", "jump", 0, 1, "for_iter", *_FOR_ITER_JUMP, looks_at=1),
    Row("END_FOR", pops=_END_FOR_POPS, may_raise=False, kind=OpKind.LOOP_END),
    Row("POP_ITER", pops=1, may_raise=False, kind=OpKind.DISCARD),
    Row("SEND", "jump", 1, 1, "send", _SEND_POPS, 1, looks_at=2),
    Row("END_SEND", pops=2, pushes=1, may_raise=False),
    Row("RETURN_VALUE", pops=1, ends="return", may_raise=False),
    Row("RETURN_CONST", "const", ends="return", may_raise=False),
    Row("RAISE_VARARGS", "int", _same, 0, ends="raise", kind=OpKind.RAISE),
    Row("RERAISE", "int", 1, 0, ends="raise", looks_at=_more_by(1), kind=OpKind.RAISE_AGAIN),
    # Iteration, generators, ``with`` and exception handling
    Row("GET_ITER", pops=1, pushes=1, kind=OpKind.ITERATOR),
    Row("GET_YIELD_FROM_ITER", pops=1, pushes=1),
    Row("GET_AWAITABLE", "int", 1, 1),
    Row("GET_AITER", pops=1, pushes=1, kind=OpKind.ITERATOR | OpKind.ASYNC),
    Row("GET_ANEXT", pushes=1, looks_at=1),
    # Where the loop begins, in 3.14, is only for those who watch the branches of a program.
    Row("END_ASYNC_FOR", "int" if behavior.JUMPS_ARE_MARKED else "none", 2),
    # The caller gets the generator here; whoever resumes it pushes a value first.
    Row("RETURN_GENERATOR", pushes=1, may_raise=False, kind=OpKind.GENERATOR),
    Row("YIELD_VALUE", _YIELD_ARGUMENT, 1, 1, suspends=True),
    Row("ASYNC_GEN_WRAP", pops=1, pushes=1),
    Row("CLEANUP_THROW", pops=3, pushes=2),
    Row("BEFORE_WITH", "none", 1, _ENTERED, room=_ENTERING, kind=OpKind.WITH),
    Row("BEFORE_ASYNC_WITH", "none", 1, _ENTERED, room=_ENTERING, kind=OpKind.ASYNC | OpKind.WITH),
    Row("WITH_EXCEPT_START", pushes=1, looks_at=3 + behavior.WITH_KEEPS, kind=OpKind.EXIT),
    Row("PUSH_EXC_INFO", pops=1, pushes=2, may_raise=False, kind=OpKind.HANDLER),
    Row("POP_EXCEPT", pops=1, may_raise=False, kind=OpKind.HANDLER_END),
    Row("CHECK_EXC_MATCH", pops=1, pushes=1, looks_at=2, kind=OpKind.EXCEPTION_TEST),
    Row("CHECK_EG_MATCH", pops=2, pushes=2, kind=OpKind.EXCEPTION_TEST),
    Row("PREP_RERAISE_STAR", pops=2, pushes=1),
)


class _Rows(dict[str, Row]):
    def __missing__(self, name: str) -> Row:
        raise UnknownOpcode(f"no facts are known about the opcode {name}")


#: Every row, by canonical name.
ROWS: Final[dict[str, Row]] = _Rows((each.name, each) for each in _ROWS)

#: Return the facts about an opcode; raise ``UnknownOpcode`` without a row. Asked very often.
row: Final[Callable[[str], Row]] = ROWS.__getitem__


def _where(asked: Callable[[Row], bool]) -> frozenset[str]:
    """Return the opcodes whose rows are asked for: some, else a question would get no answer."""
    found = frozenset(each.name for each in _ROWS if asked(each))
    if not found:
        raise UnknownOpcode("no opcode is of the kind asked for")
    return found


def of_kind(kind: OpKind) -> frozenset[str]:
    """Return the opcodes that are all of ``kind``."""
    return _where(lambda each: kind in each.kind)


# What the rest of the package asks for, in place of names. It holds for names that ``dis`` and
# Dynamo give as well, but for those of jumps: ``decode.canonical_name`` makes these canonical.

FILLERS: Final = of_kind(OpKind.FILLER)
#: Numbers of opcodes that jump, as ``dis`` and Dynamo have them in instructions.
JUMPING: Final = frozenset([*dis.hasjrel, *dis.hasjabs])
#: What may stand between what computes a condition and the jump that tests it.
IN_FRONT_OF_JUMPS: Final = frozenset(["TO_BOOL", "EXTENDED_ARG", "CACHE", "COPY", "NOP"])
STARTS: Final = of_kind(OpKind.START)
DISCARDS: Final = of_kind(OpKind.DISCARD)
NULLS: Final = of_kind(OpKind.NULL)
COPIES: Final = _where(lambda each: each.moves == "copy")
SWAPS: Final = _where(lambda each: each.moves == "swap")

LOADS: Final = _where(lambda each: each.reads is not None or OpKind.LOAD in each.kind)
VARIABLE_LOADS: Final = _where(lambda each: each.reads is not None)
LOCAL_LOADS: Final = _where(lambda each: each.reads == "local")
CELL_LOADS: Final = _where(lambda each: each.reads == "cell")
GLOBAL_LOADS: Final = _where(lambda each: each.reads == "global")
#: Of globals, in functions and in the bodies of classes.
NAME_LOADS: Final = _where(lambda each: each.reads in ("global", "name"))
CONSTANT_LOADS: Final = of_kind(OpKind.LOAD | OpKind.CONSTANT)
CELLS_THEMSELVES: Final = of_kind(OpKind.CELL_ITSELF)
#: What an inlined comprehension saves of the function around it.
SAVED_LOCALS: Final = _where(lambda each: each.reads == "local" and each.deletes == "local")
CLASSES: Final = of_kind(OpKind.CLASS)
ASSERTIONS: Final = of_kind(OpKind.ASSERTION)
COMMON_CONSTANTS: Final = _where(lambda each: each.argument == "common")
STORES: Final = _where(lambda each: each.writes is not None or OpKind.STORE in each.kind)
LOCAL_STORES: Final = _where(lambda each: each.writes == "local")
LOCAL_DELETES: Final = _where(lambda each: each.deletes == "local") - SAVED_LOCALS
DELETES: Final = of_kind(OpKind.DELETE) | _where(lambda each: bool(each.deletes)) - SAVED_LOCALS

ATTRIBUTE_LOADS: Final = of_kind(OpKind.LOAD | OpKind.ATTRIBUTE)
METHOD_LOADS: Final = of_kind(OpKind.METHOD)
SUPER_LOADS: Final = _where(lambda each: each.argument == "super")
ATTRIBUTE_STORES: Final = of_kind(OpKind.STORE | OpKind.ATTRIBUTE)
ATTRIBUTE_DELETES: Final = of_kind(OpKind.DELETE | OpKind.ATTRIBUTE)
ITEM_READS: Final = of_kind(OpKind.READ | OpKind.ITEM)
SLICE_READS: Final = of_kind(OpKind.READ | OpKind.SLICE)
ITEM_STORES: Final = of_kind(OpKind.STORE | OpKind.ITEM)
SLICE_STORES: Final = of_kind(OpKind.STORE | OpKind.SLICE)
ITEM_DELETES: Final = of_kind(OpKind.DELETE | OpKind.ITEM)
#: Stores to variables that are not those of the function alone, and their deletions.
GLOBAL_STORES: Final = _where(lambda each: each.writes == "global")
GLOBAL_CHANGES: Final = _where(lambda each: "global" in (each.writes, each.deletes))
NAME_CHANGES: Final = _where(lambda each: "name" in (each.writes, each.deletes))
CELL_CHANGES: Final = _where(lambda each: "cell" in (each.writes, each.deletes))

UNARY_OPERATORS: Final = of_kind(OpKind.UNARY)
NEGATIONS: Final = of_kind(OpKind.NEGATE)
NOTS: Final = of_kind(OpKind.NOT)
INVERSIONS: Final = of_kind(OpKind.INVERT)
TRUTHS: Final = of_kind(OpKind.TRUTH)
BINARY_OPERATORS: Final = _where(lambda each: each.argument == "binary")
COMPARISONS: Final = _where(lambda each: each.argument == "compare")
IDENTITIES: Final = of_kind(OpKind.IDENTITY)
MEMBERSHIPS: Final = of_kind(OpKind.MEMBERSHIP)

BUILDS: Final = of_kind(OpKind.BUILD)
APPENDS: Final = of_kind(OpKind.APPEND)
EXTENSIONS: Final = of_kind(OpKind.EXTEND)
MERGES: Final = of_kind(OpKind.MERGE)
UNPACKS: Final = of_kind(OpKind.UNPACK)
CONVERSIONS: Final = _where(lambda each: each.argument == "convert")
FORMATS: Final = of_kind(OpKind.FORMAT)

CALLS: Final = of_kind(OpKind.CALL)
KEYWORD_CALLS: Final = of_kind(OpKind.KEYWORDS)
STARRED_CALLS: Final = of_kind(OpKind.STARRED)
KEYWORD_NAMES: Final = of_kind(OpKind.KEYWORD_NAMES)
INTRINSICS: Final = _where(lambda each: each.argument.startswith("intrinsic"))
FUNCTIONS: Final = of_kind(OpKind.FUNCTION)
IMPORTS: Final = of_kind(OpKind.IMPORT)
MODULE_IMPORTS: Final = of_kind(OpKind.MODULE)

JUMPS: Final = _where(lambda each: each.jump is not None)
TRUTH_JUMPS: Final = _where(lambda each: each.tests_truth)
TRUE_JUMPS: Final = _where(lambda each: each.jump == "if_true")
NONE_JUMPS: Final = _where(lambda each: each.jump in ("if_none", "if_not_none"))
RETURNS: Final = _where(lambda each: each.ends == "return")
CONSTANT_RETURNS: Final = _where(lambda each: each.ends == "return" and each.argument == "const")
OPERAND_RETURNS: Final = RETURNS - CONSTANT_RETURNS
RAISES: Final = of_kind(OpKind.RAISE)
RAISES_AGAIN: Final = of_kind(OpKind.RAISE_AGAIN)
LOOPS: Final = _where(lambda each: each.jump == "for_iter")
LOOP_ENDS: Final = of_kind(OpKind.LOOP_END)
ITERATORS: Final = of_kind(OpKind.ITERATOR)
GENERATOR_STARTS: Final = of_kind(OpKind.GENERATOR)
SENDS: Final = _where(lambda each: each.jump == "send")
YIELDS: Final = _where(lambda each: each.suspends)

#: What enters the block of a ``with``; ``async with`` is among it.
BLOCK_ENTRIES: Final = of_kind(OpKind.WITH)
ASYNC_BLOCK_ENTRIES: Final = of_kind(OpKind.WITH | OpKind.ASYNC)
EXITS: Final = of_kind(OpKind.EXIT)
HANDLERS: Final = of_kind(OpKind.HANDLER)
HANDLER_ENDS: Final = of_kind(OpKind.HANDLER_END)
EXCEPTION_TESTS: Final = of_kind(OpKind.EXCEPTION_TEST)


def begin_with(opcodes: Sequence[str], kinds: Sequence[frozenset[str]]) -> bool:
    """Return whether the first opcodes are of ``kinds``, one after another."""
    return len(opcodes) >= len(kinds) and all(map(frozenset.__contains__, kinds, opcodes))


def converts_to_text(op: str, arg: Any) -> bool:
    """Return whether an instruction makes the ``!r``, ``!s`` or ``!a`` of a value."""
    return op in CONVERSIONS or (op == "FORMAT_VALUE" and bool(arg & 3))


def has_format_specification(op: str, arg: Any) -> bool:
    """Return whether an instruction formats a value by a specification, which is an operand."""
    return op == "FORMAT_WITH_SPEC" or (op == "FORMAT_VALUE" and bool(arg & 4))
