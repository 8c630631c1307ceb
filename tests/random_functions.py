"""Random small functions for property tests: jumps, variables and try ranges, no sensible stack."""

from __future__ import annotations

from hypothesis import strategies as st

from bcmend.bytecode.instructions import FunctionCode, Instruction, TryRange
from tests.listing import shape_of

NAMES = ("a", "b")
_PLAIN = ("LOAD_FAST", "STORE_FAST", "DELETE_FAST")


@st.composite
def functions(draw: st.DrawFn) -> FunctionCode:
    """Draw a function of the argument ``a`` whose last instruction returns."""
    count = draw(st.integers(2, 14))
    indices = st.integers(0, count)
    instructions = []
    for _ in range(count):
        op = draw(
            st.sampled_from(
                [*_PLAIN, "NOP", "JUMP", "POP_JUMP_IF_TRUE", "RETURN_VALUE", "RAISE_VARARGS"]
            )
        )
        if op in _PLAIN:
            instructions.append(Instruction(op, draw(st.sampled_from(NAMES))))
        elif "JUMP" in op:
            instructions.append(Instruction(op, None, draw(indices)))
        else:
            instructions.append(Instruction(op, 0 if op == "RAISE_VARARGS" else None))
    instructions.append(Instruction("RETURN_VALUE"))
    bounds = sorted(draw(st.sets(indices, max_size=4)))
    tries = tuple(
        TryRange(start, end, draw(indices), 0, False)
        for start, end in zip(bounds[::2], bounds[1::2], strict=False)
    )
    return FunctionCode(shape_of(("a",)), tuple(instructions), tries)


def ordinary_ways(function: FunctionCode, index: int) -> list[int]:
    """Return what can run after instruction ``index`` when it does not raise."""
    instruction = function.instructions[index]
    if instruction.op in ("RETURN_VALUE", "RAISE_VARARGS"):
        return []
    ways = [] if instruction.op == "JUMP" else [index + 1]
    return ways if instruction.target is None else [*ways, instruction.target]


def handlers(function: FunctionCode, index: int) -> list[int]:
    """Return the handler of instruction ``index``, if it has one."""
    return [entry.handler for entry in function.tries if entry.start <= index < entry.end]


def reached(start: int, ways: dict[int, list[int]], without: int | None = None) -> set[int]:
    """Return what can be reached from ``start`` when ``without`` cannot be entered."""
    seen: set[int] = set()
    pending = [] if start == without else [start]
    while pending:
        index = pending.pop()
        if index not in seen:
            seen.add(index)
            pending.extend(each for each in ways.get(index, []) if each != without)
    return seen
