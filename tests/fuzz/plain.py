"""A random program with all its functions mended, to be run in plain Python.

Stand-ins answer for what decides while Dynamo traces (`tests.stand_ins`).
"""

from __future__ import annotations

import inspect
import random
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType
from typing import Any

from bcmend.bytecode.decode import decode
from bcmend.bytecode.opcodes import row
from bcmend.names import CALLBACK, NAMESPACE, TRACING
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend
from tests.fuzz.programs import Program, names_of
from tests.stand_ins import EverythingMended, jumps_in

Places = frozenset[tuple[int, int]]


class SomeMended(EverythingMended):
    """Answers at random: not here, or in the next wider form, or in either half of a split."""

    def __init__(self, source: random.Random) -> None:
        super().__init__()
        self._source = source
        self._inside: set[str] = set()

    def data_dependent(self, key: str, condition: object) -> bool:
        return self._source.random() < 0.8

    def recording(self, key: str, *receiver: object) -> bool:
        return self._source.random() < 0.8

    def branch(self, *arguments: Any) -> Any:  # type: ignore[override]
        return super().branch(*arguments) if self._source.random() < 0.6 else None

    def guard(self, *arguments: Any) -> bool:  # type: ignore[override]
        return self._source.random() < 0.8 and super().guard(*arguments)

    def undecided(self, key: str, operands: tuple[Any, ...], subscripts: bool) -> bool:
        return key not in self._inside and self._source.random() < 0.8

    def nothing(self) -> None:
        """Stand for the NULL of a call."""

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
        if self._source.random() < 0.4:
            return None
        self._inside.add(key)
        try:
            return function(*first, function, entry + self._source.randrange(2), inputs)
        finally:
            self._inside.discard(key)


def mend_in_place(program: Program, source: random.Random | None = None) -> Callable[[], Any]:
    """Return a factory of the program in which every function is a mended one.

    Args:
        program: what to mend.
        source: if it is given, jumps get wider forms at random, code is split in front of some
            instructions, and `SomeMended` says where mended code is taken.
    """

    def make() -> Any:
        names = names_of(program)
        names[NAMESPACE] = EverythingMended() if source is None else SomeMended(source)
        names[TRACING] = lambda: True
        names[CALLBACK] = lambda: None
        subject = names["make"]()
        # A class has two names; its functions must be mended once.
        for function in dict.fromkeys([*_functions(names), *_own(subject)]):
            if function.__name__ not in ("make", "__init__"):
                context = _context(function.__code__, names, source)
                function.__code__ = mend(function.__code__, context).shell
        return subject

    return make


def _context(code: CodeType, names: Mapping[str, Any], source: random.Random | None) -> Context:
    asked = frozenset(jumps_in(code))
    if source is None:
        return Context("module", names, DEFAULT, asked)
    wide = frozenset(each for each in sorted(asked) if source.random() < 0.5)
    readers = sorted(_readers(code))
    splits = frozenset(source.sample(readers, min(2, len(readers))))
    return Context("module", names, DEFAULT, asked, wide, splits)


def _readers(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield the places of instructions that take an operand, each to split in front of."""
    for instruction in decode(code).instructions:
        if row(instruction.op).effect(instruction.arg)[0] and instruction.offset >= 0:
            yield id(code), instruction.offset
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _readers(constant)


def _functions(names: Mapping[str, Any]) -> Iterator[FunctionType]:
    for value in names.values():
        if getattr(value, "__module__", None) != names["__name__"]:
            continue
        if isinstance(value, FunctionType):
            found = [value]
        else:
            found = list(vars(value).values()) if inspect.isclass(value) else []
        for each in found:
            # What a decorator has made, and what a named tuple has, is of other modules.
            if isinstance(each, FunctionType) and each.__globals__ is names:
                yield each


def _own(subject: object) -> Iterator[FunctionType]:
    if isinstance(subject, FunctionType):
        yield subject
