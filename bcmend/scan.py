"""Find where code in `.py` and `.pyc` files has sites: nothing is imported and nothing runs.

Code of the running Python is planned by `bcmend.rewrite.pipeline`, without globals. Code of another
Python is read with xdis and cannot be planned here, so its sites are candidates.
"""

from __future__ import annotations

import contextlib
import importlib.util
import inspect
import io
import json
import marshal
import os
import platform
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import takewhile
from pathlib import Path
from types import CodeType
from typing import TYPE_CHECKING, Any, Final

from bcmend.knowledge.callable_names import LOGGER_METHODS, WARNING_FUNCTIONS
from bcmend.policy import DEFAULT
from bcmend.reports.site_report import aligned, plural, rich_table
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import may_have_sites, mend
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering, OutputLowering, Refusal, Site

if TYPE_CHECKING:
    from rich.table import Table


_HEADER: Final = 16  # magic number, flags, and two fields that depend on the flags (PEP 552)
_OLDEST_READ: Final = (3, 8)
_COLUMNS: Final = ("where", "function", "kind", "status", "how or why")
_LOWERINGS: Final = {BranchLowering: "branch", GuardLowering: "guard", OutputLowering: "output"}

_NAME_LOADS: Final = frozenset(
    "LOAD_GLOBAL LOAD_NAME LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_BORROW LOAD_DEREF".split()
)
_ATTRIBUTE_LOADS: Final = ("LOAD_ATTR", "LOAD_METHOD")
_CALLS: Final = frozenset(
    "CALL CALL_KW CALL_METHOD CALL_FUNCTION CALL_FUNCTION_KW CALL_FUNCTION_EX".split()
)
#: Instructions between a condition and its jump that leave a tensor a tensor, or a bool a bool.
_CONVERSIONS: Final = frozenset(["TO_BOOL", "COPY", "UNARY_NOT"])
#: A condition that one of these makes is a bool.
_MAKES_BOOL: Final = frozenset(["IS_OP", "CONTAINS_OP", "CHECK_EXC_MATCH", "WITH_EXCEPT_START"])
#: Python 3.8 has no instructions of their own for these.
_BOOL_COMPARISONS: Final = frozenset(["is", "is-not", "in", "not-in", "exception-match"])
#: What to add to an effect where instructions are read one after another as if none jumped: of two
#: paths that join, one alone has pushed the operand, and a finished loop has pushed a placeholder.
_STRAIGHTENED: Final = {"JUMP_FORWARD": -1, "JUMP_ABSOLUTE": -1, "END_FOR": 1}


class UnusablePath(ValueError):
    """Raised for a path that names neither a folder nor a `.py` or `.pyc` file."""


class _Unreadable(Exception):
    """A file cannot be read; the message is one line."""


@dataclass(frozen=True, slots=True)
class FoundSite:
    """One place at which `torch.compile` may stop.

    Attributes:
        file, line, function: where it is; the line is None where the code has none.
        kind: "branch", "guard" or "output"; a candidate that jumps is a "branch".
        status: "planned", "refused", or "candidate" for code of another Python.
        lowering: what it is to become, "branch", "guard" or "output"; None where it is not planned.
        refusal: the slug of the reason why it is not mended; None where there is none.
        detail: anything more that is known of this very site.
        python: the version of the Python whose code this is, such as "3.12".
    """

    file: str
    line: int | None
    function: str
    kind: str
    status: str
    lowering: str | None
    refusal: str | None
    detail: str
    python: str


@dataclass(frozen=True, slots=True)
class Scan:
    """What was found: how many files were examined, and their sites, in the order of lines.

    ``warnings`` has one line for each file or function that could not be read.
    """

    files: int
    sites: tuple[FoundSite, ...]
    warnings: tuple[str, ...]

    def to_json(self, indent: int | None = 2) -> str:
        """Return everything as JSON text; `indent` is the number of spaces, None for one line."""
        return json.dumps(asdict(self), indent=indent)

    def __str__(self) -> str:
        return "\n".join([*aligned(list(map(_cells, self.sites))), _summary(self)])

    def __rich__(self) -> Table:
        return rich_table(_summary(self), _COLUMNS, map(_cells, self.sites))


def scan(paths: Iterable[str]) -> Scan:
    """Look for sites in files and folders, leaving out dot files and `.pyc` files beside sources.

    Raises:
        UnusablePath: a path does not exist, or is a file of another kind. Nothing was read then.
    """
    given = [_checked(path) for path in paths]
    problems: list[str] = []
    files = dict.fromkeys(file for path in given for file in _files_at(path, problems))
    sites: list[FoundSite] = []
    for file in files:
        try:
            found = list(_sites_in(file, problems))
        except _Unreadable as error:
            problems.append(f"{file}: {error}")
        else:
            sites += sorted(found, key=lambda site: site.line or 0)
    return Scan(len(files), tuple(sites), tuple(problems))


def _cells(site: FoundSite) -> tuple[str, ...]:
    where = site.file if site.line is None else f"{site.file}:{site.line}"
    why = ": ".join(filter(None, (site.lowering, site.refusal, site.detail)))
    return where, site.function, site.kind, site.status, why


def _summary(found: Scan) -> str:
    counts = Counter(site.status for site in found.sites)
    by_status = ", ".join(f"{counts[status]} {status}" for status in sorted(counts))
    return (
        f"{plural(len(found.sites), 'site')} in {plural(found.files, 'file')}"
        f"{': ' if by_status else ''}{by_status}"
    )


def _one_line(error: BaseException) -> str:
    return " ".join(str(error).split()) or type(error).__name__


def _checked(text: str) -> Path:
    path = Path(text)
    if not path.exists():
        raise UnusablePath(f"no such file or folder: {text!r}")
    if not path.is_dir() and path.suffix not in (".py", ".pyc"):
        raise UnusablePath(f"neither a folder nor a .py or .pyc file: {text!r}")
    return path


def _files_at(path: Path, problems: list[str]) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return

    def skipped(error: OSError) -> None:
        problems.append(f"{error.filename}: {error.strerror}")

    found: list[Path] = []
    for folder, inner, names in os.walk(path, onerror=skipped):
        inner[:] = [name for name in inner if not name.startswith(".")]
        visible = (Path(folder, name) for name in names if not name.startswith("."))
        found += [file for file in visible if file.suffix in (".py", ".pyc")]
    sources = {file for file in found if file.suffix == ".py"}
    yield from sorted(file for file in found if file in sources or _source(file) not in sources)


def _source(compiled: Path) -> Path:
    """Return where the source of a compiled file is, or would be."""
    try:
        return Path(importlib.util.source_from_cache(str(compiled)))
    except ValueError:  # not in a `__pycache__`
        return compiled.with_suffix(".py")


def _sites_in(file: Path, problems: list[str]) -> Iterator[FoundSite]:
    try:
        data = file.read_bytes()
    except OSError as error:
        raise _Unreadable(error.strerror or _one_line(error)) from error
    if file.suffix == ".py":
        code = _compiled(data, file)
    elif data[:4] == importlib.util.MAGIC_NUMBER:
        code = _unmarshalled(data)
    else:
        yield from _candidates_in(file)
        return
    version = ".".join(platform.python_version_tuple()[:2])
    context = Context(file.stem, {}, DEFAULT)
    yield from _planned_in(code, context, str(file), version, problems)


def _compiled(source: bytes, file: Path) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubtful escapes and the like are not our subject
        try:
            return compile(source, str(file), "exec", dont_inherit=True)
        except SyntaxError as error:
            raise _Unreadable(f"line {error.lineno}: syntax error: {error.msg}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise _Unreadable(f"cannot be compiled: {_one_line(error)}") from error


def _unmarshalled(data: bytes) -> CodeType:
    try:
        code = marshal.loads(data[_HEADER:])
    except (EOFError, TypeError, ValueError) as error:
        raise _Unreadable(f"broken .pyc file: {_one_line(error)}") from error
    if not isinstance(code, CodeType):
        raise _Unreadable("broken .pyc file: holds no code")
    return code


def _planned_in(
    code: CodeType, context: Context, file: str, version: str, problems: list[str]
) -> Iterator[FoundSite]:
    """Yield the sites of a function and of those nested in it, or of each function of a module."""
    inner: Iterable[CodeType] = _nested_in(code)
    if code.co_flags & inspect.CO_OPTIMIZED and may_have_sites(code, context):
        try:
            for owner, site in mend(code, context).sites:
                yield _found(owner, site, file, version)
            # Planning a function covers the functions in it, but not the methods of its classes.
            inner = [each for function in inner for each in _outermost_unplanned(function)]
        except ValueError as error:
            line, name = code.co_firstlineno, code.co_qualname
            problems.append(f"{file}:{line}: {name} cannot be planned: {_one_line(error)}")
    for function in inner:
        yield from _planned_in(function, context, file, version, problems)


def _nested_in(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _outermost_unplanned(code: CodeType) -> Iterator[CodeType]:
    if code.co_flags & inspect.CO_OPTIMIZED == 0:
        yield code
        return
    for constant in _nested_in(code):
        yield from _outermost_unplanned(constant)


def _found(owner: CodeType, site: Site, file: str, version: str) -> FoundSite:
    decision, function = site.decision, owner.co_qualname
    where = (file, site.line, function, site.kind)
    if isinstance(decision, Refusal):
        return FoundSite(*where, "refused", None, decision.slug, decision.detail, version)
    return FoundSite(*where, "planned", _LOWERINGS[type(decision)], None, "", version)


@dataclass(frozen=True, slots=True)
class _Step:
    """One instruction; `effect` is how many operands there are more after it, None if unknown."""

    op: str
    name: str
    line: int | None
    effect: int | None


def _candidates_in(file: Path) -> list[FoundSite]:
    from xdis.load import load_module
    from xdis.op_imports import get_opcode_module

    noise = io.StringIO()  # xdis prints a traceback for a file that it cannot read
    try:
        with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
            loaded = load_module(str(file))
            version, code, implementation = loaded[0], loaded[3], loaded[4]
            if version < _OLDEST_READ:
                raise _Unreadable(f"made by Python {version[0]}.{version[1]}, which is not read")
            opcodes = get_opcode_module(version, implementation)
            python = f"{version[0]}.{version[1]}"
            return list(_candidates(code, "", opcodes, str(file), python))
    except _Unreadable:
        raise
    except Exception as error:
        # xdis documents no exceptions, and a broken file makes it raise many kinds
        raise _Unreadable(f"broken or unknown .pyc file: {_one_line(error)}") from error


def _candidates(code: Any, name: str, opcodes: Any, file: str, python: str) -> Iterator[FoundSite]:
    """Yield the candidates of a code object of xdis and of those in it."""
    is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
    if is_function:
        steps = _steps(code, opcodes)
        for position, step in enumerate(steps):
            kind = _candidate_kind(steps, position)
            if kind:
                outcome = "candidate", None, None, f"needs Python {python} to be planned", python
                yield FoundSite(file, step.line, name, kind, *outcome)
    prefix = f"{name}.<locals>." if is_function else f"{name}." if name else ""
    for constant in code.co_consts:
        if hasattr(constant, "co_code"):
            yield from _candidates(constant, prefix + constant.co_name, opcodes, file, python)


def _steps(code: Any, opcodes: Any) -> list[_Step]:
    from xdis.bytecode import Bytecode
    from xdis.cross_dis import xstack_effect

    steps, line = [], None
    for each in Bytecode(code, opcodes):
        line = line if each.starts_line is None else each.starts_line
        if each.opname in ("CACHE", "EXTENDED_ARG", "NOT_TAKEN"):
            continue
        effect = xstack_effect(each.opcode, opcodes, each.arg or 0, False)
        effect = _corrected(each.opname, each.arg or 0, effect)
        steps.append(_Step(each.opname, str(each.argval), line, effect))
    return steps


def _corrected(op: str, argument: int, effect: int | None) -> int | None:
    """Return the effect of an instruction that does not jump, where xdis has another or none."""
    if op == "FORMAT_VALUE":
        return -1 if argument & 4 else 0  # a format specification is an operand too
    if op == "MAKE_FUNCTION" and effect is None:
        return -argument.bit_count()
    return -1 if op.endswith("_OR_POP") else effect


def _candidate_kind(steps: Sequence[_Step], position: int) -> str:
    """Return what the instruction is a candidate for; empty for none."""
    op = steps[position].op
    if "JUMP" in op and ("IF_TRUE" in op or "IF_FALSE" in op):
        return "" if _is_bool(steps, position) else "branch"
    followed = position + 1 < len(steps) and steps[position + 1].op == "POP_TOP"
    return "output" if op in _CALLS and followed and _writes(steps, position) else ""


def _is_bool(steps: Sequence[_Step], jump: int) -> bool:
    """Return whether the condition of a jump is surely a bool, by the instruction that made it."""
    maker = jump - 1
    while maker > 0 and steps[maker].op in _CONVERSIONS:
        maker -= 1
    made = steps[maker]
    return made.op in _MAKES_BOOL or (made.op == "COMPARE_OP" and made.name in _BOOL_COMPARISONS)


def _writes(steps: Sequence[_Step], call: int) -> bool:
    """Return whether what a call calls has the name of something that prints, logs or warns."""
    position = _start_of_operand(steps, call)
    if position is None:
        return False
    root, *others = steps[position + (steps[position].op == "PUSH_NULL") : call]
    if root.op not in _NAME_LOADS:
        return False
    path = [each.name for each in takewhile(lambda each: each.op in _ATTRIBUTE_LOADS, others)]
    if path:
        return path[-1] in LOGGER_METHODS or path[-2:] in (["stdout", "write"], ["stderr", "write"])
    return root.name == "print" or root.name in WARNING_FUNCTIONS


def _start_of_operand(steps: Sequence[_Step], last: int) -> int | None:
    """Return the first of the instructions that together push one operand, up to `last`."""
    pushed = 0
    for position in range(last, -1, -1):
        step = steps[position]
        if step.effect is None:
            return None
        pushed += step.effect + _STRAIGHTENED.get(step.op, 0)
        if pushed == 1:
            return position
    return None
