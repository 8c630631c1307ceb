"""Real functions with other constants and other jumps: ``python -m tests.fuzz.mutations``.

Compilers write the same few shapes of code over and over. A mutation sends a jump to another place
at which as many operands lie on the stack and the same handlers stand around, turns its condition
round, or puts another constant in place of one. What comes out is valid bytecode that no compiler
writes. Nothing of it is run: it is taken apart, analysed, mended and put together again. Functions
are also broken (`breakages.py`). Needs no torch, and so tries every version of Python.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from types import CodeType
from typing import Final

from bcmend.analysis.stack import operand_stacks
from bcmend.bytecode.assemble import assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import (
    AssembleError,
    DecodeError,
    FunctionCode,
    Instruction,
    decoded_index,
)
from bcmend.bytecode.names_used import code_objects
from bcmend.cfg.graph import Graph, build_graph
from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend
from tests.bytecode.roundtrip import Tally, check, differences, source_files
from tests.fuzz.breakages import breakage_problems

_CONTRARY: Final = {
    "POP_JUMP_IF_TRUE": "POP_JUMP_IF_FALSE",
    "POP_JUMP_IF_FALSE": "POP_JUMP_IF_TRUE",
    "POP_JUMP_IF_NONE": "POP_JUMP_IF_NOT_NONE",
    "POP_JUMP_IF_NOT_NONE": "POP_JUMP_IF_NONE",
}
_CONSTANTS: Final = (
    0,
    -1,
    2**70,
    0.0,
    -0.0,
    1e308,
    True,
    None,
    "",
    "text",
    b"x",
    (),
    (1, -0.0),
    ...,
)


def mutated(function: FunctionCode, source: random.Random, changes: int = 3) -> FunctionCode:
    """Return a function that differs in some constants and jumps, still valid."""
    for _ in range(changes):
        instructions = list(function.instructions)
        index = source.choice(_mutable(instructions) or [-1])
        if index < 0:
            return function
        old = instructions[index]
        if old.op == "LOAD_CONST":
            instructions[index] = old._replace(arg=source.choice(_CONSTANTS))
        elif old.op in _CONTRARY and source.random() < 0.4:
            instructions[index] = old._replace(op=_CONTRARY[old.op])
        else:
            target = source.choice(_targets(function, index))
            instructions[index] = old._replace(target=target)
        function = replace(function, instructions=tuple(instructions))
    return function


def _mutable(instructions: Sequence[Instruction]) -> list[int]:
    return [
        index
        for index, each in enumerate(instructions)
        if each.op in _CONTRARY
        or each.op == "JUMP"
        or (each.op == "LOAD_CONST" and not _is_part_of_a_form(instructions, index))
    ]


def _is_part_of_a_form(instructions: Sequence[Instruction], index: int) -> bool:
    """Return whether a constant is code, names, or a docstring, which instructions ask for."""
    return isinstance(instructions[index].arg, (CodeType, tuple, frozenset))


def _targets(function: FunctionCode, index: int) -> list[int]:
    """Return where a jump may go: its own target and places like it."""
    graph = build_graph(function)
    stacks = operand_stacks(graph)
    old = function.instructions[index].target
    own = decoded_index(old)
    like = stacks[own]
    if like is None:
        return [own]
    handler = _handler(graph, own)
    # From Python 3.12 on, a conditional jump backwards is written as two jumps.
    first = index + 1 if function.instructions[index].op in _CONTRARY else 1
    return [
        place
        for place, stack in enumerate(stacks)
        if stack is not None
        and len(stack) == len(like)
        and stack == like  # made by the same instructions: iterators stay iterators
        and _handler(graph, place) == handler
        and place >= first
        and not function.instructions[place].op.startswith(("RESUME", "COPY_FREE", "MAKE_CELL"))
    ] or [own]


def _handler(graph: Graph, index: int) -> object:
    entry = graph.handlers[graph.block_of[index]]
    return entry and (entry.handler, entry.depth)


def problems(code: CodeType, source: random.Random) -> Iterator[str]:
    """Mutate a code object; yield what is wrong with how bcmend treats the outcome."""
    try:
        original = decode(code)
    except DecodeError:
        return
    function = mutated(original, source)
    again = assemble(function.shape, *labelled(function))
    decoded = decode(again)
    yield from _unlike(function, decoded)
    # The analyses have to take it, and what is written a second time has to be the same.
    yield from differences(again, assemble(decoded.shape, *labelled(decoded)))
    graph = build_graph(decoded)
    deepest = max(len(stack) for stack in operand_stacks(graph) if stack is not None)
    if deepest > again.co_stacksize:
        yield f"{deepest} operands on a stack of {again.co_stacksize}"
    yield from _mended_problems(again, decoded)


def _unlike(function: FunctionCode, decoded: FunctionCode) -> Iterator[str]:
    """Compare what was assembled with what is read, NOPs and places apart."""
    one, other = (
        [(each.op, repr(each.arg), type(each.arg)) for each in part.instructions]
        for part in (function, decoded)
    )
    if one != other:
        pair = next((two for two in zip(one, other, strict=False) if two[0] != two[1]), None)
        yield f"read back as other instructions: {pair or (len(one), len(other))}"
    for before, after in zip(function.instructions, decoded.instructions, strict=False):
        if (before.target is None) != (after.target is None):
            yield f"{before} lost its target"
        elif before.target is not None and before.target != after.target:
            yield f"{before.op} to {before.target} is read back to {after.target}"


def _mended_problems(code: CodeType, decoded: FunctionCode) -> Iterator[str]:
    """Mend a function as if Dynamo had stopped at each of its jumps; check what is written."""
    asked = frozenset(
        (id(code), each.offset) for each in decoded.instructions if each.target is not None
    )
    try:
        mended = mend(code, Context("mutations", {}, DEFAULT, asked))
    except ValueError:
        return  # refused as a whole
    if not mended.has_lowerings:
        return
    try:
        written = [mended.shell, *mended.written.sources]
    except AssembleError as error:
        yield f"mended code cannot be written: {error}"
        return
    except ValueError:
        return  # refused as a whole
    tally = Tally()
    for each in written:
        for part in code_objects(each):
            check(part, tally)
    # A mutated jump may pass by the store that a compiler relied on.
    yield from (each for each in tally.failures if "not found to be bound" not in each)
    yield from (f"mended code cannot be read: {each}" for each in tally.refused)


def run(names: Sequence[str], seconds: float, seed: int) -> tuple[int, list[str]]:
    """Mutate functions of packages for some time; return how many, and the failures."""
    source, count, failures = random.Random(seed), 0, []
    paths = [path for name in names for path in source_files(name)]
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        path = source.choice(paths)
        try:
            module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
        except (SyntaxError, ValueError):
            continue
        for code in source.sample(found := [*code_objects(module)], min(len(found), 20)):
            if time.monotonic() > end:
                break
            number = source.randrange(2**32)
            count += 1
            failures += [
                f"{path}:{code.co_firstlineno} {code.co_qualname}, seed {number}: {each}"
                for each in found_problems(code, number)
            ]
    return count, failures


def found_problems(code: CodeType, seed: int) -> list[str]:
    """Return what is wrong with a function mutated, or broken, by a seed; a crash is wrong too."""
    try:
        found = list(problems(code, random.Random(seed)))
        return [*found, *breakage_problems(code, random.Random(seed))]
    except RecursionError:
        return []
    except Exception as error:
        return [f"{type(error).__name__}: {error}"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run from the command line; the exit status is 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.mutations", description=__doc__)
    parser.add_argument("names", nargs="*", default=["argparse", "asyncio", "email"])
    parser.add_argument("--minutes", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    count, failures = run(given.names, given.minutes * 60, given.seed)
    print(*failures, f"{count} functions mutated, {len(failures)} failures", sep="\n")
    return min(len(failures), 1)


if __name__ == "__main__":
    sys.exit(main())
