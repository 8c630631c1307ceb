"""The corpus of libraries, from names and guessed arguments to the page and exit codes."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from corpus.architectures.isolation import Limits, Stopped
from corpus.libraries import __main__ as command
from corpus.libraries import registry
from corpus.libraries.call import NoCall
from corpus.libraries.examples import call_of_examples
from corpus.libraries.guesses import guessed_call
from corpus.libraries.measure import measure
from corpus.libraries.names import found, prepare, sampled
from corpus.libraries.page import page, summary
from corpus.libraries.record import Outcome, Record, of_line, read_records
from corpus.libraries.registry import Library
from corpus.lines import append, as_line

SOURCE = '''
import itertools
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import relu

COUNT = itertools.count()


def signed(image: Tensor) -> Tensor:
    """Return a picture or its negative."""
    return image if image.sum() > 1e9 else -image


def doubled(image: Tensor) -> Tensor:
    return image * 2


def shown(x: Tensor, *more: Tensor, by: float = 1.0, **named: float) -> Tensor:
    """Return a multiple.

    >>> missing.module
    >>> shown(torch.tensor([3.0]), torch.ones(1), by=2.0, also=4.0)
    tensor([6.])
    >>> shown(torch.tensor([5.0]))
    """
    return x * by


def disabled(image: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return image + 1


def drawn(image: Tensor) -> Tensor:
    return image + next(COUNT)


def refusing(image: Tensor) -> Tensor:
    raise ValueError("never")


def applied(image: Tensor, function: Callable[[Tensor], Tensor]) -> Tensor:
    return function(image)


def builds(width: int = 3) -> nn.Module:
    return nn.Linear(width, width)


class Gate(nn.Module):
    """Open for what is positive.

    >>> gate = Gate(4)
    >>> gate(torch.ones(2, 4))
    """

    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.linear = nn.Linear(in_features, in_features)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if x.sum() > 0 else x


class SetsUp(nn.Module):
    def __init__(self, in_features: int) -> None:
        super().__init__()
        self.factor = None

    def forward(self, x: Tensor) -> Tensor:
        if self.factor is None:
            torch._dynamo.graph_break()
            self.factor = 2
        return x * self.factor


class SetsUpAndBreaks(SetsUp):
    def forward(self, x: Tensor) -> Tensor:
        y = super().forward(x)
        torch._dynamo.graph_break()
        return y + 1


class Tells(nn.Module):
    def forward(self, image: Tensor) -> list[Tensor]:
        print("nothing is computed")
        return [image]


def _hidden(image: Tensor) -> Tensor:
    return image
'''

TINY = Library("tiny", "tiny_library", "tiny_library")
GOOD = Record("tiny.f", "eager", Outcome.MENDED, "example", breaks=True, stock="a | b")
SLOW = replace(
    GOOD,
    name="tiny.g",
    outcome=Outcome.BREAKS,
    why="Data-dependent <branching>",
    refusals=("generator: it yields", "too-deep: 25 of them"),
    stock_seconds=2.0,
    seconds=60.0,
)


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    folder = tmp_path / "tiny_library"
    folder.mkdir()
    (folder / "__init__.py").write_text("from tiny_library.parts import doubled, Gate\n")
    (folder / "parts.py").write_text(SOURCE)
    (folder / "broken.py").write_text("import that_is_not_there\n")
    monkeypatch.syspath_prepend(str(tmp_path))
    prepare(TINY)
    yield TINY
    for name in [each for each in sys.modules if each.startswith("tiny_library")]:
        del sys.modules[name]
    torch._dynamo.reset()


def _measured(name: str) -> Record:
    return measure(f"tiny_library.parts.{name}", "eager", lambda stage: None)


# names


def test_each_public_function_and_module_has_its_shortest_name(tiny: Library) -> None:
    names = sampled(tiny)
    assert sorted(names) == [
        "tiny_library.Gate",
        "tiny_library.doubled",
        *(
            f"tiny_library.parts.{each}"
            for each in (
                "SetsUp",
                "SetsUpAndBreaks",
                "Tells",
                "applied",
                "builds",
                "disabled",
                "drawn",
                "refusing",
                "shown",
                "signed",
            )
        ),
    ]
    assert found("tiny_library.Gate").__name__ == "Gate"


def test_the_order_is_drawn_once(tiny: Library) -> None:
    assert sampled(tiny) == sampled(tiny) != sorted(sampled(tiny))
    assert sampled(tiny, seed=1) != sampled(tiny)


# arguments


def test_the_first_call_of_the_examples_is_noted(tiny: Library) -> None:
    noted = call_of_examples(found("tiny_library.parts.shown"))
    assert [each.tolist() for each in noted.arguments] == [[3.0], [1.0]]
    assert noted.named == {"by": 2.0, "also": 4.0}
    assert noted.made().tolist() == [6.0]


def test_of_a_class_the_call_of_its_instance_is_noted(tiny: Library) -> None:
    noted = call_of_examples(found("tiny_library.Gate"))
    assert type(noted.target).__name__ == "Gate"
    assert noted.arguments[0].shape == (2, 4)


@pytest.mark.parametrize("name", ["doubled", "signed"])
def test_without_examples_there_is_no_call_of_them(tiny: Library, name: str) -> None:
    with pytest.raises(NoCall):
        call_of_examples(found(f"tiny_library.parts.{name}"))


def test_arguments_are_guessed_that_eager_execution_accepts(tiny: Library) -> None:
    assert guessed_call(found("tiny_library.doubled")).made().shape == (2, 3, 32, 32)
    assert guessed_call(found("tiny_library.parts.applied")).named["function"] is torch.sigmoid
    gate = guessed_call(found("tiny_library.Gate"))
    assert gate.made().shape[-1] == gate.target.linear.in_features


def test_what_accepts_nothing_says_why(tiny: Library) -> None:
    with pytest.raises(NoCall, match="never"):
        guessed_call(found("tiny_library.parts.refusing"))


def test_each_copy_of_a_call_has_its_own_arguments(tiny: Library) -> None:
    noted = call_of_examples(found("tiny_library.parts.shown"))
    noted.copied().arguments[0].zero_()
    assert noted.arguments[0].tolist() == [3.0]


# measurements


@pytest.mark.parametrize(
    "name, outcome",
    [
        ("signed", Outcome.MENDED),
        ("Gate", Outcome.MENDED),
        ("doubled", Outcome.WHOLE),
        ("disabled", Outcome.BREAKS),
        ("SetsUp", Outcome.MENDED),
        ("SetsUpAndBreaks", Outcome.BREAKS),  # not before its second call
        ("Tells", Outcome.MENDED),  # captured, without a graph
        ("drawn", Outcome.NO_CALL),
        ("refusing", Outcome.NO_CALL),
        ("builds", Outcome.NO_CALL),
    ],
)
def test_what_becomes_of_a_case(tiny: Library, name: str, outcome: Outcome) -> None:
    record = _measured(name)
    assert record.outcome is outcome
    assert record.breaks is (outcome in (Outcome.MENDED, Outcome.BREAKS))
    assert bool(record.seconds) is bool(record.stock) is record.breaks


def test_a_refused_site_is_named() -> None:
    assert (GOOD.reason, SLOW.reason) == ("", "too-deep")


# records and page


def test_a_record_is_kept_as_a_line(tmp_path: Path) -> None:
    file = tmp_path / "tiny.jsonl"
    assert read_records(file) == read_records(None) == []
    for record in (SLOW, GOOD, replace(GOOD, how="guessed")):
        append(file, record)
        assert of_line(as_line(record)) == record
    assert read_records(file) == [SLOW, replace(GOOD, how="guessed")]


def test_only_what_stays_in_pieces_is_slow_to_give_up() -> None:
    assert SLOW.is_slow
    assert not replace(SLOW, outcome=Outcome.MENDED).is_slow
    assert not replace(SLOW, seconds=5.9).is_slow  # less than three times as long
    assert not replace(SLOW, stock_seconds=0.1, seconds=3.0).is_slow  # no three seconds more


def test_the_page_has_every_case_that_breaks_and_counts_reasons() -> None:
    whole = replace(GOOD, name="tiny.whole", breaks=False, outcome=Outcome.WHOLE)
    text = page({"tiny 1.0": [GOOD, SLOW, whole]})
    assert "| tiny 1.0 | 3 | 2 | 1 | 1 | 0 | 0 | 1 |" in text
    assert "| too-deep | 1 |" in text
    assert "a / b" in text and "&lt;branching>" in text and "tiny.whole" not in text


def test_the_summary_counts_what_was_called() -> None:
    missing = replace(GOOD, outcome=Outcome.NO_CALL, breaks=False)
    assert summary([SLOW, missing]).startswith("called: 1; break with stock: 1; ")


# the command


def _run(monkeypatch: pytest.MonkeyPatch, outcomes: dict[str, Outcome], *more: str) -> int:
    def run(name: str, backend: str, limits: Limits) -> Record:
        return replace(GOOD, name=name, outcome=outcomes[name])

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr(command, "prepare", lambda library: None)
    monkeypatch.setattr(command, "sampled", lambda library: list(outcomes))
    return command.main([next(iter(registry.LIBRARIES)), *more])


def test_a_run_ends_after_so_many_cases_and_is_resumed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    file = tmp_path / "tiny.jsonl"
    outcomes = {"a": Outcome.NO_CALL, "b": Outcome.MENDED, "c": Outcome.BREAKS}
    for names in (["a", "b"], ["a", "b", "c"]):
        assert _run(monkeypatch, outcomes, "--cases", "1", "--resume", str(file)) == 0
        assert [each.name for each in read_records(file)] == names


@pytest.mark.parametrize("outcome", [Outcome.DIFFERS, Outcome.STOPPED])
def test_what_differs_or_was_stopped_is_an_exit_code(
    monkeypatch: pytest.MonkeyPatch, outcome: Outcome
) -> None:
    assert _run(monkeypatch, {"a": outcome}) == 1


def test_a_process_that_is_ended_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "isolated", lambda work, limits: Stopped("mended", "too long"))
    record = command.run("tiny.f", "eager", Limits())
    assert (record.outcome, record.breaks) == (Outcome.STOPPED, True)
    monkeypatch.setattr(command, "isolated", lambda work, limits: Stopped("arguments", "too long"))
    assert command.run("tiny.f", "eager", Limits()).outcome is Outcome.NO_CALL


def test_an_unknown_library_is_a_wrong_command_line() -> None:
    with pytest.raises(SystemExit) as end:
        command.main(["no-such-library"])
    assert end.value.code == 2
