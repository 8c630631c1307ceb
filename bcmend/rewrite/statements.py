"""Find the calls that write something.

Reads the facts of a function and the globals of its module; produces output statements. What a call
calls is told by the value of a global where that is enough; else by a name that outputs have, and
then the traced code asks what the object is, before anything is deferred.
"""

from __future__ import annotations

import builtins
import inspect
import sys
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

from bcmend import outputs
from bcmend.analysis.conditions import called_name
from bcmend.analysis.effects import names_of
from bcmend.analysis.facts import Facts, facts_of
from bcmend.codeobj.decode import decode
from bcmend.codeobj.opcodes import row
from bcmend.codeobj.scan import calls_a_variable, has_call
from bcmend.rewrite.plan import Callee, Slice
from bcmend.rewrite.unbound import checks_in
from bcmend.static_lookup import ancestors, dictionary, namespace
from bcmend.torch_knowledge import LOGGER_METHODS, REPEATABLE_CALLS

__all__ = [
    "CALLS",
    "OutputStatement",
    "arguments_of",
    "is_attribute_load",
    "keywords_of",
    "may_write_output",
    "output_statements",
    "path_read",
    "starred_arguments_of",
    "start_of",
]

CALLS: Final = frozenset(["CALL", "CALL_KW", "CALL_FUNCTION_EX"])
_MISSING: Final = object()
#: Operations that a function which only writes may have, beside those that push a value.
_HARMLESS_STORES: Final = ("local", None)


@dataclass(frozen=True, slots=True)
class OutputStatement:
    """A call that writes something.

    ``start`` is its first instruction, ``call`` the call; ``is_dropped`` says that a POP_TOP
    follows. ``callee`` is what has to be asked about while the code is traced. ``returns_none``
    says whether the call is known to give None. ``data`` are the globals, and attributes of
    globals, that may be another value or hold another one by the end of the call: neither
    functions nor modules. ``harmless`` are the globals that are a function or a type of Python's
    own, or a module with nothing but functions that change nothing.
    """

    start: int
    call: int
    is_dropped: bool
    returns_none: bool
    callee: Callee | None
    data: frozenset[tuple[str, ...]] = frozenset()
    harmless: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class _Called:
    """What a call calls: a variable or a global, and attributes of it."""

    load: Slice
    kind: str
    root: str
    path: tuple[str, ...]

    @property
    def owner(self) -> Slice:
        """The loads of what the last attribute is an attribute of."""
        return Slice(self.load.start, self.load.end - 1) if self.path else self.load


def may_write_output(code: CodeType, module_names: Mapping[str, Any]) -> bool:
    """Whether ``code`` can hold an output statement: a cheap look that never misses one."""
    return has_call(code) and (
        calls_a_variable(code)
        or "getattr" in code.co_names
        or not outputs.last_names().isdisjoint(code.co_names)
        or any(
            _output_of(module_names[name]) is not None
            for name in code.co_names
            if name in module_names
        )
    )


def output_statements(
    facts: Facts, module_names: Mapping[str, Any], asked: Collection[int] = ()
) -> Iterator[OutputStatement]:
    """Find the output statements of a function; those in arguments of others are parts of them.

    Args:
        facts: the function.
        module_names: the globals of the function.
        asked: offsets of calls at which Dynamo was seen to stop.
    """
    found = list(_all_statements(facts, module_names, asked))
    paths = frozenset(_globals_read(facts))
    data = frozenset(_data(path, module_names) for path in paths) - {()}
    names = frozenset(path[0] for path in paths)
    harmless = frozenset(name for name in names if _is_harmless_global(name, module_names))
    for each in found:
        if not any(other.start <= each.start and each.call < other.call for other in found):
            yield replace(each, data=data, harmless=harmless)


def _globals_read(facts: Facts) -> Iterator[tuple[str, ...]]:
    """Yield the globals that are read, each with the attributes of it that are."""
    for index, instruction in enumerate(facts.instructions):
        if row(instruction.op).reads == "global":
            yield path_read(facts, index)


def path_read(facts: Facts, index: int) -> tuple[str, ...]:
    """Return the name of the variable that is loaded at ``index``, and of attributes read of it."""
    path = [names_of(facts.instructions[index])]
    while _is_plain_attribute(facts, index + len(path)):
        path.append(names_of(facts.instructions[index + len(path)]))
    return tuple(path)


def _is_plain_attribute(facts: Facts, index: int) -> bool:
    """Whether an instruction reads an attribute that it does not also prepare to call."""
    instruction = facts.instructions[index]
    return is_attribute_load(facts, index) and row(instruction.op).effect(instruction.arg)[1] == 1


_HARMLESS_MODULES: Final = frozenset(["math", "torch", "numpy", "operator", "json", "pprint"])


def _is_harmless_global(name: str, module_names: Mapping[str, Any]) -> bool:
    value = module_names.get(name, getattr(builtins, name, None))
    if isinstance(value, ModuleType):
        return value.__name__ in _HARMLESS_MODULES
    if isinstance(value, BuiltinFunctionType):
        return value.__module__ == "math" or value.__name__ in REPEATABLE_CALLS - {"print"}
    return isinstance(value, type) and value.__module__ == "builtins"


def _data(path: tuple[str, ...], module_names: Mapping[str, Any]) -> tuple[str, ...]:
    """Return as much of ``path`` as leads to what is no function, class or module; else nothing.

    Of a class or a function also what it does not have yet, since the call may give it that.
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
    """Whether an attribute of a module is nothing that changes, or cannot be read here."""
    kind = type(value)
    return value is _MISSING or kind in (int, float, complex, str, bytes) or _is_of_torch(kind)


def _is_of_torch(kind: type) -> bool:
    return kind.__module__ == "torch" and kind.__name__ in ("dtype", "device", "layout")


def _held(owner: Any, name: str) -> object:
    """Return an attribute of a module, class or function."""
    if issubclass(type(owner), type):
        return next((n[name] for n in map(namespace, ancestors(owner)) if name in n), _MISSING)
    return dictionary(owner).get(name, _MISSING)


def _is_fixed(value: object) -> bool:
    """Whether ``value`` is a function, a class or a module, which programs do not bind again."""
    return inspect.isroutine(value) or issubclass(type(value), (type, ModuleType))


def _all_statements(
    facts: Facts, module_names: Mapping[str, Any], asked: Collection[int]
) -> Iterator[OutputStatement]:
    instructions = facts.instructions
    targets = {each.target for each in instructions}
    for index, instruction in enumerate(instructions[:-1]):
        if instruction.op not in CALLS or facts.stacks[index] is None:
            continue
        start = start_of(facts, index, row(instruction.op).effect(instruction.arg)[0])
        if start is None:
            continue
        # A POP_TOP that others jump to drops what is there, whichever way was taken.
        is_dropped = instructions[index + 1].op == "POP_TOP" and index + 1 not in targets
        is_asked = instruction.offset in asked
        statement = _classify(facts, start, index, module_names, is_dropped, is_asked)
        if statement is not None:
            yield statement


def start_of(facts: Facts, index: int, count: int) -> int | None:
    """Return where the pushing of the top ``count`` operands before ``index`` begins."""
    depth = facts.depth_before(index)
    assert depth is not None
    base = depth - count
    for candidate in range(index - 1, -1, -1):
        at = facts.depth_before(candidate)
        if at is None or at < base:
            return None
        if at == base:
            return candidate
    return None


def _classify(
    facts: Facts,
    start: int,
    call: int,
    module_names: Mapping[str, Any],
    is_dropped: bool,
    is_asked: bool,
) -> OutputStatement | None:
    """Say whether the call that begins at ``start`` writes something."""
    called = _called(facts, start, call)
    if called is None:
        found = _found_callee(facts, start, call, is_asked)
        return OutputStatement(start, call, is_dropped, True, found) if found else None
    if called.kind == "global":
        value = module_names.get(called.root, getattr(builtins, called.root, _MISSING))
        known, owner = _followed(value, called.path)
        if known is not None:
            callee = None
            if called.path and not _is_settled(owner, called.root, module_names):
                callee = Callee(called.owner, called.path[-1], _level(facts, start, call))
            return OutputStatement(start, call, is_dropped, known.returns_none, callee)
        if issubclass(type(owner), ModuleType):
            return None
    method = called.path[-1] if called.path else ""
    is_variable = not method and is_dropped and called.kind != "global"
    if not (is_asked or is_variable or method in outputs.last_names()):
        return None
    if not (is_dropped or is_asked or outputs.always_none(method)):
        return None
    callee = Callee(called.owner, method, _level(facts, start, call))
    return OutputStatement(start, call, is_dropped, True, callee)


def _called(facts: Facts, start: int, call: int) -> _Called | None:
    """Return what the call calls, if that is read and not made."""
    position = start
    if facts.instructions[position].op == "PUSH_NULL":
        position += 1
    first = facts.instructions[position]
    kind, root, begin = row(first.op).reads, names_of(first), position
    path: list[str] = []
    position += 1
    while position < call and is_attribute_load(facts, position):
        path.append(names_of(facts.instructions[position]))
        position += 1
    if kind not in ("local", "cell", "global") or not _is_called(facts, position - 1, call):
        return None
    return _Called(Slice(begin, position), kind, root, tuple(path))


def _is_called(facts: Facts, load: int, call: int) -> bool:
    """Whether a call calls what ``load`` pushes; the exit of a ``with`` calls something else."""
    count, _ = row(facts.instructions[call].op).effect(facts.instructions[call].arg)
    lowest = [load in facts.operand(call, position) for position in (-count, 1 - count)]
    _, pushed = row(facts.instructions[load].op).effect(facts.instructions[load].arg)
    return all(lowest) if pushed > 1 else any(lowest)  # the NULL below `table[name](x)` is not it


def is_attribute_load(facts: Facts, index: int) -> bool:
    """Whether an instruction replaces an operand by an attribute of it, or a method."""
    known = row(facts.instructions[index].op)
    return (
        known.argument in ("name", "flagged_name")
        and known.reads is None
        and known.effect(facts.instructions[index].arg)[0] == 1
        and known.effect(facts.instructions[index].arg)[1] >= 1
    )


def _followed(value: object, path: tuple[str, ...]) -> tuple[outputs.Output | None, object]:
    """Follow attributes as far as modules go; return what is called, if known, and its owner."""
    owner: object = _MISSING
    for position, name in enumerate(path):
        owner = value
        is_last = position == len(path) - 1
        if is_last and value is not _MISSING and not issubclass(type(value), ModuleType):
            return outputs.of_method(value, name), owner
        if not issubclass(type(value), ModuleType):
            return None, _MISSING
        value = vars(value).get(name, _MISSING)
    return (None if value is _MISSING else _output_of(value)), owner


def _is_settled(owner: object, root: str, module_names: Mapping[str, Any]) -> bool:
    """Whether it takes no look at what a method belongs to, since the code says what it is."""
    return issubclass(type(owner), (type, ModuleType)) or module_names.get(root) is sys


def _output_of(value: Any) -> outputs.Output | None:
    """Return what is known of a global; a function that remembers what it wrote is looked into."""
    found = outputs.of_callable(value)
    if found is not None or type(value) is not outputs.CACHED:
        return found
    inner = value.__wrapped__
    if type(inner) is FunctionType and _only_writes(inner):
        return outputs.Output(inner.__qualname__)
    return None


def _only_writes(function: FunctionType) -> bool:
    """Whether a function does nothing but write, and returns None."""
    try:
        facts = facts_of(decode(function.__code__))
    except ValueError:
        return False
    written: set[int] = set()
    for statement in output_statements(facts, function.__globals__):
        written.update(range(statement.start, statement.call + 1))
    return bool(written) and all(
        index in written or _is_harmless(facts, index) for index in range(len(facts.instructions))
    )


def _is_harmless(facts: Facts, index: int) -> bool:
    instruction = facts.instructions[index]
    known = row(instruction.op)
    if instruction.op in CALLS or known.suspends or known.writes not in _HARMLESS_STORES:
        return False
    if known.ends == "return":
        if instruction.op == "RETURN_CONST":
            return instruction.arg is None
        makers = facts.operand(index, -1)
        values = [facts.instructions[maker].arg for maker in makers if maker >= 0]
        return values == [None]
    return not instruction.op.startswith(("STORE_", "DELETE_", "IMPORT_", "LOAD_BUILD"))


def _level(facts: Facts, start: int, call: int) -> Slice | None:
    """Return the first argument of a call, if to read it twice is to read it once."""
    arguments = arguments_of(facts, start, call)
    if not arguments:
        return None
    first = arguments[0]
    for index in range(first.start, first.end):
        known = row(facts.instructions[index].op)
        is_read = known.reads in ("local", "cell", "global") and known.pops == 0
        is_constant = facts.instructions[index].op == "LOAD_CONST"
        if not (is_read or is_constant or is_attribute_load(facts, index)):
            return None
    return first


def arguments_of(facts: Facts, start: int, call: int) -> list[Slice]:
    """Return the slices of the arguments of a plain call."""
    instruction = facts.instructions[call]
    if instruction.op == "CALL_FUNCTION_EX":
        return []
    top = call
    if instruction.op == "CALL":
        if top > start and facts.instructions[top - 1].op == "KW_NAMES":
            top -= 1
    else:
        top -= 1  # the names of the keywords
    slices = []
    for _ in range(instruction.arg):
        begin = _start_of_expression(facts, start, top, 1)
        if begin is None or begin <= start:
            return []
        slices.append(Slice(begin, top))
        top = begin
    return _with_checks(facts, slices[::-1])


def _with_checks(facts: Facts, arguments: list[Slice]) -> list[Slice]:
    """Add to each argument the question whether what it begins with is bound."""
    if not arguments:
        return []
    asked = {read: at for at, read in checks_in(facts, 0, arguments[-1].end).items()}
    begins = [asked.get(each.start, each.start) for each in arguments]
    ends = [*begins[1:], arguments[-1].end]
    return [Slice(begin, end) for begin, end in zip(begins, ends, strict=True)]


def starred_arguments_of(facts: Facts, start: int, call: int) -> Slice | None:
    """Return what pushes the arguments of a call that unpacks them: a tuple, and a dictionary."""
    instruction = facts.instructions[call]
    if instruction.op != "CALL_FUNCTION_EX":
        return None
    begin = _start_of_expression(facts, start, call, 1 + (instruction.arg & 1))
    return None if begin is None or begin <= start else Slice(begin, call)


def _start_of_expression(facts: Facts, start: int, index: int, count: int) -> int | None:
    """Return where the pushing of the top ``count`` operands before ``index`` begins."""
    begin = start_of(facts, index, count)
    while begin is not None and _is_jumped_into(facts, start, begin, index):
        # Only one of the ways to this argument begins here: it is an `or`, or a ternary.
        begin = start_of(facts, begin, 0)
    return begin


def _is_jumped_into(facts: Facts, start: int, begin: int, end: int) -> bool:
    """Whether a jump of the statement from before ``begin`` lands behind it."""
    targets = (facts.instructions[index].target for index in range(start, begin))
    return any(isinstance(target, int) and begin < target <= end for target in targets)


def keywords_of(facts: Facts, call: int) -> tuple[str, ...] | None:
    """Return the names of the keyword arguments of a call; ``None`` where only the call tells."""
    instruction = facts.instructions[call]
    if instruction.op == "CALL_FUNCTION_EX":
        return None
    before = facts.instructions[call - 1]
    if before.op == "KW_NAMES" or instruction.op == "CALL_KW":
        names: tuple[str, ...] = before.arg
        return names
    return ()


#: Calls in what is called that give the same, and do nothing, however often they are made.
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
    begin = start + (is_own and facts.instructions[start].op == "PUSH_NULL")
    end -= facts.instructions[end - 1].op == "PUSH_NULL"
    last = end - 1
    if last <= begin or not _is_called(facts, last, call):
        return None
    if not all(_is_finding(facts, index) for index in range(begin, end)):
        return None
    method = names_of(facts.instructions[last]) if is_attribute_load(facts, last) else ""
    if method in LOGGER_METHODS:
        return Callee(Slice(begin, last), method, _level(facts, start, call))
    is_made = facts.instructions[last].op in CALLS and called_name(facts, last) == "getattr"
    is_taken = is_asked and facts.instructions[last].op == "BINARY_SUBSCR"
    return Callee(Slice(begin, end), "", None) if is_made or is_taken else None


def _is_finding(facts: Facts, index: int) -> bool:
    """Whether an instruction may be run twice in place of once, and be traced."""
    instruction = facts.instructions[index]
    if instruction.op in CALLS:
        return called_name(facts, index) in _FINDING_CALLS
    known = row(instruction.op)
    if known.reads in ("local", "cell", "global") and known.pops == 0:
        return True
    return is_attribute_load(facts, index) or instruction.op in _FINDING_OPERATIONS


_FINDING_OPERATIONS: Final = frozenset(["LOAD_CONST", "BINARY_SUBSCR", "PUSH_NULL", "KW_NAMES"])
