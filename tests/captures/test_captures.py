"""A part of what ``python -m tests.captures`` tries, and that it finds what is wrong."""

from __future__ import annotations

import random

import pytest
import torch

import bcmend
from bcmend.knowledge import replaced_calls
from bcmend.knowledge.domains import constants, domain, read, tensors
from bcmend.knowledge.substitute_rows import TABLE
from bcmend.trials.captures import ALONE, FORMS, Program, programs, taken_by_stock, tried
from tests.captures import __main__ as command
from tests.captures.constructs import CONSTRUCTS
from tests.captures.running import Capture, captures, chosen, verify
from tests.samples import sampled

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

_ROWS = {each.name: each for each in captures() if each.name in TABLE}


def _of_form(capture: Capture, seed: str, *, alone: bool) -> Program:
    tries = programs(capture.domain, random.Random(f"{seed} {capture.name}"))
    return next(each for each in tries if (each.form == ALONE) is alone)


@pytest.mark.parametrize("name", _ROWS)
def test_a_row_captures_its_domain(name: str) -> None:
    row = _ROWS[name]
    found = tried(_of_form(row, "0", alone=True), row.target, trains=False)
    assert found.is_one_graph
    assert found.difference is None or found.difference.stock, found.difference


@pytest.mark.parametrize("name", _ROWS)
def test_a_row_is_equal_wherever_it_stands(name: str) -> None:
    row = _ROWS[name]
    program = _of_form(row, "0", alone=False)
    found = tried(program, row.target, trains=False)
    assert found.difference is None or found.difference.stock, f"{program}\n{found.difference}"


@pytest.mark.parametrize("name", sampled(CONSTRUCTS, of=8))
def test_a_construct_is_equal(name: str) -> None:
    found = verify(Capture(name, CONSTRUCTS[name], None), "0", count=1, trains=False)
    assert not found.wrong, found.wrong[0]


def _doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.from_numpy(x.detach().numpy() * 2)


def test_a_wrong_row_is_found_in_each_form() -> None:
    bcmend.register_capture(_doubled, lambda x: x.detach() * 3)
    tries = programs(domain("target(t)", t=tensors(dims=[1])), random.Random(0))
    forms = {each.form: each for _, each in zip(range(len(FORMS)), tries, strict=False)}
    assert forms.keys() == FORMS.keys()
    for program in forms.values():
        assert tried(program, _doubled, trains=False).difference is not None, program


def test_each_place_of_a_value_comes_into_the_program() -> None:
    both = domain("target(a, b)", a=constants("'text'"), b=read("2.5"))
    program = next(programs(both, random.Random(0)))
    assert "a = 'text'" in program.text and "b = b.item()" in program.text
    assert all("torch.tensor(2.5)" in each for each in program.calls)


def test_what_stock_captures_is_told_from_what_it_does_not() -> None:
    plain = Capture("plain", domain("x * 2"), None)
    assert taken_by_stock(_of_form(plain, "0", alone=True), None)
    breaking = Capture("breaking", domain("float(x.sum() > 0) if x.sum() > 0 else 1"), None)
    assert not taken_by_stock(_of_form(breaking, "0", alone=True), None)


def test_captures_are_chosen_by_the_beginnings_of_their_names() -> None:
    assert {each.name for each in chosen(["random."])} == {
        each for each in TABLE if each.startswith("random.")
    }
    assert len(chosen([])) == len(TABLE) + len(CONSTRUCTS)


def test_the_command_counts_what_differs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["captures", "math.isnan", "--programs", "1"]
    monkeypatch.setattr("sys.argv", arguments)
    assert command.main() == 0
    assert "0 programs differ" in capsys.readouterr().out
    monkeypatch.setattr("sys.argv", ["captures", "no such name"])
    with pytest.raises(SystemExit):
        command.main()


def test_every_row_names_a_program_that_asked_for_it() -> None:
    assert not [name for name, row in TABLE.items() if not row.seen_in or row.domain is None]
    assert "seen in" in replaced_calls.page()
