"""Takes real code apart, puts it together and compares: ``python -m tests.bytecode.roundtrip``.

Reads the sources of named packages or modules, compiles them without importing them, and checks
every code object: what is reassembled has to be the same code, as the standard library's ``dis``
sees it, and every analysis has to accept it. Prints counts and failures.
"""

from __future__ import annotations

import argparse
import dis
import sys
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import PathFinder
from pathlib import Path
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from rich.console import Console
from rich.progress import track

from bcmend.analysis.liveness import Liveness, bound_before, liveness
from bcmend.analysis.stack import operand_stacks
from bcmend.bytecode import behavior
from bcmend.bytecode.assemble import assemble, labelled
from bcmend.bytecode.decode import decode
from bcmend.bytecode.instructions import DecodeError
from bcmend.bytecode.names_used import code_objects
from bcmend.cfg.graph import Graph, build_graph
from bcmend.cfg.regions import branches

#: What a code object and its reassembled form may differ in, and why.
PERMITTED_DIFFERENCES: Final = {
    "fused instructions": "they are taken apart, which is the canonical form",
    "borrowed locals": "LOAD_FAST_BORROW is LOAD_FAST, since code is moved",
    "END_ASYNC_FOR": "the distance to where the loop begins, which is for those who watch branches",
    "handlers of NOT_TAKEN": "it has that of the jump before it; it does nothing that can fail",
    "EXTENDED_ARG": "constants and names are numbered anew, so arguments have other widths",
    "constants": "they are in the order of their first use, and unused ones are dropped",
    "names": "they are in the order of their first use",
    "stack size": "CPython counts more than can be in use, and less than one where there is none",
    "positions of inline caches": "they have those of their instruction; nothing reads them",
    "boundaries of try ranges": "neighbours with one handler are joined, empty ones dropped",
}

_FUSED: Final = {
    "LOAD_FAST_BORROW_LOAD_FAST_BORROW": ("LOAD_FAST", "LOAD_FAST"),
    "LOAD_FAST_LOAD_FAST": ("LOAD_FAST", "LOAD_FAST"),
    "STORE_FAST_LOAD_FAST": ("STORE_FAST", "LOAD_FAST"),
    "STORE_FAST_STORE_FAST": ("STORE_FAST", "STORE_FAST"),
}
_SAME_ATTRIBUTES: Final = (
    "co_name",
    "co_qualname",
    "co_filename",
    "co_firstlineno",
    "co_flags",
    "co_argcount",
    "co_posonlyargcount",
    "co_kwonlyargcount",
    "co_varnames",
    "co_cellvars",
    "co_freevars",
)


@dataclass(slots=True)
class Tally:
    """What was seen so far."""

    files: int = 0
    not_compiled: int = 0
    code_objects: int = 0
    instructions: int = 0
    branches: int = 0
    refused: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)


def check(code: CodeType, tally: Tally) -> None:
    """Check one code object, without those in its constants, and add what is found to ``tally``."""
    where = f"{code.co_filename}:{code.co_firstlineno} {code.co_qualname}"
    tally.code_objects += 1
    try:
        function = decode(code)
    except DecodeError as error:
        tally.refused.append(f"{where}: {error}")
        return
    tally.instructions += len(function.instructions)
    try:
        problems = list(differences(code, assemble(function.shape, *labelled(function))))
        graph = build_graph(function)
        tally.branches += len(branches(graph))
        problems.extend(_doubts(code, graph, liveness(graph)))
    except Exception as error:  # whatever is wrong belongs into the list of failures
        problems = [f"{type(error).__name__}: {error}"]
    tally.failures.extend(f"{where}: {problem}" for problem in problems)


def differences(code: CodeType, again: CodeType) -> Iterator[str]:
    """Yield what two code objects differ in, except ``PERMITTED_DIFFERENCES``."""
    for name in _SAME_ATTRIBUTES:
        if getattr(code, name) != getattr(again, name):
            yield f"{name} is {getattr(again, name)}, was {getattr(code, name)}"
    if again.co_stacksize > max(1, code.co_stacksize):
        yield f"stack size is {again.co_stacksize}, was {code.co_stacksize}"
    if _docstring(code) != _docstring(again):
        yield f"docstring is {_docstring(again)!r}"
    before, after = list(_normal(code)), list(_normal(again))
    for index, (old, new) in enumerate(zip(before, after, strict=False)):
        if old != new:
            yield f"instruction {index} is {new}, was {old}"
            break
    if len(before) != len(after):
        yield f"there are {len(after)} instructions, were {len(before)}"


def _docstring(code: CodeType) -> str | None:
    cells = tuple(CellType() for _ in code.co_freevars)
    return FunctionType(code, {}, closure=cells).__doc__


def _normal(code: CodeType) -> Iterator[tuple[object, ...]]:
    """Yield each instruction with its argument, jump target, position and handler."""
    shown = [each for each in dis.get_instructions(code) if each.opname != "CACHE"]
    index_of, index = {}, 0
    for each in shown:
        index_of[each.offset] = index
        index += {True: 2, False: each.opname != "EXTENDED_ARG"}[each.opname in _FUSED]
    handlers = _handlers(code)
    for each in shown:
        handler = handlers.get(each.offset)
        tail = (each.positions, handler and (index_of[handler[0]], *handler[1:]))
        if each.opname in _FUSED:
            for name, argument in zip(_FUSED[each.opname], each.argval, strict=True):
                yield name, _comparable(argument), *tail
        elif each.opname == "NOT_TAKEN":
            yield each.opname, each.positions
        elif each.opname != "EXTENDED_ARG":
            argument = _argument(code, each, index_of)
            yield each.opname.replace("_BORROW", ""), argument, *tail


def _argument(code: CodeType, each: dis.Instruction, index_of: dict[int, int]) -> object:
    """Return what is to be equal of an argument."""
    if each.opname == "END_ASYNC_FOR":
        return None
    if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
        return index_of[each.argval]
    if each.opcode in dis.hasconst:  # `dis` does not know the names of keywords
        return _comparable(code.co_consts[each.arg or 0])
    if each.opcode in dis.hasname:
        flags = (each.arg or 0) & 3 if each.opname == "LOAD_SUPER_ATTR" else each.argrepr
        return each.argval, flags
    return _comparable(each.argval)


def _comparable(value: object) -> tuple[object, ...]:
    """Return what tells apart values that compare equal, such as ``0.0`` and ``-0.0``."""
    return (type(value), id(value) if isinstance(value, CodeType) else repr(value))


def _handlers(code: CodeType) -> dict[int, tuple[int, int, bool]]:
    """Return the handler, depth and lasti of each byte offset that has a handler."""
    entries: Sequence[Any] = dis.Bytecode(code).exception_entries  # type: ignore[attr-defined]
    return {
        offset: (entry.target, entry.depth, entry.lasti)
        for entry in entries
        for offset in range(entry.start, entry.end, 2)
    }


def _doubts(code: CodeType, graph: Graph, facts: Liveness) -> Iterator[str]:
    """Yield where an analysis contradicts what CPython's compiler has found out."""
    stacks = operand_stacks(graph)
    deepest = max(len(stack) for stack in stacks if stack is not None)
    if deepest > code.co_stacksize:
        yield f"{deepest} operands on a stack of {code.co_stacksize}"
    if not behavior.LOAD_FAST_MUST_BE_BOUND:
        return
    for index, instruction in enumerate(graph.function.instructions):
        if instruction.op != "LOAD_FAST" or stacks[index] is None:
            continue
        if instruction.arg in graph.function.shape.cellvars:
            continue
        if instruction.arg not in bound_before(graph, facts, index):
            yield f"LOAD_FAST {instruction.arg} at {index}, which is not found to be bound"


# --- finding code --------------------------------------------------------------------------------


def source_files(name: str) -> list[Path]:
    """Return the source files of a package (all of them) or module, importing nothing.

    Raises:
        ModuleNotFoundError: there is no such package or module with sources.
    """
    top, *rest = name.split(".")
    spec = PathFinder.find_spec(top)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"no module with sources named {name}")
    path = Path(spec.origin)
    if spec.submodule_search_locations:
        path = path.parent.joinpath(*rest)
    if path.is_dir():
        return sorted(path.rglob("*.py"))
    path = path.with_suffix(".py")
    if not path.is_file():
        raise ModuleNotFoundError(f"no module with sources named {name}")
    return [path]


def check_file(path: Path, tally: Tally) -> None:
    """Check every code object of a source file; one that does not compile is only counted."""
    tally.files += 1
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            module = compile(path.read_bytes(), str(path), "exec", dont_inherit=True)
    except (SyntaxError, ValueError):
        tally.not_compiled += 1
        return
    for code in code_objects(module):
        check(code, tally)


def main(arguments: Sequence[str] | None = None) -> int:
    """Check the packages and modules that ``arguments`` name; return 1 if anything failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.bytecode.roundtrip")
    parser.add_argument("names", nargs="+", metavar="PACKAGE_OR_MODULE")
    names = parser.parse_args(arguments).names
    console = Console()
    try:
        paths = [path for name in names for path in source_files(name)]
    except ModuleNotFoundError as error:
        console.print(f"error: {error}")
        return 2
    tally = Tally()
    for path in track(paths, description="checking", console=console):
        check_file(path, tally)
    _print(tally, console)
    return 1 if tally.failures else 0


def _print(tally: Tally, console: Console) -> None:
    for failure in tally.failures:
        console.print(f"failed: {failure}", markup=False, highlight=False)
    for refusal in tally.refused:
        console.print(f"refused: {refusal}", markup=False, highlight=False)
    console.print(
        f"{tally.files} files ({tally.not_compiled} do not compile), "
        f"{tally.code_objects} code objects, {tally.instructions} instructions, "
        f"{tally.branches} branches: "
        f"{len(tally.failures)} failures, {len(tally.refused)} refused"
    )


if __name__ == "__main__":
    sys.exit(main())
