"""A run takes all that compiles nothing, and says what of the rest it has taken."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.liveness import runner
from tests import sampling
from tests.equivalence import assert_equivalent, compare

ROOT = Path(__file__).parents[1]


class Compiling:
    def run(self) -> None:
        torch.compile(torch.sin)


def _helper() -> None:
    compare(lambda: lambda x: x, lambda: ())


def _fixture() -> None:
    torch._dynamo.reset()


def _of_nothing() -> None:
    compile("1", "no file", "eval")


def _decorated(function: Callable[[], None]) -> Callable[[], None]:
    def wrapper() -> None:
        function()

    return wrapper


COMPILING = {
    "torch": lambda: torch.compile(torch.sin),
    "another module": lambda: assert_equivalent(lambda: lambda x: x, lambda: ()),
    "a function": lambda: _helper(),
    "a method": lambda: Compiling().run(),
    "a comprehension": lambda: [_helper() for _ in range(2)],
    "a decorated function": _decorated(_helper),
}


def _item(function: Any, *fixtures: Any) -> Any:
    found = {each.__name__: [SimpleNamespace(func=each)] for each in fixtures}
    return SimpleNamespace(
        function=function,
        iter_markers=lambda name: (),
        _fixtureinfo=SimpleNamespace(name2fixturedefs=found),
    )


@pytest.mark.parametrize("function", COMPILING.values(), ids=COMPILING)
def test_what_compiles_is_found_by_its_code(function: Any) -> None:
    assert sampling.compiles(_item(function))


def test_what_a_fixture_compiles_is_found() -> None:
    assert sampling.compiles(_item(lambda: None, _fixture))
    assert not sampling.compiles(_item(lambda: None))


def test_what_is_skipped_compiles_nothing() -> None:
    skipped = _item(COMPILING["torch"])
    skipped.iter_markers = lambda name: [pytest.mark.skipif(True, reason="no device").mark]
    assert not sampling.compiles(skipped)


def test_a_process_that_compiles_is_found_by_its_file(tmp_path: Path) -> None:
    (tmp_path / "rounds.py").write_text("torch.compile(program)")
    (tmp_path / "others.py").write_text("re.compile(text)")
    for name, expected in [("rounds.py", True), ("others.py", False), ("none.py", False)]:
        text = f"def test(): start({name!r})"
        names: dict[str, Any] = {"__name__": "tests.static"}
        exec(compile(text, str(tmp_path / "test_made.py"), "exec"), names)
        assert sampling.compiles(_item(names["test"])) is expected


def test_what_a_module_compiles_is_found() -> None:
    assert sampling.compiles(_item(lambda: runner.run([])))


def test_a_module_without_torch_compiles_nothing() -> None:
    names = {"compile": compile, "__name__": "tests.static"}
    function = type(_of_nothing)(_of_nothing.__code__, names)
    assert not sampling.compiles(_item(function))


def test_so_many_commits_in_a_row_take_each_case_once() -> None:
    for name in ("a", "tests/a.py::b[c]", "d"):
        for begin in (0, 5, 12_345):
            runs = [sampling.is_taken(name, of=8, salt=f"x:{begin + at}") for at in range(8)]
            assert sum(runs) == 1
    assert any(sampling.is_taken("a", of=8, salt=f"word {at}") for at in range(100))
    assert sampling.is_taken("a", of=1, salt="x:3")


def test_a_commit_is_the_salt_and_a_copy_without_a_history_has_one_too(tmp_path: Path) -> None:
    assert sampling.salt_of(tmp_path) == sampling.Salt("no-commit", 0)
    words = ["-c", "user.name=a", "-c", "user.email=a", "commit", "-q", "--allow-empty", "-m", "a"]
    for number in (1, 2):
        for command in (["init", "-q"], words):
            subprocess.run(["git", "-C", str(tmp_path), *command], check=True)
        found = sampling.salt_of(tmp_path)
        assert found.number == number and len(found.commit) == 8


TESTS = """
import pytest, torch

def test_static():
    pass

@pytest.mark.parametrize("number", range(64))
def test_compiled(number):
    assert torch.compile and number != 3
"""


def _run(folder: Path, *options: str, tests: str = TESTS, salt: str = "") -> str:
    (folder / "test_made.py").write_text(tests)
    (folder / "torch.py").write_text("compile = print")  # nothing is compiled
    (folder / "pytest.ini").write_text('[pytest]\ntestpaths = .\naddopts = -m "not slow"\n')
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "tests.sampling", *options],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), sampling.SALT: salt},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout + done.stderr


@pytest.mark.parametrize("options", [[], ["-n", "2"]], ids=["in one process", "in several"])
def test_a_run_says_what_it_has_taken(tmp_path: Path, options: list[str]) -> None:
    kept = [
        number
        for number in range(64)
        if sampling.is_taken(f"test_made.py::test_compiled[{number}]", of=8, salt="abc:2")
    ]
    failed = int(3 in kept)
    said = _run(tmp_path, "--salt", "abc:2", *options)
    line = f"{len(kept)} of 64 compiled programs, 1 in 8, salt abc; all of them: "
    assert 0 < len(kept) < 64
    assert f"{line}pytest -n auto --sample 1" in said
    assert f"{1 + len(kept) - failed} passed" in said


def test_a_copy_without_a_history_is_told_its_salt(tmp_path: Path) -> None:
    assert "1 in 8, salt abc; all of them" in _run(tmp_path, salt="abc:2")
    assert "1 in 8, salt def; all of them" in _run(tmp_path, "--salt", "def:2", salt="abc:2")


WAYS = """
import pytest, torch

@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("fullgraph", [False, True])
def test_ways(number, backend, fullgraph):
    assert torch.compile
"""


def test_ways_take_turns(tmp_path: Path) -> None:
    seen: set[str] = set()
    for commit in range(4):
        options = ["--sample", "1", "--salt", f"abc:{commit}", "-rp"]
        said = _run(tmp_path, *options, tests=WAYS)
        assert "5 passed, 15 deselected" in said
        assert "5 of 5 compiled programs, 1 in 1, salt abc; 15 more, by other ways" in said
        seen |= {line for line in said.splitlines() if line.startswith("PASSED")}
    assert len(seen) == 20
    assert "20 passed" in _run(tmp_path, "--every-way", tests=WAYS)
    assert "20 passed" in _run(tmp_path, "test_made.py", tests=WAYS)


@pytest.mark.parametrize(
    "options", [["--sample", "1"], ["test_made.py"], ["-k", "test_"]], ids=" ".join
)
def test_what_is_named_is_run_whole_and_a_failure_says_how_to_repeat_it(
    tmp_path: Path, options: list[str]
) -> None:
    said = _run(tmp_path, *options)
    assert "64 passed" in said and "1 failed" in said and "compiled programs" not in said
    assert "repeat: python -m pytest 'test_made.py::test_compiled[3]'" in said


@pytest.mark.parametrize("workers", [[], ["-n", "2"]], ids=["in one process", "in several"])
def test_the_rest_is_what_a_plain_run_leaves_out(tmp_path: Path, workers: list[str]) -> None:
    def passed(*options: str) -> list[str]:
        lines = _run(
            tmp_path,
            "--salt",
            "abc:1",
            "-rA",
            *options,
            tests=TESTS + WAYS.replace("import pytest, torch", ""),
        )
        names = [each for each in lines.splitlines() if each.startswith(("PASSED", "FAILED"))]
        return [each.split()[1] for each in names]

    plain, rest = passed(*workers), passed("--rest", *workers)
    assert len(plain) > 1 and len(rest) > 1
    assert sorted(plain + rest) == sorted(passed("--sample", "1", *workers))


@pytest.mark.parametrize("options", [["--sample", "1"], ["-k", "test_"], ["--every-way"]])
def test_the_rest_is_asked_for_alone(tmp_path: Path, options: list[str]) -> None:
    assert "give it alone" in _run(tmp_path, "--rest", *options)


def test_a_part_that_is_none_is_refused(tmp_path: Path) -> None:
    assert "--sample 0: it is one in N; give 1 or more" in _run(tmp_path, "--sample", "0")
