"""Reassembled functions run like the originals; unsound instructions are refused."""

from __future__ import annotations

import asyncio
import contextlib
import dis
import inspect
import itertools
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from types import CodeType, FunctionType
from typing import Any

import pytest
from bytecode import BinaryOp

from bcmend.bytecode import behavior, emit
from bcmend.bytecode.assemble import Item, assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import (
    AssembleError,
    Instruction,
    Label,
    Location,
    TryRange,
    UnknownOpcode,
)
from tests.listing import shape_of


def rebuilt_code(code: CodeType) -> CodeType:
    """Reassemble a code object and all those in its constants."""
    function = decode(code)
    instructions = tuple(
        each._replace(arg=rebuilt_code(each.arg)) if isinstance(each.arg, CodeType) else each
        for each in function.instructions
    )
    return assemble(function.shape, *labelled(replace(function, instructions=instructions)))


def rebuilt(function: Any) -> Any:
    made = FunctionType(
        rebuilt_code(function.__code__),
        function.__globals__,
        function.__name__,
        function.__defaults__,
        function.__closure__,
    )
    made.__kwdefaults__ = function.__kwdefaults__
    return made


def outcome(function: Callable[..., Any], *values: object) -> tuple[object, ...]:
    """Return what a call gives: its result, or the type and arguments of its exception."""
    try:
        return "returned", function(*values)
    except Exception as error:
        return "raised", type(error), error.args


def loops(n):
    total = []
    for i in range(n):
        if i == 2:
            continue
        if i == 5:
            break
        total.append(i)
    else:
        total.append("else")
    while n:
        n -= 1
        if n % 3 == 0:
            total.append(-n)
    return total


def short_circuits(a, b):
    return a and b, a or b, not a, (a if b else b), a is None or b is not None


def chained(a, b):
    return 0 < a < b <= 10


def exceptions(a, b):
    log = []
    try:
        try:
            log.append(a / b)
        except ZeroDivisionError as error:
            log.append(str(error))
            if a:
                raise ValueError(log) from error
        else:
            log.append("fine")
        finally:
            log.append("finally")
    except (TypeError, KeyError):
        log.append("outer")
    return log


def groups(a):
    log = []
    try:
        raise ExceptionGroup("group", [ValueError(a), TypeError(a)])
    except* ValueError as group:
        log.append(("value", group.exceptions[0].args))
    except* TypeError as group:
        log.append(("type", group.exceptions[0].args))
    return log


def managers(a):
    with contextlib.suppress(ZeroDivisionError), contextlib.nullcontext(a) as b:
        return 1 / b
    return "suppressed"


def closures(a, *rest, key=1, **more):
    b = a

    def inner(c):
        nonlocal b
        b += c
        return a, b, rest, key, more

    return inner(10), b


def shadowing(x, flag):
    if flag:
        y = x
    made = [y + 1 for y in range(x)]
    nested = {x: [-z for z in range(x)] for x in made}
    return made, nested, x, y


def deletes(a, flag):
    if flag:
        del a
    return a


def generator(n):
    received = []
    try:
        for i in range(n):
            received.append((yield i))
        yield from (x * x for x in range(n))
    finally:
        received.append("closed")
    return received


def formats(a):
    return f"{a!r:>6} {a!s} {a:02d} {a}text"


def unpacks(a, b):
    (c, *d), e = a, b
    return [*d, c, e], {**dict(zip("ab", a, strict=False))}, a[1:], a[::2], (*a, *b)


def matches(a):
    match a:
        case {"x": value, **rest}:
            return value, rest
        case [first, *_, last]:
            return first, last
        case int(real=real) if real > 5:
            return real
        case str() | None:
            return "text"
    return "other"


def classes(a):
    class Base:
        field = a

        def get(self):
            return self.field

    class Derived(Base):
        def get(self):
            return super().get(), __class__.__name__

    return Derived().get()


def constants():
    return [0.0, -0.0, False, 0, 0j, -0j, (0.0,), (-0.0,), (0,), 1, True, 1.0], "s", b"s", ...


def keywords(a):
    a.sort(key=lambda pair: pair[1], reverse=True)
    return dict(a, z=1), max(*a, default=None)


def raising(a):
    if not a:
        raise AssertionError(f"no {a}")
    return a


CASES: list[tuple[Any, list[tuple[object, ...]]]] = [
    (loops, [(0,), (2,), (9,)]),
    (short_circuits, list(itertools.product([None, 0, 3], repeat=2))),
    (chained, [(1, 2), (2, 1), (0, 5), (5, 11)]),
    (exceptions, [(1, 2), (0, 0), (1, 0), ("x", 1), (None, None)]),
    (groups, [(1,)]),
    (managers, [(4,), (0,), ("x",)]),
    (closures, [(1,), (1, 2, 3)]),
    (shadowing, [(3, True), (3, False), (0, False)]),
    (deletes, [(1, False), (1, True)]),
    (formats, [(7,), (-1,)]),
    (unpacks, [((1, 2, 3), (4,)), ((), ()), ([5], [6])]),
    (matches, [({"x": 1, "y": 2},), ([1, 2, 3],), (9,), (2,), ("t",), (None,), (1.5,)]),
    (classes, [("value",)]),
    (keywords, [([("a", 1), ("b", 2)],)]),
    (raising, [(1,), (0,)]),
]


@pytest.mark.parametrize(
    ("function", "inputs"), CASES, ids=lambda value: getattr(value, "__name__", "inputs")
)
def test_rebuilt_functions_run_alike(function: Any, inputs: list[tuple[object, ...]]) -> None:
    made = rebuilt(function)
    assert made.__code__ is not function.__code__
    for values in inputs:
        assert outcome(made, *values) == outcome(function, *values)


def test_outcome_tells_results_and_exceptions_apart() -> None:
    assert outcome(chained, 1, 2) == ("returned", True)
    assert outcome(deletes, 1, True)[:2] == ("raised", UnboundLocalError)


def test_constants_that_compare_equal_stay_apart() -> None:
    assert repr(rebuilt(constants)()) == repr(constants())


def test_generators_resume_alike() -> None:
    def drive(function: Any) -> list[object]:
        running, seen = function(3), []
        seen.append(next(running))
        for value in "abcd":
            seen.append(running.send(value))
        running.close()
        return seen

    assert drive(rebuilt(generator)) == drive(generator)


def test_coroutines_run_alike() -> None:
    async def numbers(n):
        for i in range(n):
            await asyncio.sleep(0)
            yield i

    async def main(n):
        async with contextlib.AsyncExitStack():
            return [i async for i in numbers(n) if i != 1], [j async for j in numbers(2)]

    assert asyncio.run(rebuilt(main)(4)) == asyncio.run(main(4)) == ([0, 2, 3], [0, 1])


def test_signature_and_docstring_are_kept() -> None:
    def documented(a, /, b=1, *c, d, e=2, **f):
        """Says what it does."""
        return "not this"

    def undocumented():
        return "not this"

    made = rebuilt(documented)
    assert inspect.signature(made) == inspect.signature(documented)
    assert made.__doc__ == "Says what it does."
    assert rebuilt(undocumented).__doc__ is None


def test_traceback_names_the_same_lines_and_columns() -> None:
    def failing(a):
        b = a + 1
        return (b *
                a["key"])  # fmt: skip

    def positions(function: Any) -> list[object]:
        try:
            function(1)
        except TypeError as error:
            frames = traceback.extract_tb(error.__traceback__)[1:]
            return [(f.name, f.lineno, f.end_lineno, f.colno, f.end_colno) for f in frames]
        return []

    assert len(positions(failing)) == 1
    assert positions(rebuilt(failing)) == positions(failing)


@pytest.mark.parametrize("count", [1, 60, 130, 300, 20000])
def test_far_jumps_both_ways(count: int) -> None:
    """Bodies long enough that jumps need no, one or two EXTENDED_ARG."""
    end, top = Label("end"), Label("top")
    padding = [*emit.load_local("n"), *emit.pop_top()] * count
    one_less = [Instruction("LOAD_FAST", "n"), *emit.load_const(1)]
    items: list[Item] = [
        *emit.prologue(shape_of(("n",))),
        top,
        *emit.load_local("n"),
        *emit.jump_if_false(end),
        *padding,
        *one_less,
        Instruction("BINARY_OP", BinaryOp.SUBTRACT),
        *emit.store_local("n"),
        *emit.jump(top),
        end,
        *emit.load_const("done"),
        *emit.return_value(),
    ]
    code = assemble(shape_of(("n",)), items, [])
    assert FunctionType(code, {})(3) == "done"


@pytest.mark.parametrize(
    ("jump", "values"),
    [
        (emit.jump_if_true, [1, 1, 0]),
        (emit.jump_if_false, [0, 0, 1]),
        (emit.jump_if_none, [None, None, 1]),
        (lambda label: [Instruction("POP_JUMP_IF_NOT_NONE", None, label)], [1, 0, None]),
    ],
)
def test_conditional_jumps_go_backward(jump: Any, values: list[object]) -> None:
    top = Label("top")
    shape = shape_of(("take",))
    items = [
        *emit.prologue(shape),
        top,
        *emit.call_value(emit.load_local("take"), []),
        *jump(top),
        *emit.load_const("stopped"),
        *emit.return_value(),
    ]
    left = list(values)
    code = assemble(shape, items, [])
    assert FunctionType(code, {})(lambda: left.pop(0)) == "stopped"
    assert left == []


# --- try ranges ----------------------------------------------------------------------------------


def guarded(order: Sequence[int]) -> Any:
    """Return f(a, b), which calls both; a is covered by two ranges, b by the outer one only."""
    start, middle, between, end, inner, outer = (Label(str(n)) for n in range(6))
    shape = shape_of(("a", "b"))
    items: list[Item] = [
        *emit.prologue(shape),
        start,
        Instruction("NOP"),
        middle,
        *emit.call_value(emit.load_local("a"), []),
        *emit.pop_top(),
        between,
        *emit.call_value(emit.load_local("b"), []),
        *emit.return_value(),
        end,
        inner,
        *emit.pop_top(),
        *emit.load_const("inner"),
        *emit.return_value(),
        outer,
        *emit.pop_top(),
        *emit.load_const("outer"),
        *emit.return_value(),
    ]
    tries = [TryRange(start, end, outer, 0, False), TryRange(middle, between, inner, 0, False)]
    code = assemble(shape, items, [tries[index] for index in order])
    return FunctionType(code, {})


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_innermost_range_wins_in_any_order(order: Sequence[int]) -> None:
    function = guarded(order)
    assert function(lambda: 1 / 0, lambda: 1) == "inner"
    assert function(lambda: 1, lambda: 1 / 0) == "outer"
    assert function(lambda: 1, lambda: 2) == 2


# --- refusals ------------------------------------------------------------------------------------

HERE = Label("here")
RETURN = [*emit.load_const(None), *emit.return_value()]


@pytest.mark.parametrize(
    ("items", "message"),
    [
        ([], "no instructions"),
        ([HERE, *RETURN, HERE], "placed twice"),
        ([*emit.jump(Label("nowhere")), *RETURN], "not placed"),
        ([*emit.load_const(1), *emit.pop_top()], "falls off the end"),
        ([*emit.jump(HERE), *RETURN, HERE], "behind the last"),
        ([*emit.return_value()], "needs 1 operands"),
        ([*emit.load_const(1), *emit.swap(2), *emit.return_value()], "needs 2 operands"),
        ([*emit.load_const(1), *emit.copy(2), *emit.return_value()], "needs 2 operands"),
        ([HERE, *emit.load_const(1), *emit.jump(HERE)], "operands or"),
        ([*emit.load_cell("missing"), *emit.return_value()], "argument"),
        ([Instruction("LOAD_CONST", 1, HERE), HERE, *RETURN], "with target"),
        ([Instruction("JUMP"), *RETURN], "with target"),
        ([Instruction("BUILD_TUPLE", "two"), *RETURN], "argument"),
        ([Instruction("LOAD_GLOBAL", "len"), *emit.return_value()], "argument"),
        ([*emit.load_const(1), Instruction("BINARY_OP", 99), *RETURN], "needs 2"),
        ([Instruction("RESUME", -1), *RETURN], "argument"),
        ([Instruction("RESUME", 2**31), *RETURN], "argument"),
        ([Instruction("LOAD_GLOBAL", ()), *emit.return_value()], "argument"),
        ([Instruction("LOAD_GLOBAL", (False, 3)), *emit.return_value()], "argument"),
        ([Instruction("LOAD_FAST", 3), *emit.return_value()], "argument"),
        ([Instruction("IMPORT_NAME", None)], "needs 2 operands"),
        ([*RETURN, HERE, *emit.jump_if_false(HERE)], "falls off the end"),
    ],
)
def test_unsound_instructions_are_refused(items: list[Item], message: str) -> None:
    with pytest.raises(AssembleError, match=message):
        assemble(shape_of(), items, [])


@pytest.mark.skipif("LOAD_LOCALS" in dis.opmap, reason="this Python has the instruction")
def test_an_instruction_of_another_python_is_refused() -> None:
    with pytest.raises(UnknownOpcode, match="no instruction LOAD_LOCALS"):
        assemble(shape_of(), [Instruction("LOAD_LOCALS"), *emit.return_value()], [])


@pytest.mark.skipif("TO_BOOL" not in dis.opmap, reason="this Python has no such instruction")
def test_a_truth_that_the_next_instruction_does_not_read_is_refused() -> None:
    jump = emit.jump_if_false(HERE)[-1]
    items = [*emit.load_const(1), Instruction("TO_BOOL"), Instruction("NOP"), jump, HERE, *RETURN]
    with pytest.raises(AssembleError, match="TO_BOOL in front of NOP"):
        assemble(shape_of(), items, [])


def test_for_iter_does_not_go_backward() -> None:
    shape = shape_of(("a",))
    items = [
        *emit.load_local("a"),
        Instruction("GET_ITER"),
        HERE,
        *emit.pop_top(),
        *emit.load_local("a"),
        Instruction("GET_ITER"),
        Instruction("FOR_ITER", None, HERE),
        *emit.return_value(),
    ]
    with pytest.raises(AssembleError):
        assemble(shape, items, [])


@pytest.mark.parametrize(
    "changes",
    [
        {"argcount": 2},
        {"varnames": ("b", "a")},
        {"varnames": ("a", "x", "x")},
        {"posonlyargcount": 3},
        {"flags": 3 | inspect.CO_VARARGS},
        {"cellvars": ("c",)},
        {"freevars": ("c",)},
        {"cellvars": ("c",), "freevars": ("c",)},
    ],
)
def test_shape_that_does_not_fit_is_refused(changes: dict[str, object]) -> None:
    assemble(shape_of(("a",)), RETURN, [])
    with pytest.raises(AssembleError):
        assemble(shape_of(("a",), **changes), RETURN, [])


def test_handler_deeper_than_the_stack_is_refused() -> None:
    start, end, handler = Label("start"), Label("end"), Label("handler")
    items = [start, Instruction("NOP"), end, *RETURN, handler, *emit.return_value()]
    assemble(shape_of(), items, [TryRange(start, end, handler, 0, False)])
    with pytest.raises(AssembleError, match="needs 1 operands"):
        assemble(shape_of(), items, [TryRange(start, end, handler, 1, False)])


# --- details -------------------------------------------------------------------------------------


def test_new_locals_are_added_behind_the_known_ones() -> None:
    items = [*emit.load_const(1), *emit.store_local("$new"), *RETURN]
    assert assemble(shape_of(("a",)), items, []).co_varnames == ("a", "$new")


def test_string_constant_does_not_become_a_docstring() -> None:
    items = [*emit.load_const("text"), *emit.return_value()]
    assert FunctionType(assemble(shape_of(), items, []), {}).__doc__ is None


def test_instruction_without_location_takes_the_one_before() -> None:
    first = emit.load_const(1, Location(7, 7, 4, 9))
    code = assemble(shape_of(), [*first, *emit.return_value()], [])
    assert set(code.co_positions()) == {(7, 7, 4, 9)}


def test_location_that_is_known_in_part_keeps_its_line() -> None:
    items = [*emit.load_const(1, Location(7, 9, None, None)), *emit.return_value()]
    assert set(assemble(shape_of(), items, []).co_positions()) == {(7, 7, None, None)}


def test_stack_is_as_deep_as_the_deepest_moment() -> None:
    items = [each for n in range(9) for each in emit.load_const(n)]
    code = assemble(shape_of(), [*items, *emit.build_tuple(9), *emit.return_value()], [])
    assert code.co_stacksize == 9


def test_labelled_keeps_a_range_that_ends_with_the_code() -> None:
    function = decode(loops.__code__)
    whole = TryRange(0, len(function.instructions), 0, 0, False)
    items, (entry,) = labelled(replace(function, tries=(whole,)))
    assert items[0] is entry.start is entry.handler
    assert items[-1] is entry.end


def test_calls_have_precall_only_where_cpython_wants_it() -> None:
    items = [*emit.call_global(["len"], [emit.load_const("ab")]), *emit.return_value()]
    code = assemble(shape_of(), items, [])
    assert FunctionType(code, {"__builtins__": __builtins__})() == 2
    assert behavior.CALL_HAS_PRECALL == ("PRECALL" in raw_names(code))


def raw_names(code: CodeType) -> set[str]:
    return {each.opname for each in dis.get_instructions(code)}
