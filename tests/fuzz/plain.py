"""A random program with all its functions mended, to be run in plain Python.

Stand-ins answer for what decides while Dynamo traces (`tests.stand_ins`). So that arms that raise
can be thrown away as a trace of them is, programs with handlers get only the answers that leave
nothing behind.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping
from types import FunctionType
from typing import Any, Final

from bcmend.names import CALLBACK, NAMESPACE, TRACING
from tests.fuzz.programs import Program, names_of
from tests.stand_ins import EverythingMended, mended

_HANDLERS: Final = re.compile(r"^\s*(try|with)\b", re.MULTILINE)


def mend_in_place(program: Program) -> Callable[[], Any]:
    """Return a factory of the program in which every function is a mended one."""

    def make() -> Any:
        names = names_of(program)
        names[NAMESPACE] = EverythingMended()
        names[TRACING] = lambda: True
        names[CALLBACK] = lambda: None
        subject = names["make"]()
        # A class has two names; its functions must be mended once.
        for function in dict.fromkeys([*_functions(names), *_own(subject)]):
            if function.__name__ not in ("make", "__init__"):
                function.__code__ = mended(function.__code__, names).shell
        return subject

    return make


def _functions(names: Mapping[str, Any]) -> Iterator[FunctionType]:
    for value in names.values():
        if getattr(value, "__module__", None) != names["__name__"]:
            continue
        if isinstance(value, FunctionType):
            yield value
        elif inspect.isclass(value):
            yield from (each for each in vars(value).values() if isinstance(each, FunctionType))


def _own(subject: object) -> Iterator[FunctionType]:
    if isinstance(subject, FunctionType):
        yield subject


def has_handlers(program: Program) -> bool:
    """Whether something may catch what an arm raises."""
    return _HANDLERS.search(program.body) is not None
