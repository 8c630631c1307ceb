"""Recurrent layers in mended code: one graph where one is asked for, as they were elsewhere."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported

import bcmend
from bcmend.dynamo import compat
from bcmend.tracing.recurrent import layers
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import during_trace


class _Net(nn.Module):
    layer: Any = nn.LSTM

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.recurrent = self.layer(3, 4, **options)
        self.out = nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * 2
        h, _ = self.recurrent(x)
        return self.out(h).relu()


class _Gru(_Net):
    layer = nn.GRU


class _Rnn(_Net):
    layer = nn.RNN


class _InAnArm(_Net):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.out(self.recurrent(x)[0])
        return x * 2


def _inputs() -> list[Call]:
    x = torch.linspace(-1.0, 2.0, 30).reshape(5, 2, 3)
    return [call(x), call(-x)]


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", [_Net, _Gru, _Rnn])
def test_one_graph(make: Any, training: bool) -> None:
    assert_equivalent(make, _inputs, training=training, zero_gradients=True)


def test_in_an_arm_without_gradients() -> None:
    assert_equivalent(_InAnArm, _inputs, may_copy=True)


def test_in_an_arm_with_gradients() -> None:
    assert_equivalent(_InAnArm, _inputs, training=True, may_copy=True)


def _compile(net: nn.Module, *, fullgraph: bool) -> list[torch.fx.Graph]:
    """Return the graphs that one call of a patched module takes."""
    graphs = []

    def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
        graphs.append(module.graph)
        return module.forward

    bcmend.patch(net)
    try:
        torch.compile(net, backend=backend, fullgraph=fullgraph)(_inputs()[0].arguments[0])
    finally:
        bcmend.unpatch(net)
        torch._dynamo.reset()
    return graphs


def _has_steps(graph: torch.fx.Graph) -> bool:
    return any(getattr(node.target, "__name__", "") == "lstm" for node in graph.nodes)


def test_where_graphs_may_break_they_do() -> None:
    assert not any(map(_has_steps, _compile(_Net(), fullgraph=False)))
    assert any(map(_has_steps, _compile(_Net(), fullgraph=True)))
    assert not torch._dynamo.config.allow_rnn


def test_dropout_between_layers_is_left_alone() -> None:
    with pytest.raises(Unsupported):
        _compile(_Net(num_layers=2, dropout=0.5), fullgraph=True)


class _UnderAutocast(_Net):
    def forward(self, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return self.recurrent(x)[0]  # type: ignore[no-any-return]


def test_not_under_autocast() -> None:
    """AOTAutograd would compute the steps of an LSTM in other dtypes, or fail at them."""
    net = bcmend.patch(_UnderAutocast())
    try:
        with pytest.raises(Unsupported, match="RNN, GRU, or LSTM"):
            torch.compile(net, backend="aot_eager", fullgraph=True)(_inputs()[0].arguments[0])
    finally:
        bcmend.unpatch(net)


class _UntilItIsLarge(_Net):
    def forward(self, x: Tensor) -> Tensor:
        turns = 0
        while True:
            x = self.out(self.recurrent(x)[0])
            turns += 1
            if turns >= 3 or x.mean() > 0.05:
                return x


def test_in_a_loop_that_the_data_end_with_gradients() -> None:
    assert_equivalent(_UntilItIsLarge, _inputs, training=True, may_copy=True)


class _Decoder(nn.Module):
    """Words one after the other, until one ends the sentence; a draw says who gives the next."""

    layer: Any = nn.GRU

    def __init__(self, **options: Any) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.words = nn.Embedding(5, 6)
        self.recurrent = self.layer(6, 6, **options)
        self.out = nn.Linear(6, 5)

    def forward(self, state: Any, target: Tensor) -> Any:
        loss, word, words = torch.zeros(()), torch.tensor([[0]]), []
        is_told = random.random() < 0.5
        for place in range(target.size(0)):
            found, state = self.recurrent(self.words(word).view(1, 1, -1), state)
            scores = self.out(found[0])
            loss = loss + nn.functional.cross_entropy(scores, target[place].view(1))
            if is_told:
                word = target[place].view(1, 1)
                continue
            word = scores.argmax(-1).view(1, 1)
            words.append(word.item())
            if word.item() == 1:
                break
        return loss, words


class _LstmDecoder(_Decoder):
    layer = nn.LSTM


def _states(count: int, *, pairs: bool = False) -> list[Call]:
    torch.manual_seed(1)
    drawn = [3 * torch.randn(2, count, 1, 6) for _ in range(6)]
    states = [(each[0], each[1]) if pairs else each[0] for each in drawn]
    return [call(each, torch.tensor([2, 4, 3, 1])) for each in states]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_until_the_data_end_a_loop_whose_layer_gets_gradients(backend: str) -> None:
    assert_equivalent(_Decoder, lambda: _states(1), training=True, backend=backend)


@pytest.mark.parametrize("options", [{"batch_first": True}, {"num_layers": 2}])
def test_layers_of_several_kinds_in_an_arm(options: dict[str, Any]) -> None:
    count = options.get("num_layers", 1)
    assert_equivalent(
        lambda: _LstmDecoder(**options), lambda: _states(count, pairs=True), training=True
    )


@pytest.mark.slow
def test_inductor_in_arms() -> None:
    assert_equivalent(_Decoder, lambda: _states(1), training=True, backend="inductor")


@pytest.mark.parametrize(
    ("layer", "is_traced"),
    [
        (nn.GRU(2, 2), True),
        (nn.LSTM(2, 2, num_layers=2), True),
        (nn.RNN(2, 2, num_layers=2, dropout=0.5).eval(), True),
        (nn.RNN(2, 2, num_layers=2, dropout=0.5), False),
    ],
)
def test_which_layers_are_traced(layer: nn.RNNBase, is_traced: bool) -> None:
    assert during_trace(lambda tx, x: layers._is_traced(tx, layer), torch.ones(1)) is is_traced


def test_a_layer_under_autocast_is_not_traced(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> Any:
        with monkeypatch.context() as patch:
            patch.setattr(compat, "_is_any_autocast_enabled", lambda: True)
            return layers._is_traced(tx, nn.GRU(2, 2))

    assert during_trace(body, torch.ones(1)) is False


def test_a_layer_in_code_that_is_not_mended_is_not_traced() -> None:
    def body(tx: Any, x: Any) -> Any:
        return layers._is_traced(tx, nn.GRU(2, 2))

    assert during_trace(body, torch.ones(1), is_mended=False) is False
