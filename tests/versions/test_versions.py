"""Tests run with several releases of torch: what is written, what is run again, and the table."""

from __future__ import annotations

import dataclasses
import itertools
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from bcmend.dynamo.contract import recorded
from corpus.patterns.pattern import Pattern, signs
from tests.versions import __main__ as command
from tests.versions import environments
from tests.versions.page import changes, page, table
from tests.versions.record import (
    DIFFERS,
    FAILED,
    FAILS,
    NOT_RUN,
    PASSED,
    SKIPPED,
    WHOLE,
    Pair,
    Record,
    append,
    read,
    running,
)
from tests.versions.recording import FILE
from tests.versions.stock import captured

OLD, NEW = Pair("2.9.0", "3.11"), Pair("2.13.0", "3.12")

#: A test of each outcome, one of them by its teardown, and one that says that it has run.
TESTS = """
from pathlib import Path
import pytest

@pytest.fixture
def broken():
    yield
    raise OSError

def test_passes():
    with (Path(__file__).parent / "runs").open("a") as file:
        file.write(".")

def test_fails():
    assert False

def test_fails_behind_its_end(broken):
    pass

@pytest.mark.skip
def test_is_skipped():
    pass
"""


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    file = tmp_path / "test_some.py"
    file.write_text(TESTS)
    return file


def _run(tests: Path, records: Path, *options: str) -> str:
    plugins = ("-p", "no:cacheprovider", "-p", "tests.versions.recording")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *plugins, *options, str(tests)],
        cwd=tests.parent,
        env={**os.environ, FILE: str(records), "PYTHONPATH": str(environments.ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout


def _outcomes(records: Path) -> dict[str, str]:
    return {test.partition("::test_")[2]: each.outcome for (_, test), each in read(records).items()}


@pytest.mark.parametrize("options", [(), ("-n2",)], ids=["alone", "workers"])
def test_what_becomes_of_each_test_is_written(
    tests: Path, tmp_path: Path, options: tuple[str, ...]
) -> None:
    records = tmp_path / "records"
    _run(tests, records, *options)
    assert _outcomes(records) == {
        "passes": PASSED,
        "fails": FAILED,
        "fails_behind_its_end": FAILED,
        "is_skipped": SKIPPED,
    }
    assert {pair for pair, _ in read(records)} == {running()}
    assert len(records.read_text().splitlines()) == 8  # each once as not run


def test_a_run_goes_on_behind_its_file(tests: Path, tmp_path: Path) -> None:
    records = tmp_path / "records"
    _run(tests, records, "-k", "passes")
    _run(tests, records)
    assert (tmp_path / "runs").read_text() == "."
    before = records.read_text()
    assert "4 deselected" in _run(tests, records)
    assert records.read_text() == before


def test_what_was_begun_with_or_run_by_another_pair_is_run(tests: Path, tmp_path: Path) -> None:
    records = tmp_path / "records"
    name = "test_some.py::test_passes"
    append(records, [Record(OLD, name, PASSED), Record(running(), name, NOT_RUN)])
    _run(tests, records, "-k", "passes")
    assert read(records)[running(), name].outcome == PASSED
    assert (tmp_path / "runs").read_text() == "."


def test_records_are_read_as_they_were_written(tmp_path: Path) -> None:
    file = tmp_path / "records"
    assert read(file) == {}
    found = [
        Record(OLD, "one", NOT_RUN),
        Record(OLD, "one", PASSED, 0.5),
        Record(NEW, "one", FAILED),
    ]
    append(file, found)
    assert list(read(file).values()) == found[1:]
    assert set(json.loads(file.read_text().splitlines()[0])) == {
        *(each.name for each in dataclasses.fields(Pair)),
        *(each.name for each in dataclasses.fields(Record) if each.name != "pair"),
    }


def test_the_table_has_a_row_for_each_pair_the_oldest_first() -> None:
    records = [
        Record(NEW, "one", FAILED, 1.0),
        Record(NEW, "two", SKIPPED),
        Record(OLD, "one", PASSED, 61.2),
        Record(OLD, "two", PASSED, 1.1),
        Record(OLD, "three", NOT_RUN),
    ]
    assert list(table(records)) == [
        "| torch | Python | passed | failed | skipped | not run | seconds |",
        "|---|---|---|---|---|---|---|",
        "| 2.9.0 | 3.11 | 2 | 0 | 0 | 1 | 62 |",
        "| 2.13.0 | 3.12 | 0 | 1 | 1 | 0 | 1 |",
    ]
    shown = page(records, ["tests/some"])
    assert "\n".join(table(records)) in shown and "`tests/some`" in shown
    assert "- `one`: 2.13.0 on 3.12\n" in shown and "`two`" not in shown
    assert "All tests but the slow ones" in page(records, [])
    assert "one in 5 of those that compile" in page(records, [], sample=5)


def test_a_part_of_all_is_the_same_in_each_run(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[list[str]] = []

    def note(environment: object, words: list[str], *_: object) -> int:
        ran.append(words)
        return 0

    monkeypatch.setattr(command, "_end", note)
    found = environments.given(Path(sys.executable))
    for arguments in (["--all", "--sample", "5"], ["--all"], ["tests/some"]):
        assert command.run(found, command.parse(arguments), Path("records"), 0.0)
    for words, sample in zip(ran, ("5", "1", None), strict=True):
        given = dict(itertools.pairwise(words))
        assert given.get("--sample") == sample
        assert given.get("--salt") == (None if sample is None else "versions:0")


def test_the_command_runs_tests_and_writes_the_page(
    tests: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    file, written = tmp_path / "records", tmp_path / "page.md"
    arguments = ["--python", sys.executable, "--resume", str(file), "--write", str(written)]
    assert command.main([f"{tests}::test_passes", *arguments]) == 0
    assert "| 1 | 0 | 0 | 0 |" in capfd.readouterr().out
    assert command.main([str(tests), *arguments]) == 1
    assert "| 1 | 2 | 1 | 0 |" in written.read_text()


def test_a_run_ends_in_time(tests: Path, tmp_path: Path) -> None:
    tests.write_text("import time\n\ndef test_long():\n    time.sleep(60)\n")
    found = environments.given(Path(sys.executable))
    assert not command.run(found, command.parse([str(tests)]), tmp_path / "r", time.monotonic() + 3)


def test_what_is_no_environment_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(["--python", str(tmp_path / "nothing")]) == 1
    assert str(tmp_path / "nothing") in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["--folder", str(environments.ROOT / "some")],
        ["--all", "tests"],
        ["--sample", "5"],
        ["--all", "--sample", "0"],
    ],
    ids=" ".join,
)
def test_a_wrong_command_line(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as error:
        command.parse(arguments)
    assert error.value.code == 2


def test_what_the_sample_names_is_there() -> None:
    for each in command.SAMPLE:
        path, _, function = each.partition("::")
        assert (environments.ROOT / path).exists()
        text = (environments.ROOT / path).read_text() if function else ""
        assert re.search(rf"^def {function}\b" if function else "", text, re.MULTILINE)


def test_each_tested_release_meets_each_python_that_is_here() -> None:
    python = "{}.{}".format(*sys.version_info)
    found = [pair.release for pair, _ in environments.pairs() if pair.python == python]
    assert found in ([each.version for each in recorded.releases() if each.is_tested], [])
    for release in found:
        assert environments.constraints_of(release).startswith(f"torch=={release}\n")
    tested = {each.version: each.pythons for each in recorded.releases()}
    assert all(pair.python in tested[pair.release] for pair, _ in environments.pairs())


def test_an_environment_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[tuple[str, ...]] = []

    def note(*words: str) -> str:
        (tmp_path / f"torch-{release}-python-3.11").mkdir(exist_ok=True)
        ran.append(words)
        return ""

    release = recorded.releases()[0].version
    monkeypatch.setattr(environments, "_run", note)
    for _ in range(2):
        made = environments.made(Pair(release, "3.11"), Path("python3.11"), tmp_path)
    venv, pip = ran
    assert venv[:3] == ("python3.11", "-m", "venv") and pip[0] == str(made.executable)
    given = Path(pip[pip.index("-c") + 1]).read_text()
    assert given == environments.constraints_of(release) and given.count("\ntorch==") == 0
    (made.executable.parents[1] / "installed").write_text("other files")
    environments.made(Pair(release, "3.11"), Path("python3.11"), tmp_path)
    assert len(ran) == 4
    with pytest.raises(environments.NotMade, match=r"1\.0\.0"):
        environments.made(Pair("1.0.0", "3.11"), Path("python3.11"), tmp_path)


def test_patterns_with_which_releases_differ_are_listed() -> None:
    records = [
        *(Record(pair, name, FAILS) for pair in (NEW, OLD) for name in ("one", "two")),
        Record(NEW, "one", WHOLE),
        Record(OLD, "three", DIFFERS),
    ]
    found = list({(each.pair, each.test): each for each in records}.values())
    assert list(changes(found))[2:] == ["| one | fails | whole |", "| three | differs | not run |"]
    assert "\n".join(changes(found)) in page([], [], found)
    assert "itself" not in page([], [])


def _branches() -> object:
    return lambda x: x + 1 if x.sum() > 0 else x - 1


def _adds() -> object:
    return lambda x: x + 1


def _says_whether_it_is_compiled() -> object:
    return lambda x: x + torch.compiler.is_compiling()


@pytest.mark.parametrize(
    ("make", "outcome"),
    [(_branches, FAILS), (_adds, WHOLE), (_says_whether_it_is_compiled, DIFFERS)],
)
def test_what_stock_captures(make: Callable[[], object], outcome: str) -> None:
    assert captured(Pattern("some", make, signs, ())) == outcome
