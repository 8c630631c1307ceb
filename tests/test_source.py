"""Excerpts: which lines are shown, and what of them is marked."""

from __future__ import annotations

import dis
import linecache
import types
from pathlib import Path

import pytest

from bcmend.reports.source import Line, Span, excerpt, excerpt_text, span_at, span_of


def _marked(lines: list[Line]) -> list[str]:
    return [piece.text for line in lines for piece in line.pieces if piece.is_marked]


def _function(text: str, file: str) -> types.CodeType:
    code = compile(text, file, "exec")
    return next(each for each in code.co_consts if isinstance(each, types.CodeType))


def _jumps(code: types.CodeType) -> list[Span]:
    """Where the conditions of all conditional jumps stand."""
    jumps = [
        each for each in dis.get_instructions(code) if {"JUMP", "IF"} <= {*each.opname.split("_")}
    ]
    found = [span_at(code, each.offset) for each in jumps]
    return [each for each in found if each is not None]


@pytest.mark.parametrize(
    "condition, expected",
    [
        ("x.any()", ["x.any()"]),
        ("x > 0", ["x > 0"]),
        ("x", ["x"]),
        ("not x.any()", ["x.any()"]),
        ("x.any() and y.all()", ["x.any()", "y.all()"]),
        ("größe.any() or x[0] > 'ß'", ["größe.any()", "x[0] > 'ß'"]),
        ("(\n        x.any()\n        or y.all()\n    )", ["x.any()", "y.all()"]),
    ],
)
@pytest.mark.parametrize("form", ["if {}:\n        pass", "z = 1 if {} else 2", "assert {}"])
def test_each_jump_marks_its_own_condition(
    form: str, condition: str, expected: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "code.py"
    text = f"def f(x, y, größe):\n    {form.format(condition)}\n    return x\n"
    file.write_text(text, encoding="utf-8")
    jumps = _jumps(_function(text, str(file)))
    found = [_marked(excerpt(str(file), 2, [each])) for each in jumps]
    assert found == [[each] for each in expected]


@pytest.mark.parametrize(
    "text, line, shown",
    [
        ("if (\n    a\n    and b\n):\n    c\n", 2, ["if (", "    a", "    and b", "):"]),
        ("f(\n  1,\n  2)\ng()\n", 2, ["f(", "  1,", "  2)"]),
        ("with a as b:\n    c\n    d\n", 1, ["with a as b:"]),
        ("if a: b\n", 1, ["if a: b"]),
        ("%magic\nif a:\n    b\n", 2, ["if a:"]),
    ],
)
def test_a_statement_is_shown_whole_but_for_its_body(
    text: str, line: int, shown: list[str], tmp_path: Path
) -> None:
    file = tmp_path / "code.py"
    file.write_text(text)
    assert [each.text for each in excerpt(str(file), line)] == shown


def test_a_long_statement_is_cut_around_what_is_marked(tmp_path: Path) -> None:
    file = tmp_path / "code.py"
    file.write_text("f(\n" + "".join(f"    a{n},\n" for n in range(100)) + ")\n")
    lines = excerpt(str(file), 1, [Span(52, 52, 4, 7)])
    assert len(lines) < 20 and _marked(lines) == ["a50"]


def test_what_there_is_no_source_of_has_no_lines(tmp_path: Path) -> None:
    assert excerpt(str(tmp_path / "gone.py"), 1, [Span(1, 1, 0, 1)]) == []
    file = tmp_path / "code.py"
    file.write_text("a\n")
    assert excerpt(str(file), 2) == excerpt(str(file), None) == []


def test_a_span_outside_of_the_source_marks_nothing(tmp_path: Path) -> None:
    """The file may be another one by now."""
    file = tmp_path / "code.py"
    file.write_text("a\nb\n")
    assert _marked(excerpt(str(file), 1, [Span(1, 9, 50, 60)])) in ([], ["b"])
    assert list(excerpt_text(excerpt(str(file), 1))) == ["| a"]


def test_a_position_that_is_not_known_is_no_span() -> None:
    assert span_of(None) is span_of((1, None, 2, 3)) is None
    assert span_of((1, 2, 3, 4)) == Span(1, 2, 3, 4)


def test_a_cell_of_a_notebook_has_its_source(monkeypatch: pytest.MonkeyPatch) -> None:
    """IPython puts the text of a cell into ``linecache``; the file is nowhere."""
    name, text = "/tmp/ipykernel_1/2.py", "def f(x, y, größe):\n    if x > 0:\n        y = 1\n"
    monkeypatch.setitem(linecache.cache, name, (len(text), None, text.splitlines(True), name))
    (jump,) = _jumps(_function(text, name))
    assert _marked(excerpt(name, 2, [jump])) == ["x > 0"]
