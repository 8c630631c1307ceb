"""The code in the README and in the documentation runs, and its commands are those that there are.

A block in ``python`` is executed, those of a page in one namespace; one that the text in front
calls a file is written to that file. Of a block in ``sh`` each command is taken apart: what calls
bcmend is read by its parser, and run if it needs nothing of the reader's. A block in ``text`` is
output, or a command for files that only a reader has. What is in ``yaml`` is compared with its file
by ``tests/testing/test_action.py``.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from packaging.requirements import Requirement

from bcmend import cli
from bcmend.testing import plugin

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
_BLOCK = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(\w+\.py)`:\s*\Z")
LANGUAGES = {"python", "sh", "text", "yaml"}


@dataclass(frozen=True)
class Block:
    """A block of code: the line of its page that it begins at, and the file that it stands for."""

    line: int
    language: str
    text: str
    file: str | None


def blocks_of(page: str) -> list[Block]:
    found = []
    for match in _BLOCK.finditer(page):
        indent, language, text = match.groups()
        lines = (each.removeprefix(indent) for each in text.splitlines(keepends=True))
        named = _FILE.search(page[: match.start()])
        line = page.count("\n", 0, match.start()) + 2
        found.append(Block(line, language, "".join(lines), named[1] if named else None))
    return found


def _blocks(page: Path) -> list[Block]:
    return blocks_of(page.read_text(encoding="utf-8"))


def _as_source(blocks: list[Block]) -> str:
    """Return the Python of blocks at the lines at which they stand, where torch looks it up."""
    text = ""
    for block in blocks:
        if block.language == "python":
            text += "\n" * (block.line - 1 - text.count("\n")) + block.text
    return text


WITH_PYTHON = [page for page in PAGES if any(each.language == "python" for each in _blocks(page))]


def commands_of(text: str) -> Iterator[list[str]]:
    """Yield the commands of a shell block, without comments, settings and redirections."""
    for line in text.splitlines():
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        words = shlex.split(line, comments=True) if words else []
        command: list[str] = []
        for word in [*words, "&&"]:
            if word != "&&":
                command.append(word)
            elif command:
                yield command[: command.index(">")] if ">" in command else command
                command = []


# What a command of each program has to be


def _bcmend(arguments: list[str]) -> None:
    cli._parser().parse_args(arguments)


def _venv(arguments: list[str]) -> None:
    assert arguments == [".venv"]


def _pip(arguments: list[str]) -> None:
    assert arguments[0] == "install"
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    for at, word in enumerate(arguments[1:], 1):
        if arguments[at - 1] == "-c":
            assert (ROOT / word).is_file(), word
        elif not word.startswith("-"):
            extra = re.fullmatch(r"\.(?:\[(\w+)\])?", word)
            assert extra, word
            assert extra[1] is None or extra[1] in project["optional-dependencies"], word


def _towncrier(arguments: list[str]) -> None:
    assert arguments[0] == "build" and "--version" in arguments
    assert {each for each in arguments if each.startswith("--")} <= {
        "--draft",
        "--version",
        "--yes",
    }


def _paths(arguments: list[str]) -> None:
    """Accept arguments of which those that look like paths are there."""
    assert [each for each in arguments if "/" in each and not (ROOT / each).exists()] == []


def _module(name: str, arguments: list[str]) -> None:
    """Accept a module of the project that can be run and knows the options."""
    path = ROOT.joinpath(*name.split("."))
    sources = list(path.glob("*.py")) if path.is_dir() else [path.with_suffix(".py")]
    main = path / "__main__.py" if path.is_dir() else path.with_suffix(".py")
    assert main.is_file(), name
    known = "".join(source.read_text(encoding="utf-8") for source in sources)
    options = {each for each in arguments if each.startswith("--")}
    assert [each for each in options if f'"{each}"' not in known] == [], name


_PROGRAMS: dict[str, Callable[[list[str]], None]] = {
    "pip": _pip,
    "ruff": _paths,
    "mypy": _paths,
    "towncrier": _towncrier,
    "zensical": lambda arguments: _paths(["zensical.toml"]),
}
_MODULES: dict[str, Callable[[list[str]], None]] = {
    "bcmend": _bcmend,
    "venv": _venv,
    "pytest": _paths,
}


def check_command(command: list[str]) -> None:
    """Fail on a command that is none, or that names what is not there."""
    program, *arguments = command
    name = program.rpartition("/")[2]
    if name in ("python", "python3"):
        dash, module, *arguments = arguments
        assert dash == "-m", command
        check = _MODULES.get(module) or functools.partial(_module, module)
        check(arguments)
    else:
        assert name in _PROGRAMS, (
            f"{name}: no command that is known here; text, if it is no command"
        )
        _PROGRAMS[name](arguments)


def can_be_run(command: list[str], files: set[str]) -> bool:
    """Return whether a command calls bcmend with a file of its page, or prints a page."""
    if command[:3] != ["python", "-m", "bcmend"]:
        return False
    target = command[4].partition(":")[0] if len(command) > 4 else ""
    return f"{target}.py" in files or command[3:] in (["reasons"], ["substitutes"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_block_says_what_it_is(page: Path) -> None:
    found = _blocks(page)
    assert [each.line for each in found if each.language not in LANGUAGES] == []
    assert page.read_text(encoding="utf-8").count("```") == 2 * len(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_are_those_that_there_are(page: Path) -> None:
    for block in _blocks(page):
        if block.language == "sh":
            for command in commands_of(block.text):
                check_command(command)
        else:  # output may begin with the command that it is of
            for line in re.findall(r"^\$ (python -m .*)$", block.text, re.MULTILINE):
                for command in commands_of(line):
                    check_command(command)


def _renew_streams() -> None:
    """Give handlers of libraries that an earlier page has imported the stream of this one."""
    for logger in list(logging.root.manager.loggerDict.values()):
        for handler in getattr(logger, "handlers", ()):
            if isinstance(handler, logging.StreamHandler) and handler.stream.closed:
                handler.stream = sys.stderr  # `setStream` would flush the closed one
                vars(handler).pop("flush", None)  # transformers binds that of the closed one


@pytest.fixture
def place(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    pytestconfig: pytest.Config,
    dynamo_begun_anew: None,
) -> Iterator[Path]:
    """A working directory with what a page writes; nothing is handed to a compiler."""
    _renew_streams()
    plugin.pytest_configure(pytestconfig)  # which an older installation does not load
    compile_ = torch.compile

    def quickly(*arguments: Any, backend: Any = "inductor", **named: Any) -> Any:
        chosen = "eager" if backend == "inductor" else backend
        return compile_(*arguments, backend=chosen, **named)

    monkeypatch.setattr(torch, "compile", quickly)
    monkeypatch.setattr(logging.getLogger("bcmend"), "level", logging.NOTSET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    known = set(sys.modules)
    yield tmp_path
    logging.getLogger("bcmend").setLevel(logging.NOTSET)  # the cache of levels, too
    for name in set(sys.modules) - known:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(tmp_path)):
            del sys.modules[name]


def _libraries() -> set[str]:
    """Return the names of what the extra ``works-with`` installs."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    wanted = map(Requirement, project["optional-dependencies"]["works-with"])
    return {each.name for each in wanted if each.name != project["name"]}


def lacks_a_library(block: Block) -> bool:
    """Return whether a block names a library that is not installed here."""
    named = _libraries() & set(re.findall(r"\w+", block.text))
    return any(importlib.util.find_spec(each) is None for each in named)


def _run(page: Path, place: Path) -> None:
    """Run what can be run of a page, in the order in which it stands."""
    module = ModuleType(f"page_{page.stem}")
    sys.modules[module.__name__] = module
    files, blocks = set(), _blocks(page)
    source = place / f"{module.__name__}.py"
    source.write_text(_as_source(blocks), encoding="utf-8")
    for block in blocks:
        if block.language == "python":
            if lacks_a_library(block):
                compile(block.text, str(page), "exec")
                continue
            if block.file is not None:
                (place / block.file).write_text(block.text, encoding="utf-8")
                files.add(block.file)
            exec(compile(_as_source([block]), str(source), "exec"), vars(module))
        elif block.language == "sh":
            for command in commands_of(block.text):
                if can_be_run(command, files):
                    assert cli.main(command[3:]) == 0, command
    del sys.modules[module.__name__]


@pytest.mark.parametrize("page", WITH_PYTHON, ids=lambda page: page.name)
def test_the_code_of_a_page_runs(
    page: Path, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    _run(page, place)
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("page", "model"), [(ROOT / "README.md", "Net"), (ROOT / "docs" / "tutorial.md", "Classifier")]
)
def test_the_report_on_a_page_is_what_its_code_prints(
    page: Path, model: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """All but the versions, and the place: there the code is a file of its own."""
    _run(page, place)
    printed = _without_places(capsys.readouterr().out)
    (sample,) = [each.text for each in _blocks(page) if each.text.startswith(f"bcmend: {model}\n")]
    assert _without_places(sample) in printed


def _without_places(report: str) -> str:
    kept = [line for line in report.splitlines() if not re.match(r"versions |  \S+\.py$", line)]
    return "\n".join(re.sub(r"^ +(\S+\.py:)?\d+ +", "", line) for line in kept)


def test_blocks_are_found_with_what_they_are() -> None:
    page = "The file `a.py`:\n\n```python\nx = 1\n```\n\n1. In a list:\n\n   ```sh\n   ls\n   ```\n"
    assert blocks_of(page) == [Block(4, "python", "x = 1\n", "a.py"), Block(10, "sh", "ls\n", None)]


def test_commands_are_taken_apart() -> None:
    text = "python -m bcmend explain a:b --call 'f(1)' > page.html  # a page\na/b x && c\n"
    explained = ["python", "-m", "bcmend", "explain", "a:b", "--call", "f(1)"]
    assert list(commands_of(text)) == [explained, ["a/b", "x"], ["c"]]


def test_a_block_that_names_a_library_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    block, other = (Block(1, "python", f"import {name}\n", None) for name in ("peft", "torch"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert lacks_a_library(block) and not lacks_a_library(other)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    assert not lacks_a_library(block)


WRONG = [
    "python -m bcmend explain",
    "python -m bcmend report a:b --fast",
    "python -m pytest tests/nothing",
    "python -m tests.nothing",
    "python -m corpus.models --nothing",
    "towncrier build --nothing --version 0.3.0",
    "python program.py",
    ".venv/bin/pip install -c constraints.txt '.[nothing]'",
    ".venv/bin/pip install -c nothing.txt .",
    "nothing .",
]


@pytest.mark.parametrize("line", WRONG)
def test_a_command_that_is_none_is_found(line: str) -> None:
    (command,) = commands_of(line)
    with pytest.raises((AssertionError, ValueError, cli._InputError)):
        check_command(command)
