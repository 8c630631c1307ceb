"""Packed sequences in one graph: their layers, their errors, and what is left to the break."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported
from torch.nn.utils.rnn import (
    PackedSequence,
    pack_padded_sequence,
    pack_sequence,
    pad_packed_sequence,
)

import bcmend
from tests.equivalence import Call, assert_equivalent, call

CLIPS, STEPS, WIDTH = 3, 5, 3


class _Net(nn.Module):
    """A recurrent layer over clips of several lengths, behind a check of these."""

    def __init__(
        self, layer: Any = nn.GRU, *, is_sorted: bool = False, total: int | None = None, **more: Any
    ) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer = layer(WIDTH, 4, **more)
        self.options = {"batch_first": self.layer.batch_first}
        self.is_sorted, self.total = is_sorted, total

    def forward(self, x: Tensor, lengths: Any) -> Any:
        if x.abs().max() > 50:
            raise ValueError(f"too large: {x.abs().max()}")
        packed = pack_padded_sequence(x, lengths, enforce_sorted=self.is_sorted, **self.options)
        found, state = self.layer(packed)
        padded, counts = pad_packed_sequence(found, total_length=self.total, **self.options)
        return padded, counts, state, packed.batch_sizes, packed.sorted_indices


def _inputs(of_lengths: Any = torch.tensor, *, batch_first: bool = False) -> Any:
    def make() -> list[Call]:
        sizes = (CLIPS, STEPS) if batch_first else (STEPS, CLIPS)
        x = torch.linspace(-1.0, 2.0, CLIPS * STEPS * WIDTH).reshape(*sizes, WIDTH)
        lengths = ([5, 3, 1], [2, 2, 1], [4, 4, 4], [1, 1, 1])
        return [call(x * (1 + place), of_lengths(each)) for place, each in enumerate(lengths)]

    return make


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    ("layer", "options"),
    [
        (nn.GRU, {}),
        (nn.LSTM, {"bidirectional": True, "num_layers": 2}),
        (nn.LSTM, {"proj_size": 2, "bias": False, "batch_first": True}),
        (nn.RNN, {"is_sorted": True}),
        (nn.RNN, {"nonlinearity": "relu", "total": 6, "batch_first": True, "num_layers": 2}),
    ],
)
def test_one_graph(layer: Any, options: dict[str, Any], training: bool) -> None:
    inputs = _inputs(batch_first=options.get("batch_first", False))
    assert_equivalent(lambda: _Net(layer, **options), inputs, training=training)


@pytest.mark.parametrize("training", [False, True])
def test_aot_autograd(training: bool) -> None:
    assert_equivalent(
        lambda: _Net(nn.LSTM, num_layers=2), _inputs(), training=training, backend="aot_eager"
    )


@pytest.mark.slow
@pytest.mark.parametrize("training", [False, True])
def test_inductor(training: bool) -> None:
    assert_equivalent(
        lambda: _Net(nn.LSTM, bidirectional=True), _inputs(), training=training, backend="inductor"
    )


class _OfNumbers(_Net):
    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        return super().forward(x, lengths.tolist())


def test_lengths_that_are_numbers_out_of_a_tensor() -> None:
    assert_equivalent(lambda: _OfNumbers(), _inputs(), training=True)


def test_lengths_of_another_type() -> None:
    assert_equivalent(lambda: _Net(), _inputs(lambda each: torch.tensor(each, dtype=torch.int32)))


class _OfList(_Net):
    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        clips = [x[:size, place] for place, size in enumerate((4, 2, 1))]
        return super().forward(x, [4, 2, 1]), self.layer(pack_sequence(clips))[1]


def test_lengths_that_are_known() -> None:
    assert_equivalent(lambda: _OfList(), _inputs())


class _Given(_Net):
    """Takes packed clips, and returns packed ones."""

    def forward(self, packed: PackedSequence, state: Tensor) -> Any:
        if packed.data.sum() > 0:
            state = state * 2
        found, state = self.layer(packed, state)
        return found, state, pad_packed_sequence(found)[0]


def _packed_inputs() -> list[Call]:
    made = []
    for each in _inputs()():
        x, lengths = each.arguments
        state = torch.linspace(-1.0, 1.0, CLIPS * 4).reshape(1, CLIPS, 4)
        made.append(call(pack_padded_sequence(x, lengths, enforce_sorted=False), state))
    return made


def test_packed_clips_as_argument_and_result() -> None:
    assert_equivalent(lambda: _Given(), _packed_inputs, graphs=None, recompiles=None)


class _ChosenLayer(_Net):
    def __init__(self) -> None:
        super().__init__(nn.GRU)
        self.other = nn.GRU(WIDTH, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        packed = pack_padded_sequence(x, lengths, enforce_sorted=False)
        if packed.data.mean() > 0:
            found, state = self.layer(packed)
        else:
            found, state = self.other(packed)
        return pad_packed_sequence(found), state


class _LeftEarly(_Net):
    def __init__(self) -> None:
        super().__init__(nn.GRU)
        self.other = nn.GRU(4, 4)

    def forward(self, x: Tensor, lengths: Tensor) -> Any:
        found = pack_padded_sequence(x, lengths, enforce_sorted=False)
        for layer in (self.layer, self.other):
            found = layer(found)[0]
            if found.data.abs().mean() < 0.35:
                break
        return pad_packed_sequence(found)[0]


def _signed_inputs() -> list[Call]:
    return [call(x * sign, lengths) for sign in (1, -1) for x, lengths in _arguments()]


def _arguments() -> list[tuple[Any, ...]]:
    return [each.arguments for each in _inputs()()]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [_ChosenLayer, _LeftEarly])
def test_layers_in_arms(make: Any, training: bool) -> None:
    assert_equivalent(make, _signed_inputs, training=training)


@pytest.mark.slow
def test_inductor_compiles_layers_in_arms() -> None:
    assert_equivalent(_ChosenLayer, _signed_inputs, training=True, backend="inductor")


@pytest.mark.parametrize(
    ("lengths", "options"),
    [
        ([3, 0, 1], {}),  # a clip without steps
        ([1, 3, 2], {"is_sorted": True}),
        ([3, 2, 6], {}),  # longer than there are steps
        ([3, 2, 4], {"total": 3}),
        ([3, 2], {}),  # not one for each clip
        ([3.0, 2.0, 1.0], {}),
    ],
)
def test_errors_are_those_of_eager_execution(lengths: list[Any], options: dict[str, Any]) -> None:
    def given() -> list[Call]:
        good = _inputs()()
        return [good[0], call(good[0].arguments[0], torch.tensor(lengths)), good[1]]

    assert_equivalent(lambda: _Net(**options), given, graphs=None, recompiles=None)


def test_a_check_comes_first() -> None:
    def given() -> list[Call]:
        (first, *_) = _inputs()()
        x, lengths = first.arguments
        return [first, call(x * 100, lengths * 0), call(x, lengths * 0)]

    assert_equivalent(lambda: _Net(), given, graphs=None, recompiles=None)


def test_dropout_between_layers_stays_at_the_break() -> None:
    net = bcmend.patch(_Net(num_layers=2, dropout=0.5))
    (first, *_) = _inputs()()
    with pytest.raises(Unsupported):
        torch.compile(net, backend="eager", fullgraph=True)(*first.arguments)
    assert_equivalent(
        lambda: _Net(num_layers=2, dropout=0.5),
        _inputs(),
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=True,
    )


def test_where_the_graph_may_break_nothing_changes() -> None:
    assert_equivalent(
        lambda: _Net(), _inputs(), fullgraph=False, graphs=None, recompiles=None, training=True
    )


def test_a_backward_of_the_backward_is_an_error() -> None:
    net = bcmend.patch(_Net())
    (first, *_) = _inputs()()
    x, lengths = first.arguments
    found = torch.compile(net, backend="eager", fullgraph=True)(x.requires_grad_(), lengths)[0]
    (gradient,) = torch.autograd.grad(found.square().sum(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="has no backward"):
        gradient.sum().backward()
