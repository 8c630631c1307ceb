"""Which cases a run takes: by default one in eight of those that compile a program, else all.

A case compiles if the code of its test, of its fixtures, or of what they call in ``tests``,
``corpus`` and ``bench`` names something that compiles, or a file beside it that does; nothing is
marked. It is taken in every eighth commit by the hash of its name, so that eight commits in a row
take all. Cases that differ in the back end or in ``fullgraph`` alone are the same program, captured
by the same trace: one of them is taken, in turn with each commit. What names what it wants (paths,
``-k``, ``-m``, ``--lf``) gets all of that, and so does ``--every-way``.
"""

from __future__ import annotations

import functools
import os
import shlex
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any, Final

import pytest

from bcmend.bytecode.names_used import code_objects

ROOT: Final = Path(__file__).parents[1]
USUAL: Final = 8
#: Code that names one of these, in a module that has torch, compiles or starts what does.
_COMPILING: Final = frozenset(
    "compile explain why verify bench install export make_fx _dynamo cli main subprocess"
    " new_process".split()
)
#: Modules that compile what they are given.
_COMPILERS: Final = frozenset({"bcmend.liveness.runner"})
#: What may differ between cases that take turns.
_WAYS: Final = frozenset({"backend", "fullgraph"})
_OWN: Final = ("tests", "corpus", "bench")
_KEY: Final = pytest.StashKey["Sample"]()
_SENT: Final = "sample"
#: Names the salt for a copy that has no history; not an option, as runs within a run inherit it.
SALT: Final = "BCMEND_SALT"


@dataclass(frozen=True, slots=True)
class Salt:
    """What chooses the part: the commit, and its place among those before it."""

    commit: str
    number: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What a collection has taken of the cases that compile, and how many wait for their turn."""

    taken: int
    of: int
    waiting: int


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare ``--sample N``, ``--rest``, ``--every-way`` and ``--salt TEXT``."""
    group = parser.getgroup("bcmend")
    group.addoption(
        "--sample",
        type=int,
        metavar="N",
        help=f"run one in N of the cases that compile a program; {USUAL} where nothing is chosen",
    )
    group.addoption(
        "--rest",
        action="store_true",
        help="run what a plain run with this salt leaves out, and nothing else",
    )
    group.addoption(
        "--every-way",
        action="store_true",
        default=None,
        help="run cases that differ in back end or fullgraph alone, too; not in turn",
    )
    group.addoption("--salt", metavar="TEXT", help="choose the part by this and not the commit")


def pytest_configure(config: pytest.Config) -> None:
    """Choose the part; each process of a run reads the same options, and chooses the same."""
    option, is_chosen = config.option, _is_chosen(config)
    if option.rest:
        if is_chosen or option.sample is not None or option.every_way:
            raise pytest.UsageError("--rest: it is what a plain run leaves out; give it alone")
        option.sample = 1
    if option.sample is None:
        option.sample = 1 if is_chosen or option.every_way else USUAL
    if option.every_way is None:
        option.every_way = is_chosen
    if option.sample < 1:
        raise pytest.UsageError(f"--sample {option.sample}: it is one in N; give 1 or more")
    if option.salt is None:
        option.salt = os.environ.get(SALT) or "{0.commit}:{0.number}".format(salt_of(ROOT))


def _is_chosen(config: pytest.Config) -> bool:
    """Return whether the command line says what is to be run."""
    named = config.args_source is not pytest.Config.ArgsSource.TESTPATHS
    last = config.getoption("lf", False) or config.getoption("failedfirst", False)
    return bool(named or config.option.keyword or config.option.markexpr != "not slow" or last)


def salt_of(root: Path) -> Salt:
    """Return the commit of a checkout, and its number; a copy without a history has none."""
    commit = _git(root, "rev-parse", "--short=8", "HEAD")
    if not commit:
        return Salt("no-commit", 0)
    is_whole = _git(root, "rev-parse", "--is-shallow-repository") == "false"
    count = _git(root, "rev-list", "--count", "--first-parent", "HEAD") if is_whole else ""
    return Salt(commit, int(count or str(int(commit, 16))))


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(
            ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
        )
    except OSError:  # no git here
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def is_taken(name: str, *, of: int, salt: str) -> bool:
    """Return whether a case is in the part that a salt, "commit:number", chooses."""
    return (_hash(name) + _number(salt)) % of == 0


def has_its_turn(names: list[str], salt: str) -> str:
    """Return the one of some cases that a salt chooses; each is, in as many commits."""
    return sorted(names)[(_hash(min(names)) + _number(salt)) % len(names)]


def _hash(name: str) -> int:
    return zlib.crc32(name.encode())


def _number(salt: str) -> int:
    number = salt.rpartition(":")[2]
    return int(number) if number.isdigit() else _hash(salt)


# Which cases compile


def compiles(item: pytest.Item) -> bool:
    """Return whether a case compiles a program, as far as its code tells; none that is skipped."""
    if any(True in mark.args for mark in item.iter_markers("skipif")):
        return False
    functions = [getattr(item, "function", None)]
    fixtures = getattr(item, "_fixtureinfo", None)
    if fixtures is not None:
        functions += [each.func for found in fixtures.name2fixturedefs.values() for each in found]
    return any(_reaches(each) for each in functions if isinstance(each, FunctionType))


@functools.cache
def _reaches(function: FunctionType) -> bool:
    seen, left = {function}, [function]
    while left:
        each = left.pop()
        names = {name for code in code_objects(each.__code__) for name in code.co_names}
        if (names & _COMPILING and _has_torch(each)) or _starts_what_compiles(each, names):
            return True
        for other in _called(each, names):
            if other not in seen:
                seen.add(other)
                left.append(other)
    return False


def _has_torch(function: FunctionType) -> bool:
    held = function.__globals__.get("torch")
    return type(held) is ModuleType or "torch" in function.__code__.co_names


def _starts_what_compiles(function: FunctionType, names: set[str]) -> bool:
    """Return whether code names a module that compiles, or a file beside it that does."""
    held = (function.__globals__.get(name) for name in names)
    if any(type(each) is ModuleType and each.__name__ in _COMPILERS for each in held):
        return True
    folder = Path(function.__code__.co_filename).parent
    constants = (each for code in code_objects(function.__code__) for each in code.co_consts)
    files = {each for each in constants if type(each) is str and each.endswith(".py")}
    return any(_compiles_by_its_text(folder / each) for each in files)


@functools.cache
def _compiles_by_its_text(file: Path) -> bool:
    return file.is_file() and "torch.compile(" in file.read_text(encoding="utf-8")


def _called(function: FunctionType, names: set[str]) -> Iterator[FunctionType]:
    """Yield the functions of the tests that the code of one names, or holds in its closure."""
    held = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    found = [function.__globals__.get(name) for name in names]
    for each in (*held, *found):
        yield from _functions(each, names)


def _functions(value: Any, names: set[str]) -> Iterator[FunctionType]:
    """Yield the functions of a value, if it is of the tests; no code of its own is run."""
    kind = type(value)  # `isinstance` asks the value
    if kind is FunctionType:
        inner = vars(value).get("__wrapped__")
        found = inner if type(inner) is FunctionType else value
        if _is_own(found.__module__):
            yield found
    elif kind is ModuleType and _is_own(value.__name__):
        for name in names & vars(value).keys():
            if type(vars(value)[name]) is not ModuleType:
                yield from _functions(vars(value)[name], names)
    elif issubclass(kind, type) and _is_own(type.__getattribute__(value, "__module__")):
        held = type.__dict__["__dict__"].__get__(value)
        yield from (each for each in held.values() if type(each) is FunctionType)


def _is_own(module: str | None) -> bool:
    return str(module).partition(".")[0] in _OWN


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:
        return False


# What is run, and what is said of it


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is not of the part, and what has not its turn."""
    option = config.option
    drawn = [] if option.sample == 1 and option.every_way else list(filter(compiles, items))
    waiting = set() if option.every_way else _without_a_turn(drawn, option.salt)
    there = [each for each in drawn if each.nodeid not in waiting]
    taken = [each for each in there if is_taken(each.nodeid, of=option.sample, salt=option.salt)]
    if option.rest:
        taken = [each for each in taken if not is_taken(each.nodeid, of=USUAL, salt=option.salt)]
    left = {each.nodeid for each in (items if option.rest else drawn)}
    left -= {each.nodeid for each in taken}
    config.stash[_KEY] = Sample(len(taken), len(there), len(waiting))
    if left:
        config.hook.pytest_deselected(items=[each for each in items if each.nodeid in left])
        items[:] = [each for each in items if each.nodeid not in left]


def _without_a_turn(items: list[pytest.Item], salt: str) -> set[str]:
    """Return the names of cases of which another one, by another way, is taken."""
    groups: dict[object, list[str]] = {}
    for item in items:
        groups.setdefault(_without_ways(item), []).append(item.nodeid)
    return {
        name for names in groups.values() for name in names if name != has_its_turn(names, salt)
    }


def _without_ways(item: pytest.Item) -> object:
    """Return what cases have in common that differ in their ways alone."""
    call = getattr(item, "callspec", None)
    if call is None:
        return item.nodeid
    others = {name: value for name, value in call.params.items() if name not in _WAYS}
    # Parameters are compared by identity: they need not be equal to themselves.
    return item.nodeid.partition("[")[0], tuple(
        (name, value if isinstance(value, (str, int)) else id(value))
        for name, value in sorted(others.items())
    )


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Send what was taken to the process that says so."""
    sent = getattr(session.config, "workeroutput", None)
    found = session.config.stash.get(_KEY, None)
    if sent is not None and found is not None:
        sent[_SENT] = found.taken, found.of, found.waiting


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any, error: object) -> None:
    """Note what a worker has taken; all take the same."""
    sent = getattr(node, "workeroutput", {}).get(_SENT)
    if sent is not None:
        node.config.stash[_KEY] = Sample(*sent)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Print what was run, and for each failure the command that repeats it."""
    for outcome in ("failed", "error"):
        for report in terminalreporter.stats.get(outcome, []):
            if "::" not in report.nodeid:
                continue  # of what could not be collected
            terminalreporter.write_line(f"repeat: python -m pytest {shlex.quote(report.nodeid)}")
    found, option = config.stash.get(_KEY, None), config.option
    if found is not None and (found.waiting or option.sample > 1):
        terminalreporter.write_line(told(found, of=option.sample, salt=option.salt))


def told(sample: Sample, *, of: int, salt: str) -> str:
    """Return the line that says what of the cases that compile was run."""
    more = "; all of them: pytest -n auto --sample 1" if of > 1 else ""
    waiting = f"; {sample.waiting:,} more, by other ways, take turns" if sample.waiting else ""
    return (
        f"{sample.taken:,} of {sample.of:,} compiled programs, 1 in {of}, "
        f"salt {salt.partition(':')[0]}{waiting}{more}"
    )
