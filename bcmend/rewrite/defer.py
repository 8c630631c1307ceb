"""Propose to defer a statement that prints, logs or warns.

The statement is a call, found by `bcmend.rewrite.statements`. It becomes a function to be called
when the records are delivered. What can be evaluated while Dynamo traces is, where the statement
stands, and handed over: arguments as they are, and, of an argument that Dynamo cannot evaluate (it
takes a number out of a tensor, say), the variables and attributes that it reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from inspect import CO_GENERATOR
from opcode import _nb_ops  # type: ignore[attr-defined]
from types import CodeType
from typing import Final

from bcmend.analysis.conditions import called_name, callees
from bcmend.analysis.effects import names_of, touched
from bcmend.analysis.facts import Facts, facts_of
from bcmend.analysis.liveness import bound_before, live_before
from bcmend.codeobj.decode import decode
from bcmend.codeobj.opcodes import row
from bcmend.codeobj.scan import code_objects, formats
from bcmend.rewrite.plan import OutputLowering, Refusal, Slice
from bcmend.rewrite.statements import (
    CALLS,
    OutputStatement,
    arguments_of,
    is_attribute_load,
    keywords_of,
    path_read,
    start_of,
)
from bcmend.rewrite.trials import may_fail, trial_of
from bcmend.rewrite.unbound import checks_in
from bcmend.torch_knowledge import (
    DEFERRED_ARGUMENT_CALLS,
    LOGGER_METHODS,
    NEVER_TENSOR_ATTRIBUTES,
    REPEATABLE_CALLS,
    SILENT_CALLS,
)

__all__ = ["propose_output"]

_BINDS: Final = "a variable is bound inside the statement"

#: Arguments of BINARY_OP for ``%`` and ``%=``.
_REMAINDERS: Final = frozenset(
    number for number, (_, text) in enumerate(_nb_ops) if text in ("%", "%=")
)
#: What may fail, or do something, in code of the user's.
_OPERATIONS: Final = frozenset(
    ["BINARY_OP", "BINARY_SUBSCR", "BINARY_SLICE", "COMPARE_OP", "CONTAINS_OP"]
)


def propose_output(facts: Facts, statement: OutputStatement) -> OutputLowering | Refusal:
    """Propose the deferral of an output statement."""
    start, call = statement.start, statement.call
    end = call + 1 + statement.is_dropped
    if not _is_closed(facts, start, end):
        return Refusal("output-shape")
    if not (statement.is_dropped or statement.returns_none):
        return Refusal("output-shape", "the result of the call is used")
    level = _stack_level(facts, start, call)
    if level is None:
        return Refusal("frame-introspection", "all frames of the stack are written")
    bound_to = _bound_to_its_moment(facts, statement)
    refusal = _unmovable(facts, start, call)
    if refusal is None and bound_to and (statement.callee is None or not statement.callee.method):
        refusal = Refusal("output-shape", bound_to)
    if refusal is not None:
        return refusal
    own = _own_variables(facts, start, end)
    inputs = _inputs(facts, statement, own)
    if inputs is None:
        return Refusal("output-shape", "an argument is read on one way only")
    rest = set(range(start, end)) - {i for part in inputs for i in range(part.start, part.end)}
    left = touched(facts, rest)
    if left.written - own:
        return Refusal("output-shape", _BINDS)
    if left.read - own or left.cells:
        return Refusal("output-shape", "a nested function in an argument")
    return OutputLowering(
        start,
        end,
        tuple(inputs),
        statement.callee,
        statement.is_dropped,
        bound_to,
        level,
        _shows_tracebacks(facts, start, call),
        trial_of(facts, statement, inputs),
    )


def _own_variables(facts: Facts, start: int, end: int) -> frozenset[str]:
    """Return the variables of comprehensions in a statement, which nobody else reads."""
    statement = range(start, end)
    bound = (
        facts.instructions[each.end - 1] for each in _bindings(facts, Slice(start, end)).values()
    )
    others = frozenset(each.arg for each in bound)
    live = live_before(facts.graph, facts.liveness, start)
    if end < len(facts.instructions) and facts.stacks[end] is not None:
        live |= live_before(facts.graph, facts.liveness, end)
    return touched(facts, statement).written - others - live


def _inputs(facts: Facts, statement: OutputStatement, own: frozenset[str]) -> list[Slice] | None:
    """Return what is to be evaluated at once; ``None`` where that cannot be told apart."""
    start, call = statement.start, statement.call
    inputs: list[Slice] = []
    arguments = arguments_of(facts, start, call)
    for part in _parts(start, call, arguments):
        if part in arguments and not _must_wait(facts, part):
            if not _is_constant(facts, part):
                inputs.append(part)
            continue
        chains = list(_chains(facts, part, statement.data, own))
        if None in chains:
            return None
        if part in arguments and _may_do_something(facts, part, chains):
            inputs.append(part)  # later is too late, if Dynamo can make it at all
            continue
        inputs += [chain for chain in chains if chain is not None]
    return None if _fails_too_late(facts, statement, arguments, inputs) else inputs


def _may_do_something(facts: Facts, part: Slice, now: Sequence[Slice | None]) -> bool:
    """Whether what is left for later of an argument may change something, or depend on changes."""
    made = {index for each in now if each for index in range(each.start, each.end)}
    left = [index for index in range(part.start, part.end) if index not in made]
    nested = (facts.instructions[index].arg for index in left)
    return _call_something(facts, left) or any(
        _call_something(inner, range(len(inner.instructions)))
        for code in nested
        if isinstance(code, CodeType)
        for inner in (facts_of(decode(each)) for each in code_objects(code))
    )


def _call_something(facts: Facts, indices: Iterable[int]) -> bool:
    """Whether one of these instructions calls what may be a function of the program."""
    return any(
        facts.instructions[index].op in CALLS
        and called_name(facts, index) not in SILENT_CALLS
        and not _calls_a_nested_function(facts, index)
        for index in indices
        if facts.stacks[index] is not None
    )


def _calls_a_nested_function(facts: Facts, call: int) -> bool:
    """Whether a call is that of a comprehension or generator expression."""
    makers = frozenset[int]().union(*callees(facts, call))
    made = (facts.instructions[maker].op for maker in makers if maker >= 0)
    return any(op in ("MAKE_FUNCTION", "SET_FUNCTION_ATTRIBUTE") for op in made)


def _fails_too_late(
    facts: Facts, statement: OutputStatement, arguments: list[Slice], inputs: list[Slice]
) -> bool:
    """Whether what is left for later might have failed before an unbound variable does."""
    if not arguments:
        return False
    first = arguments[0].start
    checks = checks_in(facts, first, statement.call)
    cells = (each.start for each in inputs if _reads_own_cell(facts, each.start))
    last = max([*checks, *cells], default=first)
    return may_fail(facts, Slice(first, last), inputs, statement.harmless)


def _reads_own_cell(facts: Facts, index: int) -> bool:
    """Whether a variable is read that nested functions share, and that may be unbound."""
    instruction = facts.instructions[index]
    captured = instruction.arg in facts.function.shape.freevars
    return row(instruction.op).reads == "cell" and not captured


def _unmovable(facts: Facts, start: int, call: int) -> Refusal | None:
    """Refuse a statement that is bound to its frame."""
    touches = touched(facts, range(start, call + 1))
    if touches.introspects:
        return Refusal("frame-introspection", touches.introspects)
    if touches.cells_written or touches.deleted:
        return Refusal("output-shape", _BINDS)
    if touches.suspends:
        return Refusal("generator")
    return None


def _bound_to_its_moment(facts: Facts, statement: OutputStatement) -> str:
    """Say how a call depends on the moment at which it is made; empty if it does not."""
    given = _keyword(facts, statement.start, statement.call, "stack_info")
    is_given = given is not None and not _is_false(facts, given)
    return "the callers are written too" if is_given else ""


#: Functions and methods that show tracebacks, or the exception that is being handled.
_SHOWING_TRACEBACKS: Final = frozenset(
    ["exception", "exc_info", "format_exc", "format_exception", "print_exc", "print_exception"]
)
_NAMES: Final = ("name", "flagged_name")


def _shows_tracebacks(facts: Facts, start: int, call: int) -> bool:
    """Whether a statement may show where exceptions were, and which one is being handled."""
    named = (each for each in facts.instructions[start:call] if row(each.op).argument in _NAMES)
    if any(names_of(each) in _SHOWING_TRACEBACKS for each in named):
        return True
    if keywords_of(facts, call) is None:  # logging takes `exc_info`, from anywhere
        return called_name(facts, call) in LOGGER_METHODS
    given = _keyword(facts, start, call, "exc_info")
    return given is not None and not _is_false(facts, given)


def _keyword(facts: Facts, start: int, call: int, name: str) -> Slice | None:
    """Return the argument that a call is given under a name."""
    names = keywords_of(facts, call) or ()
    arguments = arguments_of(facts, start, call)
    return dict(zip(reversed(names), reversed(arguments), strict=False)).get(name)


def _stack_level(facts: Facts, start: int, call: int) -> int | None:
    """Return how many frames a call looks at: 1 for its own, -1 for as many as only it knows.

    ``None`` stands for more than can be told.
    """
    if called_name(facts, call) == "print_stack":
        return _frames_shown(facts, start, call)
    names = keywords_of(facts, call)
    if names is None:
        constants = (facts.instructions[index].arg for index in range(start, call))
        return -1 if any(_mentions_a_level(each) for each in constants) else 1
    arguments = arguments_of(facts, start, call)
    given = _keyword(facts, start, call, "stacklevel")
    positional = len(arguments) - len(names)
    if given is None and called_name(facts, call) == "warn" and positional > _LEVEL_OF_WARN:
        given = arguments[_LEVEL_OF_WARN]
    if given is None:
        return 1
    level = facts.instructions[given.start].arg if _is_constant(facts, given) else None
    return max(level, 1) if isinstance(level, int) else -1


def _frames_shown(facts: Facts, start: int, call: int) -> int | None:
    """Return how many frames a call of ``traceback.print_stack`` shows, if that is a constant."""
    names = keywords_of(facts, call)
    if names is None:
        return None
    arguments = arguments_of(facts, start, call)
    of_which = dict(zip(("f", "limit"), arguments[: len(arguments) - len(names)], strict=False))
    of_which.update(zip(reversed(names), reversed(arguments), strict=False))
    frame, limit = (of_which.get(name) for name in ("f", "limit"))
    if limit is None or not _is_constant(facts, limit):
        return None
    if frame is not None and not _is_false(facts, frame):
        return None
    count = facts.instructions[limit.start].arg
    return count if isinstance(count, int) and count > 0 else None


#: The position of the level among the arguments of ``warnings.warn``.
_LEVEL_OF_WARN: Final = 2


def _mentions_a_level(constant: object) -> bool:
    return constant == "stacklevel" or (isinstance(constant, tuple) and "stacklevel" in constant)


def _is_false(facts: Facts, part: Slice) -> bool:
    """Whether an argument is a constant that is false."""
    return _is_constant(facts, part) and not facts.instructions[part.start].arg


def _is_closed(facts: Facts, start: int, end: int) -> bool:
    """Whether control enters only at ``start`` and leaves only at ``end``."""
    for index, instruction in enumerate(facts.instructions):
        target = instruction.target
        if not isinstance(target, int):
            continue
        if start <= index < end:
            if not start < target <= end:
                return False
        elif start < target < end:
            return False
    return True


def _parts(start: int, call: int, arguments: list[Slice]) -> Iterator[Slice]:
    """Yield the statement in order: its arguments, and what lies before and between them."""
    position = start
    for argument in arguments:
        if position < argument.start:
            yield Slice(position, argument.start)
        yield argument
        position = argument.end
    if position < call:
        yield Slice(position, call)


def _must_wait(facts: Facts, part: Slice) -> bool:
    """Whether Dynamo could not evaluate an argument on tensors."""
    checks = checks_in(facts, part.start, part.end)
    for index in range(part.start, part.end):
        instruction = facts.instructions[index]
        if any(start <= index < read for start, read in checks.items()):
            continue
        if instruction.target is not None or instruction.op == "CONVERT_VALUE":
            return True
        if instruction.op == "FORMAT_VALUE" and instruction.arg & 3:
            return True
        if _is_named_deferred(facts, index) or _formats_an_object(facts, index):
            return True
        if instruction.op == "LOAD_CLOSURE" or _selects_by_a_mask(facts, index):
            return True
        if isinstance(instruction.arg, CodeType) and not _can_be_traced(instruction.arg):
            return True
        if instruction.op == "BINARY_OP" and _formats_text(facts, index):
            return True
    return False


def _selects_by_a_mask(facts: Facts, index: int) -> bool:
    """Whether an instruction is the subscript of ``x[x > 0]``, of a size that the data tell."""
    before = facts.instructions[index - 1].op
    return facts.instructions[index].op == "BINARY_SUBSCR" and before in _GIVE_A_MASK


_GIVE_A_MASK: Final = ("COMPARE_OP", "UNARY_INVERT")


def _is_named_deferred(facts: Facts, index: int) -> bool:
    """Whether a name is that of a call that waits; a global called ``numpy`` is the module."""
    instruction = facts.instructions[index]
    name = names_of(instruction)
    is_module = name == "numpy" and row(instruction.op).reads == "global"
    return name in DEFERRED_ARGUMENT_CALLS and not is_module


def _formats_text(facts: Facts, index: int) -> bool:
    """Whether an operator is the ``%`` of a literal text: it may take numbers out of tensors."""
    begin = start_of(facts, index, 2)
    if begin is None or facts.instructions[index].arg not in _REMAINDERS:
        return False
    left = facts.instructions[begin]
    return left.op == "LOAD_CONST" and isinstance(left.arg, str)


def _formats_an_object(facts: Facts, index: int) -> bool:
    """Whether a part of an f-string may be an object.

    Dynamo asks the object itself for its text, not minding what the trace has stored to it.
    """
    if not facts.instructions[index].op.startswith("FORMAT_"):
        return False
    made = facts.instructions[index - 1]
    is_read = row(made.op).reads is not None or is_attribute_load(facts, index - 1)
    return is_read and names_of(made) not in NEVER_TENSOR_ATTRIBUTES


def _can_be_traced(code: CodeType) -> bool:
    """Whether a nested function, such as a comprehension, does nothing that has to wait."""
    return DEFERRED_ARGUMENT_CALLS.isdisjoint(code.co_names) and not formats(code)


def _is_constant(facts: Facts, part: Slice) -> bool:
    return part.end - part.start == 1 and facts.instructions[part.start].op == "LOAD_CONST"


def _chains(
    facts: Facts, part: Slice, data: frozenset[tuple[str, ...]], own: frozenset[str]
) -> Iterator[Slice | None]:
    """Yield the longest reads of a variable and attributes of it, such as ``self.loss``.

    What stands behind a test is read before the test is made, and so as far only as that cannot
    fail. Yields ``None`` for a read that may fail, of which nothing can be left for later either.
    What is bound to a variable is evaluated at once: the program goes on with it. The variables
    ``own`` are those of the statement alone.
    """
    certain: set[tuple[object, ...]] = set()
    bindings = _bindings(facts, part)
    bound = bound_before(facts.graph, facts.liveness, part.start)
    reach = index = part.start  # how far the jumps made so far go
    checks = checks_in(facts, part.start, part.end)
    while index < part.end:
        if index in checks:
            yield Slice(index, checks[index] + 1) if index >= reach else None
            index = checks[index] + 1
            continue
        instruction = facts.instructions[index]
        if isinstance(instruction.target, int):
            reach = max(reach, instruction.target)
        now = None if index < reach else _made_now(facts, Slice(index, part.end), bindings)
        if now is not None:
            yield now
            index = now.end
            continue
        if not _is_variable_load(facts, index, data) or instruction.arg in own:
            index += 1
            continue
        end = min(index + len(path_read(facts, index)), part.end)
        if row(instruction.op).reads == "local" and instruction.arg not in bound:
            yield None
        elif index >= reach:
            certain.update(_path(facts, index, last) for last in range(index + 1, end + 1))
            yield Slice(index, end)
        else:
            yield _certain_read(facts, Slice(index, end), certain, bound)
        index = end


def _bindings(facts: Facts, part: Slice) -> dict[int, Slice]:
    """Return the operands in ``part`` that are bound to a variable, by their first instruction."""
    found = {}
    for index in range(part.start + 1, part.end):
        stored, before = facts.instructions[index], facts.instructions[index - 1]
        if row(stored.op).writes == "local" and before.op == "COPY":
            begin = start_of(facts, index - 1, 1)
            if begin is not None and begin >= part.start:
                found[begin] = Slice(begin, index + 1)
    return found


def _made_now(facts: Facts, part: Slice, bindings: Mapping[int, Slice]) -> Slice | None:
    """Return what is to be evaluated at once of an expression that begins with ``part``.

    That is the longest operand that Dynamo can make and that a call makes which may do something,
    or may give something else later, or an operator, which may fail.
    """
    if part.start in bindings:
        return bindings[part.start]
    base = facts.depth_before(part.start)
    assert base is not None
    longest = None
    calls = False
    for index in range(part.start, part.end):
        instruction = facts.instructions[index]
        if _must_wait(facts, Slice(index, index + 1)) or _reach(facts, index) < base:
            break
        after = facts.depth_before(index + 1)
        if after is None or after <= base:
            break
        if instruction.op in CALLS:
            calls = calls or called_name(facts, index) not in REPEATABLE_CALLS
        elif instruction.op in _OPERATIONS:
            calls = True
        if instruction.op == "KW_NAMES":  # a part of the call behind it
            continue
        if calls and after == base + 1 and not _makes_a_generator(facts, index):
            longest = Slice(part.start, index + 1)
    return longest


def _reach(facts: Facts, index: int) -> int:
    """Return how many operands lie below the lowest that an instruction takes or moves."""
    depth, instruction = facts.depth_before(index) or 0, facts.instructions[index]
    if instruction.op in ("SWAP", "COPY"):
        return depth - int(instruction.arg)
    return depth - row(instruction.op).effect(instruction.arg)[0]


def _makes_a_generator(facts: Facts, index: int) -> bool:
    """Whether a call is that of a generator expression, which does nothing before it is read."""
    if facts.instructions[index].op != "CALL" or facts.instructions[index - 1].op != "GET_ITER":
        return False
    function = max(facts.operand(index, -2), default=-1)
    made_of = (facts.instructions[each].arg for each in range(function, max(function - 3, -1), -1))
    code = next((each for each in made_of if isinstance(each, CodeType)), None)
    return code is not None and bool(code.co_flags & CO_GENERATOR)


def _certain_read(
    facts: Facts, chain: Slice, certain: set[tuple[object, ...]], bound: frozenset[str]
) -> Slice | None:
    """Return as much of ``chain`` as can be read where it may not be reached.

    That is what the statement reads in any case, or else a variable that is bound. Attributes left
    for later have to be such as do not change.
    """
    end = chain.end
    while end > chain.start and _path(facts, chain.start, end) not in certain:
        end -= 1
    if end == chain.start:
        first = facts.instructions[chain.start]
        reads = row(first.op).reads
        captured = reads == "cell" and first.arg in facts.function.shape.freevars
        if first.arg not in bound and not captured and reads != "global":
            return None
        end += 1
    left = (facts.instructions[index] for index in range(end, chain.end))
    if any(names_of(each) not in NEVER_TENSOR_ATTRIBUTES for each in left):
        return None
    return Slice(chain.start, end)


def _path(facts: Facts, start: int, end: int) -> tuple[object, ...]:
    return tuple(facts.instructions[index].arg for index in range(start, end))


def _is_variable_load(facts: Facts, index: int, data: frozenset[tuple[str, ...]]) -> bool:
    instruction = facts.instructions[index]
    known = row(instruction.op)
    if known.reads == "global":
        path = path_read(facts, index)
        is_data = any(path[: len(each)] == each for each in data)
        return is_data and known.effect(instruction.arg) == (0, 1)
    return known.reads in ("local", "cell") and known.pops == 0 and known.pushes == 1
