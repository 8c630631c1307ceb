"""Modules that read numbers out of tensors are what they say, and a difference is noticed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from corpus.models.compare import differences
from corpus.towers import __main__ as command
from corpus.towers.kind import Inputs, Kind, Tower, kind
from corpus.towers.measure import (
    CALLS,
    MODES,
    Measurement,
    RunningBackend,
    Shown,
    Way,
    calls_by_hand,
    eager_calls,
    measure,
)
from corpus.towers.record import append, read
from corpus.towers.registry import KINDS

#: Kinds that are measured with bcmend by default: one that reads sizes of images, one of lengths,
#: one of rows of experts, one that keeps numbers, one that raises.
SAMPLE = (
    "split-features",
    "longest-of-a-list",
    "experts-by-split",
    "kept-for-later",
    "checked-tokens",
)

#: Kinds of which each mended call is one graph, as no call of the code as it is, and those of them
#: that are measured by default.
ONE_GRAPH = tuple(
    "rotary-positions interpolated-positions attention-by-chunks given-boundaries window-index"
    " patch-merger pixel-shuffle patch-masks groups-of-equal-images audio-chunks experts-by-ends"
    " image-bounds frames-in-turn unpadding grids-of-texts first-end tiles-of-images vision-tower"
    " audio-tower rope-index rope-groups classes-in-turn checked-sum".split()
)
ONE_GRAPH_BY_DEFAULT = ("first-end", "audio-tower", "rope-groups")

BY_HAND = [each for each in KINDS if each.has_by_hand]


class Doubling(Tower):
    """Says another thing when it is compiled: an oracle has to see that."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.seen = 0

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        self.seen = 1 if torch.compiler.is_compiling() else 0
        return self.layer(x) * count

    def numbers(self, x: Tensor, count: Tensor) -> Inputs:
        return {"x": x, "count": count.item()}

    def by_hand(self, x: Tensor, count: int) -> Tensor:
        return self.layer(x) * count


class Refusing(Doubling):
    """Raises for some numbers."""

    def forward(self, x: Tensor, count: Tensor) -> Tensor:
        found = self.layer(x)
        if count.item() > 3:
            raise ValueError(f"{count.item()} are too many")
        return found


def _counted() -> list[Inputs]:
    return [{"x": torch.ones(1, 2), "count": torch.tensor(each)} for each in range(5)]


def _marks(each: Kind) -> list[pytest.MarkDecorator]:
    if each.name in SAMPLE:
        return []
    return [pytest.mark.slow]


def _parameters() -> list[object]:
    return [
        pytest.param(each, mode, id=f"{each.name}-{mode}", marks=_marks(each))
        for each in KINDS
        for mode in MODES
    ]


def test_there_are_enough_kinds_and_each_is_there_once():
    names = [each.name for each in KINDS]
    assert len(set(names)) == len(names) >= 28
    assert {*SAMPLE, *ONE_GRAPH} < set(names)
    assert set(ONE_GRAPH_BY_DEFAULT) < set(ONE_GRAPH)
    assert len(BY_HAND) >= len(names) - 1


@pytest.mark.parametrize("each", KINDS, ids=lambda each: each.name)
def test_the_layouts_are_several_and_always_the_same(each: Kind):
    layouts = each.layouts()
    assert 5 <= len(layouts) <= CALLS // 2
    assert not list(differences(layouts, each.layouts()))
    numbers = [shown.arguments for shown in calls_by_hand(each, "eval")] if each.has_by_hand else []
    assert len({repr(_whole_numbers(inputs)) for inputs in numbers or layouts}) >= 4


def _whole_numbers(value: Any) -> Any:
    """Return what is not drawn: numbers in tensors of integers, and numbers."""
    if isinstance(value, Tensor):
        return value.shape if value.is_floating_point() else value.tolist()
    if isinstance(value, dict):
        return [_whole_numbers(each) for each in value.values()]
    return [_whole_numbers(each) for each in value] if isinstance(value, (list, tuple)) else value


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("each", BY_HAND, ids=lambda each: each.name)
def test_numbers_that_are_handed_in_give_the_same(each: Kind, mode: str):
    eager, by_hand = eager_calls(each, mode), calls_by_hand(each, mode)
    assert len(eager) == len(by_hand) == CALLS
    for one, other in zip(eager, by_hand, strict=True):
        assert _shown(one, other) == []


def _shown(one: Shown, other: Shown) -> list[str]:
    return [
        *differences(one.result, other.result, "output"),
        *differences(one.attributes, other.attributes, "attributes"),
        *differences(one.weights, other.weights, "weights", 1e-6),
    ]


@pytest.mark.parametrize("each", KINDS, ids=lambda each: each.name)
def test_a_module_learns(each: Kind):
    first, second = eager_calls(each, "train", calls=2)
    assert not first.raised and not second.raised
    gradients = first.weights["gradients"]
    assert isinstance(gradients, dict)
    assert any(gradient is not None and gradient.any() for gradient in gradients.values())
    assert list(differences(first.weights["parameters"], second.weights["parameters"]))


@pytest.mark.parametrize("each, mode", _parameters())
def test_mended_it_shows_what_eager_execution_shows(each: Kind, mode: str):
    assert measure(each, mode, ways=("mended",)).faults == ()


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=[] if name in ONE_GRAPH_BY_DEFAULT else [pytest.mark.slow])
        for name in ONE_GRAPH
    ],
)
def test_each_mended_call_is_one_graph(name: str):
    (each,) = (each for each in KINDS if each.name == name)
    (found,) = measure(each, ways=("mended, fullgraph",)).ways.values()
    assert found.is_whole


def test_some_calls_raise_in_eager_execution():
    raising = {
        each.name for each in KINDS if any(shown.raised for shown in eager_calls(each, "eval"))
    }
    assert "checked-tokens" in raising
    assert len(raising) < 6


def test_what_is_compiled_otherwise_is_told():
    found = measure(kind(Doubling, _counted), ways=("stock", "mended"))
    assert found.ways["stock"].differences[0].startswith("call 0: attributes['.seen']: 0 and 1")
    assert found.faults[0].startswith("call 0: attributes['.seen']: 0 and 1")


def test_an_exception_that_eager_execution_does_not_raise_ends_the_calls():
    (stock,) = measure(kind(Refusing, _counted), ways=("stock, fullgraph",)).ways.values()
    assert stock.error is not None and stock.error.startswith(f"call {len(stock.ran)}: ")
    assert len(stock.ran) < 5  # the call of the fifth layout raises, whatever comes before
    assert not stock.is_whole


def test_an_exception_of_eager_execution_is_compared():
    eager = eager_calls(kind(Refusing, _counted), "eval")
    assert [shown.raised for shown in eager[:5]] == [False] * 4 + [True]
    assert eager[4].result == "ValueError: 4 are too many"
    (stock,) = measure(kind(Refusing, _counted), ways=("stock",)).ways.values()
    assert stock.error is None and stock.differences == ()
    assert len(stock.compiled) == CALLS
    assert len(stock.ran) == CALLS - CALLS // 5  # without those of the fifth layout


def test_each_layout_is_two_steps_of_training_from_the_same_weights():
    shown = eager_calls(kind(Doubling, _counted), "train")
    weights = [each.weights["parameters"] for each in shown]
    assert list(differences(weights[2], weights[3]))
    assert not list(differences(weights[2], weights[12]))  # the second of five layouts
    assert not any(each.weights for each in eager_calls(kind(Doubling, _counted), "eval"))


def test_numbers_are_read_before_the_call():
    by_hand = calls_by_hand(kind(Doubling, _counted), "eval")
    assert [each.arguments["count"] for each in by_hand[:5]] == [0, 1, 2, 3, 4]


def test_graphs_are_counted_where_they_run():
    torch._dynamo.reset()
    backend = RunningBackend("counting")
    compiled = torch.compile(torch.sin, backend=backend)
    for _ in range(3):
        compiled(torch.ones(2))
    assert (backend.graphs, backend.ran) == (1, 3)


def test_a_name_is_that_of_the_class():
    assert kind(Doubling, _counted).name == "doubling"
    assert "rotary-positions" in {each.name for each in KINDS}


WHOLE = Way(ran=(1, 1), compiled=(1, 0), operators=3)
MEASURED = Measurement("rotary-positions", "eval", "counting", {"stock": WHOLE, "mended": WHOLE})


@pytest.mark.parametrize(
    "changed",
    [{"ran": (1, 2)}, {"ran": (1, 0)}, {"ran": ()}, {"error": "E: x"}, {"differences": ("a: 1",)}],
)
def test_what_is_not_one_graph_in_each_call_is_not_whole(changed: dict[str, Any]):
    assert WHOLE.is_whole
    assert not replace(WHOLE, **changed).is_whole


def test_a_fault_is_an_error_a_difference_or_the_end_of_the_process():
    wrong = replace(WHOLE, differences=("a: 1",))
    assert MEASURED.faults == ()
    assert replace(MEASURED, ways={"stock": wrong}).faults == ()
    assert replace(MEASURED, ways={"mended": wrong}).faults == ("a: 1",)
    assert replace(MEASURED, ways={"mended, fullgraph": wrong}).faults == ("fullgraph: a: 1",)
    assert replace(MEASURED, stopped="stock: killed").faults == ("stock: killed",)


def test_lines_of_a_file_are_read_again(tmp_path):
    file = tmp_path / "lines"
    stopped = replace(MEASURED, mode="train", ways={}, stopped="mended: ended by SIGKILL")
    later = replace(MEASURED, later_call=1.5, refusals=("a.py:3 reason",))
    for each in (MEASURED, stopped, later):
        append(file, each)
    assert read(file) == {later.key: later, stopped.key: stopped}
    assert read(None) == read(tmp_path / "none") == {}


def test_the_command_goes_on_behind_a_file(monkeypatch, tmp_path, capsys):
    file = tmp_path / "lines"
    append(file, MEASURED)
    measured: list[str] = []

    def isolated(each: Kind, mode: str, backend: str, timed: bool) -> Measurement:
        measured.append(each.name)
        return Measurement(each.name, mode, backend, {"mended": replace(WHOLE, error="E: x")})

    monkeypatch.setattr(command, "_isolated", isolated)
    names = ["rotary-positions", "pixel-shuffle"]
    assert command.main([*names, "--out", str(file)]) == 1
    assert measured == ["pixel-shuffle"]
    assert "pixel-shuffle: E: x" in capsys.readouterr().out
    assert command.main([names[0], "--out", str(file)]) == 0
    assert command.main([names[0], "--train", "--minutes", "0", "--out", str(file)]) == 0
    assert measured == ["pixel-shuffle"]
    assert len(read(file)) == 2


def test_the_page_has_a_row_for_each_measurement(tmp_path):
    file, written = tmp_path / "lines", tmp_path / "page.md"
    stopped = Measurement("pixel-shuffle", "train", "inductor", stopped="killed")
    for each in (MEASURED, stopped):
        append(file, each)
    assert command.main(["--out", str(file), "--write", str(written)]) == 0
    lines = written.read_text().splitlines()
    assert [line for line in lines if line.startswith("## ")] == [
        f"## {MEASURED.backend}, {MEASURED.mode}",
        "## inductor, train",
    ]
    for each in (MEASURED, stopped):
        (row,) = (line for line in lines if line.startswith(f"| {each.name} |"))
        assert row.count(" |") == 6
    assert row.endswith("| killed |")


def test_a_page_needs_measurements(tmp_path, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["--write", str(tmp_path / "page.md")])
    assert ended.value.code == 2
    assert "--out FILE" in capsys.readouterr().err


def test_the_command_refuses_a_kind_that_is_not_there(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["no-kind"])
    assert ended.value.code == 2
    assert "no kind called no-kind" in capsys.readouterr().err
