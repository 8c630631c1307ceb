"""Objects that output changes by code of the program: handlers, streams, objects with a text.

Found without running that code.
"""

from __future__ import annotations

import dis
import inspect
import logging
import sys
import warnings
from collections.abc import Iterable, Iterator
from functools import partial
from types import CodeType, FunctionType
from typing import Final

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import GLOBAL_STORES
from bcmend.dynamo import compat
from bcmend.dynamo.values import Value, object_behind
from bcmend.policy import WRITING
from bcmend.tracing.effects.text_reach import IS_HEAP_TYPE, OBJECT_CHANGES, TEXT_METHODS
from bcmend.weak_tables import ByIdentity


def written_by(inside: Iterable[Value]) -> Iterator[object]:
    """Yield the objects that output of ``inside`` changes by code of the program, and that code."""
    for each in inside:
        value = object_behind(each)
        if isinstance(value, logging.Logger):
            for found in _asked_by(value):
                yield from (found, *_methods_of(found))
        elif isinstance(each, compat.UserDefinedObjectVariable):
            write = writer_of(value)
            if write is not None:
                yield from (value, write)
            elif any(_stores(code) for code in _text_of(each)):
                yield value


def unasked() -> Iterator[FunctionType]:
    """Yield functions of the program by which all records and warnings are made or written."""
    named = ((warnings.showwarning, warnings), (logging.getLogRecordFactory(), logging))
    for function, module in named:
        if isinstance(function, FunctionType) and function.__module__ != module.__name__:
            yield function


def streams() -> Iterator[object]:
    """Yield the standard streams that are objects of the program; all output may write to them."""
    yield from (each for each in (sys.stdout, sys.stderr) if writer_of(each) is not None)


def classes_of(values: Iterable[object]) -> Iterator[type]:
    """Yield the classes in Python of objects: a method may count in an attribute of its class."""
    for value in values:
        if not isinstance(value, FunctionType):
            yield from (each for each in type(value).__mro__ if each.__flags__ & IS_HEAP_TYPE)


def globals_stored_by(values: Iterable[object]) -> Iterator[tuple[int, str]]:
    """Yield the global variables that functions store to: identity of the namespace, and name."""
    for value in values:
        if isinstance(value, FunctionType):
            for name in _GLOBALS.setdefault(value.__code__, partial(_globals_in, value.__code__)):
                yield id(value.__globals__), name


#: The global variables that code stores to.
_GLOBALS: Final[ByIdentity[CodeType, frozenset[str]]] = ByIdentity()


def _globals_in(code: CodeType) -> frozenset[str]:
    stores = (each for each in dis.get_instructions(code) if operation(each) in GLOBAL_STORES)
    return frozenset(each.argval for each in stores)


def writer_of(value: object) -> FunctionType | None:
    """Return the method of the program by which a stream is written to, if it is one."""
    write = inspect.getattr_static(type(value), "write", None)
    return write if isinstance(write, FunctionType) else None


def _asked_by(logger: logging.Logger) -> Iterator[object]:
    """Yield handlers, filters and formatters of the program that see what a logger writes."""
    found: list[object] = [*logger.filters]
    at: logging.Logger | None = logger
    while at is not None:
        for handler in at.handlers:
            found += [handler, handler.formatter, *handler.filters]
        at = at.parent if at.propagate else None
    yield from (each for each in found if type(each).__module__ != logging.__name__)


def _methods_of(value: object) -> Iterator[FunctionType]:
    for kind in type(value).__mro__:
        if kind.__module__ not in (logging.__name__, "builtins"):
            yield from (each for each in vars(kind).values() if isinstance(each, FunctionType))


def _text_of(variable: Value) -> Iterator[CodeType]:
    """Yield the code of the program that makes the text of an object."""
    if isinstance(variable, compat.UserDefinedObjectVariable):
        for name in TEXT_METHODS:
            method = inspect.getattr_static(type(variable.value), name, None)
            if isinstance(method, FunctionType):
                yield method.__code__


#: Whether code of programs stores something outside its own variables.
_STORING: Final[ByIdentity[CodeType, bool]] = ByIdentity()


def _stores(code: CodeType) -> bool:
    found = (operation(each) in OBJECT_CHANGES for each in dis.get_instructions(code))
    return _STORING.setdefault(code, lambda: any(found))


def only_writes(value: object) -> bool:
    """Return whether an object is of a package that only writes: it is no part of a text."""
    return type(value).__module__.partition(".")[0] in WRITING
