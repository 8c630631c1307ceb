"""Find the calls that write something.

The callee is identified by the value of a global where that is enough; else by a name that outputs
have, and then the traced code checks what the object is before anything is deferred.
"""

from __future__ import annotations

import builtins
import inspect
import sys
import threading
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import takewhile
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from bcmend.analysis.code_effects import names_of
from bcmend.analysis.conditions import called_name
from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode.decode import decode
from bcmend.bytecode.names_used import calls_a_variable, has_call
from bcmend.bytecode.opcodes import (
    CALLS,
    CLASSES,
    CONSTANT_LOADS,
    CONSTANT_RETURNS,
    DELETES,
    DISCARDS,
    IMPORTS,
    ITEM_READS,
    KEYWORD_NAMES,
    NULLS,
    STORES,
    row,
)
from bcmend.knowledge import output_callables
from bcmend.knowledge.callable_names import LOGGER_METHODS, REPEATABLE_CALLS
from bcmend.knowledge.static_lookup import ancestors, dictionary, namespace
from bcmend.rewrite.sites.call_parts import (
    arguments_of,
    is_attribute_load,
    path_read,
    start_of,
)
from bcmend.rewrite.sites.plan import Callee, CodeRange

_MISSING: Final = object()
Names = Mapping[str, Any]
"""The globals of a function."""


@dataclass(frozen=True, slots=True)
class OutputStatement:
    """A call that writes something.

    Attributes:
        start: its first instruction.
        call: the call.
        is_dropped: whether a POP_TOP follows.
        returns_none: whether the call is known to give None.
        callee: what has to be checked while the code is traced.
        data: globals, and attributes of globals, that may be or hold another value later.
        harmless: globals that are functions or types of Python's own, or modules of functions that
            change nothing.
        missing: globals that do not exist.
    """

    start: int
    call: int
    is_dropped: bool
    returns_none: bool
    callee: Callee | None
    data: frozenset[tuple[str, ...]] = frozenset()
    harmless: frozenset[str] = frozenset()
    missing: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Called:
    """What a call calls: a variable or a global, and attributes of it."""

    load: CodeRange
    kind: str
    root: str
    path: tuple[str, ...]

    @property
    def owner(self) -> CodeRange:
        """The loads of what the last attribute is an attribute of."""
        return CodeRange(self.load.start, self.load.end - 1) if self.path else self.load


def may_write_output(code: CodeType, module_names: Names) -> bool:
    """Return whether ``code`` may have output statements: a cheap test without false negatives."""
    return has_call(code) and (
        calls_a_variable(code)
        or "getattr" in code.co_names
        or not output_callables.last_names().isdisjoint(code.co_names)
        or any(
            _output_of(module_names[name]) is not None
            for name in code.co_names
            if name in module_names
        )
    )


def output_statements(
    facts: Facts, module_names: Names, asked: Collection[int] = ()
) -> Iterator[OutputStatement]:
    """Yield the output statements of a function; those in arguments of others are parts of them.

    ``asked`` are the offsets of calls at which Dynamo was seen to stop.
    """
    found = list(_all_statements(facts, module_names, asked))
    paths = {
        path_read(facts, index)
        for index, each in enumerate(facts.instructions)
        if row(each.op).reads == "global"
    }
    data = frozenset(_data(path, module_names) for path in paths) - {()}
    harmless = frozenset(path[0] for path in paths if _is_harmless_global(path[0], module_names))
    missing = frozenset(path[0] for path in paths if _is_missing(path[0], module_names))
    for each in found:
        if not any(other.start <= each.start and each.call < other.call for other in found):
            yield replace(each, data=data, harmless=harmless, missing=missing)


_HARMLESS_MODULES: Final = frozenset(["math", "torch", "numpy", "operator", "json", "pprint"])


def _is_harmless_global(name: str, module_names: Names) -> bool:
    value = module_names.get(name, getattr(builtins, name, None))
    if isinstance(value, ModuleType):
        return value.__name__ in _HARMLESS_MODULES
    if isinstance(value, BuiltinFunctionType):
        return value.__module__ == "math" or value.__name__ in REPEATABLE_CALLS - {"print"}
    return isinstance(value, type) and value.__module__ == "builtins"


def _is_missing(name: str, module_names: Names) -> bool:
    return name not in module_names and not hasattr(builtins, name)


def _data(path: tuple[str, ...], module_names: Names) -> tuple[str, ...]:
    """Return ``path`` up to what is no function, class or module; nothing if all of it is.

    Also an attribute that a class or a function does not have yet, since the call may set it.
    """
    value = module_names.get(path[0], getattr(builtins, path[0], None))
    for position, name in enumerate(path[1:], 1):
        if not _is_fixed(value):
            return path[:position]
        owner, value = value, _held(value, name)
        if issubclass(type(owner), ModuleType) and _is_constant(value):
            return ()
    return () if _is_fixed(value) else path


def _is_constant(value: object) -> bool:
    """Return whether an attribute of a module is immutable, or cannot be read here."""
    kind = type(value)
    if kind.__module__ == "torch":
        return kind.__name__ in ("dtype", "device", "layout")
    return value is _MISSING or kind in (int, float, complex, str, bytes)


def _held(owner: Any, name: str) -> object:
    """Return an attribute of a module, class or function."""
    if issubclass(type(owner), type):
        return next((n[name] for n in map(namespace, ancestors(owner)) if name in n), _MISSING)
    return dictionary(owner).get(name, _MISSING)


def _is_fixed(value: object) -> bool:
    """Return whether ``value`` is a function, class or module, which programs do not rebind."""
    return inspect.isroutine(value) or issubclass(type(value), (type, ModuleType))


def _all_statements(
    facts: Facts, module_names: Names, asked: Collection[int]
) -> Iterator[OutputStatement]:
    instructions = facts.instructions
    targets = {each.target for each in instructions}
    for index, instruction in enumerate(instructions[:-1]):
        if instruction.op not in CALLS or facts.stacks[index] is None:
            continue
        start = start_of(facts, index, row(instruction.op).effect(instruction.arg)[0])
        if start is not None:
            # A discard that others jump to drops what is there, whichever path was taken.
            is_dropped = instructions[index + 1].op in DISCARDS and index + 1 not in targets
            is_asked = instruction.offset in asked
            found = _classify(facts, start, index, module_names, is_dropped, is_asked)
            yield from () if found is None else (found,)


def _classify(
    facts: Facts, start: int, call: int, module_names: Names, is_dropped: bool, is_asked: bool
) -> OutputStatement | None:
    """Return the statement that begins at ``start``, if its call may write something."""
    called = _called(facts, start, call)
    if called is None:
        found = _found_callee(facts, start, call, is_asked)
        return OutputStatement(start, call, is_dropped, True, found) if found else None
    if called.kind == "global":
        value = module_names.get(called.root, getattr(builtins, called.root, _MISSING))
        known, owner = _followed(value, called.path)
        if known is not None:
            is_fixed = issubclass(type(owner), (type, ModuleType))
            callee = None
            if called.path and not is_fixed and module_names.get(called.root) is not sys:
                callee = Callee(called.owner, called.path[-1], _level(facts, start, call))
            return OutputStatement(start, call, is_dropped, known.returns_none, callee)
        if issubclass(type(owner), ModuleType):
            return None
    method = called.path[-1] if called.path else ""
    is_variable = not method and is_dropped and called.kind != "global"
    is_likely = is_variable or method in output_callables.last_names()
    gives_none = is_dropped or output_callables.always_none(method)
    if not (is_asked or (is_likely and gives_none)):
        return None
    callee = Callee(called.owner, method, _level(facts, start, call))
    return OutputStatement(start, call, is_dropped, True, callee)


def _called(facts: Facts, start: int, call: int) -> _Called | None:
    """Return what the call calls, if that is read and not made."""
    begin = start + (facts.instructions[start].op in NULLS)
    loads = takewhile(lambda each: is_attribute_load(facts, each), range(begin + 1, call))
    root, *path = (names_of(facts.instructions[each]) for each in (begin, *loads))
    kind, end = row(facts.instructions[begin].op).reads, begin + 1 + len(path)
    if kind not in ("local", "cell", "global") or not _is_called(facts, end - 1, call):
        return None
    return _Called(CodeRange(begin, end), kind, root, tuple(path))


def _is_called(facts: Facts, load: int, call: int) -> bool:
    """Return whether a call calls what ``load`` pushes, unlike the exit of a ``with`` block."""
    count, _ = row(facts.instructions[call].op).effect(facts.instructions[call].arg)
    lowest = [load in facts.operand(call, position) for position in (-count, 1 - count)]
    _, pushed = row(facts.instructions[load].op).effect(facts.instructions[load].arg)
    return all(lowest) if pushed > 1 else any(lowest)  # the NULL below `table[name](x)` is not it


def _followed(
    value: object, path: tuple[str, ...]
) -> tuple[output_callables.Output | None, object]:
    """Follow attributes as far as modules go; return what is called, if known, and its owner."""
    owner: object = _MISSING
    for position, name in enumerate(path):
        if not issubclass(type(value), ModuleType):
            if value is _MISSING or position < len(path) - 1:
                return None, _MISSING
            return output_callables.of_method(value, name), value
        owner, value = value, vars(value).get(name, _MISSING)
    return (None if value is _MISSING else _output_of(value)), owner


def _output_of(value: Any) -> output_callables.Output | None:
    """Return what is known of a global; a function that remembers what it wrote is looked into."""
    found = output_callables.of_callable(value)
    if found is not None or type(value) is not output_callables.CACHED:
        return found
    inner = value.__wrapped__
    if type(inner) is not FunctionType or inner in _LOOKED_INTO.functions:  # it calls itself
        return None
    before = _LOOKED_INTO.functions
    _LOOKED_INTO.functions = (*before, inner)
    try:
        return output_callables.Output(inner.__qualname__) if _only_writes(inner) else None
    finally:
        _LOOKED_INTO.functions = before


class _LookedInto(threading.local):
    """The functions that this thread is looking into, each called by the one before it."""

    functions: tuple[FunctionType, ...] = ()


_LOOKED_INTO: Final = _LookedInto()


def _only_writes(function: FunctionType) -> bool:
    """Return whether a function does nothing but write, and returns None."""
    try:
        facts = facts_of(decode(function.__code__))
    except ValueError:
        return False
    statements = output_statements(facts, function.__globals__)
    written = {index for each in statements for index in range(each.start, each.call + 1)}
    return bool(written) and all(
        index in written or _is_harmless(facts, index) for index in range(len(facts.instructions))
    )


_EFFECTS: Final = STORES | DELETES | IMPORTS | CLASSES


def _is_harmless(facts: Facts, index: int) -> bool:
    instruction = facts.instructions[index]
    known = row(instruction.op)
    if instruction.op in CALLS or known.suspends or known.writes not in ("local", None):
        return False
    if known.ends == "return":
        makers = [index] if instruction.op in CONSTANT_RETURNS else facts.operand(index, -1)
        return [facts.instructions[maker].arg for maker in makers if maker >= 0] == [None]
    return instruction.op not in _EFFECTS


def _level(facts: Facts, start: int, call: int) -> CodeRange | None:
    """Return the first argument of a call, if to read it twice is to read it once."""
    for first in arguments_of(facts, start, call)[:1]:
        if all(_is_read(facts, index) for index in range(first.start, first.end)):
            return first
    return None


def _is_read(facts: Facts, index: int) -> bool:
    """Return whether an instruction loads a variable, an attribute or a constant."""
    op = facts.instructions[index].op
    is_variable = row(op).reads in ("local", "cell", "global") and row(op).pops == 0
    return is_variable or op in CONSTANT_LOADS or is_attribute_load(facts, index)


#: Calls that give the same, and do nothing, however often they are made.
_FINDING_CALLS: Final = frozenset(["getLogger", "getChild", "getattr", "type"])


def _found_callee(facts: Facts, start: int, call: int, is_asked: bool) -> Callee | None:
    """Return what is called where it is found by more than attributes, as in `logs[0].info(x)`.

    ``is_asked`` says that Dynamo was seen to stop at the call, so that it may be `table[name](x)`.
    """
    arguments = arguments_of(facts, start, call)
    end = arguments[0].start if arguments else call
    # A NULL that is not of this call is of one that finds what is called.
    count, _ = row(facts.instructions[call].op).effect(facts.instructions[call].arg)
    is_own = start in facts.operand(call, -count)
    begin = start + (is_own and facts.instructions[start].op in NULLS)
    end -= facts.instructions[end - 1].op in NULLS
    last = end - 1
    if last <= begin or not _is_called(facts, last, call):
        return None
    if not all(_is_finding(facts, index) for index in range(begin, end)):
        return None
    method = names_of(facts.instructions[last])
    if method in LOGGER_METHODS and is_attribute_load(facts, last):
        return Callee(CodeRange(begin, last), method, _level(facts, start, call))
    is_made = facts.instructions[last].op in CALLS and called_name(facts, last) == "getattr"
    is_taken = is_asked and facts.instructions[last].op in ITEM_READS
    return Callee(CodeRange(begin, end), "", None) if is_made or is_taken else None


def _is_finding(facts: Facts, index: int) -> bool:
    """Return whether an instruction may be run twice in place of once, and be traced."""
    instruction = facts.instructions[index]
    if instruction.op in CALLS:
        return called_name(facts, index) in _FINDING_CALLS
    return _is_read(facts, index) or instruction.op in ITEM_READS | NULLS | KEYWORD_NAMES
