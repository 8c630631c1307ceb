"""Real code taken apart and put together; and checks that the comparison can fail."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import CodeType

import pytest

from bcmend.bytecode.decode import decode
from tests.bytecode.roundtrip import (
    Tally,
    check,
    check_file,
    code_objects,
    differences,
    main,
    source_files,
)

STANDARD = (
    "argparse",
    "ast",
    "asyncio.base_events",
    "asyncio.tasks",
    "collections",
    "contextlib",
    "dataclasses",
    "enum",
    "functools",
    "inspect",
    "json.decoder",
    "logging",
    "statistics",
    "tarfile",
    "typing",
    "unittest.mock",
)
MODELING = ("t5", "bart", "phi3")


def passed(paths: list[Path]) -> Tally:
    tally = Tally()
    for path in paths:
        check_file(path, tally)
    assert tally.failures == []
    assert tally.refused == []
    return tally


@pytest.mark.parametrize("name", STANDARD)
def test_standard_library(name: str) -> None:
    stems = (name.split(".")[-1], "__init__")
    (path,) = (each for each in source_files(name) if each.stem in stems)
    tally = passed([path])
    assert tally.code_objects > 10


def test_torch_functional() -> None:
    pytest.importorskip("torch")
    tally = passed(source_files("torch.nn.functional"))
    assert tally.branches > 100


@pytest.mark.parametrize("model", MODELING)
def test_transformers_models(model: str) -> None:
    if importlib.util.find_spec("transformers") is None:
        pytest.skip("transformers is not installed")
    paths = source_files(f"transformers.models.{model}.modeling_{model}")
    tally = passed(paths)
    assert tally.branches > 5 and tally.instructions > 1_000


def code_of(source: str) -> CodeType:
    module = compile(source, "source.py", "exec")
    return next(each for each in module.co_consts if isinstance(each, CodeType))


SOURCE = "def f(a, b):\n    try:\n        return a + b\n    except E:\n        return 0.0\n"


@pytest.mark.parametrize(
    "other",
    [
        SOURCE.replace("a + b", "a - b"),
        SOURCE.replace("a + b", "b + a"),
        SOURCE.replace("0.0", "-0.0"),
        SOURCE.replace("0.0", "0"),
        SOURCE.replace("E:", "F:"),
        SOURCE.replace("(a, b)", "(a, b, *c)"),
        SOURCE.replace("def f", "def g"),
        "\n" + SOURCE,
        SOURCE.replace("a + b", "a  + b"),
        SOURCE.replace("return 0.0", "pass"),
        SOURCE.replace("(a, b):\n", "(a, b):\n    'Text.'\n"),
    ],
)
def test_comparison_sees_a_difference(other: str) -> None:
    assert list(differences(code_of(SOURCE), code_of(SOURCE))) == []
    assert list(differences(code_of(SOURCE), code_of(other))) != []


def test_comparison_sees_other_names_of_keywords() -> None:
    one, other = (code_of(f"def f(g):\n    return g({name}=1)") for name in "ab")
    assert list(differences(one, other)) != []


def test_comparison_sees_a_missing_handler() -> None:
    code = code_of(SOURCE)
    assert list(differences(code, code.replace(co_exceptiontable=b""))) != []


def test_comparison_sees_a_larger_stack() -> None:
    code = code_of(SOURCE)
    assert list(differences(code, code.replace(co_stacksize=code.co_stacksize + 1))) != []


def test_failure_is_tallied_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = decode(code_of(SOURCE.replace("a + b", "a - b")))
    monkeypatch.setattr("tests.bytecode.roundtrip.decode", lambda code: wrong)
    tally = Tally()
    check(code_of(SOURCE), tally)
    assert len(tally.failures) == 1
    assert tally.failures[0].startswith("source.py:1 f: instruction")


def test_code_objects_are_found_at_every_depth() -> None:
    module = compile("def f():\n    def g():\n        return lambda: 1\n", "source.py", "exec")
    assert [each.co_name for each in code_objects(module)] == ["<module>", "f", "g", "<lambda>"]


def test_command_counts_and_exits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "sample_of_mine.py").write_text(SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    assert main(["sample_of_mine"]) == 0
    assert "2 code objects" in capsys.readouterr().out
    monkeypatch.setattr("tests.bytecode.roundtrip.differences", lambda code, again: ["wrong"])
    assert main(["sample_of_mine"]) == 1
    assert main(["no_such_module_anywhere"]) == 2


def test_file_that_does_not_compile_is_counted(tmp_path: Path) -> None:
    path = tmp_path / "broken.py"
    path.write_text("def f(:\n")
    tally = Tally()
    check_file(path, tally)
    assert (tally.files, tally.not_compiled, tally.failures) == (1, 1, [])
