"""What is around the mending: the public functions, the report, the command line, bad input.

A program is patched, run and reported on, in all the ways there are. Whatever is passed, the
answer is a value, an exception of bcmend's own, or the exit code for a wrong input; and the code of
the program is what it was.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import itertools
import json
import marshal
import os
import py_compile
import random
import runpy
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from types import FunctionType
from typing import Any, Final

import torch
from rich.console import Console

import bcmend
from bcmend import cli
from bcmend.scan.scanner import scan
from tests.bytecode import roundtrip
from tests.fuzz.breakages import with_other_bytes
from tests.fuzz.programs import Program, factory_of, inputs_of, names_of, policy_of
from tests.observation import observe

_COMMANDS: Final = (
    "reasons",
    "substitutes",
    "--version",
    "--help",
    "",
    "report",
    "scan",
    "nothing",
)
_WORDS: Final = ("--json", "x:y", "json:", "/nowhere", "os:getcwd", "this_fails:at_once", "json")
_COUNTER: Final = itertools.count()

#: Arguments of `Policy` that it does not take.
_BAD_POLICIES: Final = (
    {"branch": "never"},
    {"output": None},
    {"guards": 3},
    {"include": "torch.nn"},
    {"exclude": ["a"]},
    {"exclude": ("",)},
    {"off": ("a", 3)},
    {"off": {"a"}},
)
_NOTHING_TO_PATCH: Final = (
    3,
    None,
    "text",
    [],
    print,
    len,
    torch.relu,
    object(),
    int,
    torch.ones(2),
)


def found_on_the_surface(program: Program) -> Iterator[str]:
    """Yield what is wrong with what surrounds the mending of a program."""
    source = random.Random(program.text)
    make = factory_of(program)
    subject = make()
    code = _code_of(subject)
    _, compiled = subject, bcmend.compile(subject, policy=policy_of(program), backend="eager")
    for call in inputs_of(program)()[:2]:
        observe(compiled, call.arguments, call.keywords, subject, training=False)
    yield from _wrong_report(bcmend.report(subject))
    for action in source.sample(_ACTIONS, len(_ACTIONS)):
        yield from action(program, subject, source)
    bcmend.unpatch(subject)
    if _code_of(subject) is not code:
        yield "unpatch: another code object"


def _code_of(subject: Any) -> Any:
    function = subject if isinstance(subject, FunctionType) else type(subject).forward
    return function.__code__


def _wrong_report(report: Any) -> Iterator[str]:
    parsed = json.loads(report.to_json())
    if len(parsed["sites"]) != len(report.sites):
        yield "report: JSON has other sites"
    if len(report.mended) + len(report.refused) > len(report.sites):
        yield "report: more outcomes than sites"
    console = Console(file=io.StringIO(), width=120)
    console.print(report)
    for text in (str(report), report.to_html(), repr(report), report.to_json(None)):
        if not text:
            yield "report: nothing to show"


# --- bad input -----------------------------------------------------------------------------------


def _refuses(what: str, action: Callable[[], object]) -> Iterator[str]:
    """Yield what is wrong with how bad input is answered."""
    try:
        action()
    except bcmend.BcmendError as error:
        if not str(error):
            yield f"{what}: no message"
    except Exception as error:
        yield f"{what}: {type(error).__name__}: {error}"
    else:
        yield f"{what}: accepted"


def _bad_input(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    code = _code_of(subject)
    bad = source.choice(_BAD_POLICIES)
    thing = source.choice(_NOTHING_TO_PATCH)
    wrong: Any = source.choice((3, "auto", {"branch": "where"}))
    yield from _refuses(f"Policy({bad})", lambda: bcmend.Policy(**bad))  # type: ignore[arg-type]
    yield from _refuses(f"policy={wrong!r}", lambda: bcmend.patch(subject, policy=wrong))
    yield from _refuses(f"patch({thing!r})", lambda: bcmend.patch(thing))
    yield from _refuses(f"report({thing!r})", lambda: bcmend.report(thing))
    if thing is not None:
        yield from _refuses(f"unpatch({thing!r})", lambda: bcmend.unpatch(thing))
    yield from _refuses(f"compile({thing!r})", lambda: bcmend.compile(thing))
    yield from _refuses(f"patched({thing!r})", lambda: bcmend.patched(thing).__enter__())
    target: Any = source.choice((3, "no name", "", None))
    yield from _refuses(f"output {target!r}", lambda: bcmend.register_output(target))
    yield from _refuses(
        f"substitute for {target!r}", lambda: bcmend.register_capture(target, print)
    )
    yield from _refuses("substitute 3", lambda: bcmend.register_capture(print, 3))  # type: ignore[arg-type]
    yield from _refuses("itself", lambda: bcmend.register_capture(print, print))
    if _code_of(subject) is not code:
        yield "bad input: another code object"
    try:
        bcmend.no_such_name  # noqa: B018
    except AttributeError:
        dir(bcmend)
    else:
        yield "bcmend.no_such_name is there"


# --- other ways ----------------------------------------------------------------------------------


def _blocks(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    """Patch for the length of blocks, in one another."""
    code = _code_of(subject)
    bcmend.unpatch()
    with bcmend.patched(subject), bcmend.patched(subject, policy=policy_of(program)):
        bcmend.report(subject)
    if (
        subject is not None
        and _code_of(subject) is code
        and bcmend.report(subject).functions_changed
    ):
        yield "patched: left behind"
    bcmend.patch(subject)
    bcmend.patch(type(subject) if isinstance(subject, torch.nn.Module) else subject)
    bcmend.unpatch(subject)
    bcmend.unpatch()


def _methods(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    """Patch other things than functions and modules: methods, partials, what was compiled."""
    bcmend.unpatch()
    if isinstance(subject, torch.nn.Module):
        for each in (subject.forward, type(subject), torch.compile(subject)):
            bcmend.patch(each)
            yield from _wrong_report(bcmend.report(each))
            bcmend.unpatch(each)
    else:
        compiled = torch.compile(subject, backend="eager")
        bcmend.patch(compiled)
        yield from _wrong_report(bcmend.report(compiled))
        bcmend.unpatch(compiled)


def _registered(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    """Register methods of classes and of objects, and names of what is not there."""
    sink = io.StringIO()
    bcmend.register_output(sink.write)
    bcmend.register_output("package.module.Class.method", returns_none=True)
    bcmend.register_capture("package.module.function", abs)
    bcmend.register_capture(sink.getvalue, str)
    yield from _wrong_report(bcmend.report(subject))


# --- the command line ----------------------------------------------------------------------------


def _run(arguments: list[str]) -> tuple[Any, str]:
    out, err = io.StringIO(), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err):
        try:
            status: Any = cli.main(arguments)
        except SystemExit as exit_:
            status = exit_.code
    return status, out.getvalue() + err.getvalue()


def _command(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    for _ in range(3):
        words = [
            source.choice(_COMMANDS),
            *source.choices(_WORDS, k=source.randrange(3)),
        ]
        status, text = _run([word for word in words if word])
        if status not in (0, 1, 2, None) or "Traceback" in text:
            yield f"bcmend {' '.join(words)}: {status}"
    arguments = sys.argv
    sys.argv = ["bcmend", "reasons"]
    try:
        with redirect_stdout(io.StringIO()):
            # Not by its name: where the package has a plugin, pytest loads it, without `get_code`.
            runpy.run_path(str(Path(bcmend.__file__).with_name("__main__.py")), run_name="__main__")
    except SystemExit as exit_:
        if exit_.code not in (0, None):
            yield f"python -m bcmend reasons: {exit_.code}"
    finally:
        sys.argv = arguments


def _demo(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    """Run the demonstration, which takes long and knows nothing of the program: once is enough."""
    status, text = _outcome_of_demo()
    if status != 0 or "bit for bit" not in text:
        yield f"bcmend demo: {status}: {text[-200:]}"


@functools.cache
def _outcome_of_demo() -> tuple[Any, str]:
    return _run(["demo"])


def _files(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    """Scan and report on a file of the program, and on files that are broken."""
    with tempfile.TemporaryDirectory() as folder:
        name = f"fuzzed_{os.getpid()}_{next(_COUNTER)}"
        path = Path(folder, f"{name}.py")
        path.write_text(f"{program.source}\n\nsubject = make()\n")
        Path(folder, "failing_at_once.py").write_text("raise ValueError\n")
        compiled = Path(py_compile.compile(str(path), cfile=str(path) + "c") or "")
        before = os.getcwd()
        os.chdir(folder)
        try:
            for words in (
                ["report", f"{name}:subject"],
                ["report", "--json", f"{name}:subject"],
                ["report", f"{name}:nothing"],
                ["report", f"{name}:nan"],
                ["report", "failing_at_once:subject"],
                ["scan", str(path)],
                ["scan", "--json", folder],
            ):
                status, text = _run(words)
                if status not in (0, 2) or not text:
                    yield f"bcmend {words[0]}: {status}: {text[-200:]}"
                if "--json" in words and status == 0:
                    json.loads(text)
            yield from _broken_files(compiled, source)
            sys.path.insert(0, folder)
            with redirect_stdout(io.StringIO()):
                if roundtrip.main([name]) or roundtrip.main(["no_such_module"]) != 2:
                    yield "roundtrip: failures"
        finally:
            os.chdir(before)
            sys.path[:] = [each for each in sys.path if each != folder]
            sys.modules.pop(name, None)
            bcmend.unpatch()


def _broken_files(compiled: Path, source: random.Random) -> Iterator[str]:
    data = bytearray(compiled.read_bytes())
    for _ in range(source.randrange(4)):
        place = source.randrange(len(data))
        data[place] = source.randrange(256)
    # Files of the last alpha version are read as those of another Python.
    own = int.from_bytes(importlib.util.MAGIC_NUMBER[:2], "little")
    magics = (own - 1, source.choice((3413, 3425, 3439, 3531, 3571, 3625, 12)))
    others = [magic.to_bytes(2, "little") + b"\r\n" for magic in magics]
    code = with_other_bytes(marshal.loads(compiled.read_bytes()[16:]), source)
    files = {
        "other.pyc": bytes(data),
        "alpha.pyc": others[0] + compiled.read_bytes()[4:],
        "old.pyc": others[1] + compiled.read_bytes()[4:],
        "short.pyc": bytes(data[: source.randrange(20)]),
        "bytes.pyc": importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(code),
        "number.pyc": importlib.util.MAGIC_NUMBER + bytes(12) + marshal.dumps(3),
        "broken.py": b"def f(:\n",
        "latin.py": b"# coding: latin-1\nx = '\xe9'\n",
        "wrong.py": b"x = '\xe9'\n",
        "null.py": b"x = 1\0",
        "text.txt": b"nothing",
    }
    for name, content in files.items():
        path = compiled.with_name(name)
        path.write_bytes(content)
        status, text = _run(["scan", str(path)])
        if status not in (0, 1, 2):
            yield f"scan {name}: {status}: {text[-200:]}"
    found = scan([str(compiled.parent)])
    shown = io.StringIO()
    Console(file=shown, width=120).print(found)
    if f"{found.files} files" not in shown.getvalue() or len(found.warnings) < 3:
        yield f"scan of a folder: {found.warnings}"


def _names(program: Program, subject: Any, source: random.Random) -> Iterator[str]:
    """Patch everything that a program's module defines."""
    for name, each in names_of(program).items():
        if isinstance(each, FunctionType) or (
            isinstance(each, type) and issubclass(each, torch.nn.Module)
        ):
            code = getattr(each, "__code__", None)
            try:
                bcmend.patch(each)
            except bcmend.UnsupportedObject:  # a generator function
                continue
            yield from _wrong_report(bcmend.report(each))
            bcmend.unpatch(each)
            if getattr(each, "__code__", None) is not code:
                yield f"{name}: another code object"


_ACTIONS: Final = (_bad_input, _blocks, _methods, _registered, _command, _demo, _files, _names)
