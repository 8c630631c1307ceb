"""Functions that keep something of a size that the data decide: one operator, also in training."""

from __future__ import annotations

from typing import Any, Final

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import bcmend
from tests.equivalence import Call, assert_equivalent, call

_STEPS, _TEXTS, _LETTERS = 9, 3, 5


def lengths_as_tensors(x: Tensor, labels: Tensor) -> Tensor:
    """What recognisers of speech do: labels are padded with -100, and packed by a mask."""
    mask = labels >= 0
    probabilities = F.log_softmax(x, dim=-1, dtype=torch.float32)
    lengths = torch.full((_TEXTS,), _STEPS)
    return F.ctc_loss(
        probabilities,
        labels.masked_select(mask),
        lengths,
        mask.sum(-1),
        blank=4,
        reduction="mean",
        zero_infinity=True,
    )


def lengths_as_numbers(x: Tensor, labels: Tensor) -> Tensor:
    lengths = (labels >= 0).sum(-1).tolist()
    loss = torch.ctc_loss(x.log_softmax(-1), labels.clamp(0), [_STEPS] * _TEXTS, lengths, 4, 2)
    return loss * 2


def of_each_text(x: Tensor, labels: Tensor) -> Tensor:
    given = x.double().log_softmax(-1), labels.clamp(0), torch.full((_TEXTS,), _STEPS)
    return F.ctc_loss(*given, (labels >= 0).sum(-1), 4, "none") + x.sum()


def of_one_text(x: Tensor, labels: Tensor) -> Tensor:
    row, count = labels[0], (labels[0] >= 0).sum()
    return F.ctc_loss(x[:, 0].log_softmax(-1), row.clamp(0), torch.tensor(_STEPS), count, 4)


def in_an_arm(x: Tensor, labels: Tensor) -> Tensor:
    loss = x.square().mean()
    if (labels >= 0).any():
        loss = loss + lengths_as_tensors(x, labels)
    return loss


class Recogniser(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(_LETTERS, _LETTERS)
        self.loss = nn.CTCLoss(blank=4, zero_infinity=True)

    def forward(self, x: Tensor, labels: Tensor) -> Tensor:
        lengths = torch.full((_TEXTS,), _STEPS)
        found: Tensor = self.loss(
            self.layer(x).log_softmax(-1), labels.clamp(0), lengths, (labels >= 0).sum(-1)
        )
        return found


PROGRAMS: Final[dict[str, Any]] = {
    each.__name__: each
    for each in (lengths_as_tensors, lengths_as_numbers, of_each_text, of_one_text, in_an_arm)
}


def calls(*, gradients: bool = False) -> list[Call]:
    torch.manual_seed(2)
    labels = [
        torch.tensor([[0, 1, 2, 3], [1, 1, -100, -100], [2, -100, -100, -100]]),
        torch.tensor([[3, -100, -100, -100], [1, 2, 3, -100], [0, 0, 0, 0]]),
        torch.tensor([[0, 2, -100, -100], [-100, -100, -100, -100], [0, 1, 1, 1]]),
    ]
    shape = _STEPS, _TEXTS, _LETTERS
    return [call(torch.randn(*shape, requires_grad=gradients), each) for each in labels]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_loss_over_alignments_is_one_graph(name: str, training: bool, backend: str) -> None:
    assert_equivalent(
        lambda: PROGRAMS[name],
        lambda: calls(gradients=training),
        training=training,
        backend=backend,
        fullgraph=True,
    )


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_module_is_trained_with_it(fullgraph: bool) -> None:
    torch.manual_seed(0)
    assert_equivalent(Recogniser, calls, training=True, backend="inductor", fullgraph=fullgraph)


def test_what_the_function_does_not_take_is_told_as_in_eager_execution() -> None:
    def program(x: Tensor, labels: Tensor) -> Tensor:
        return F.ctc_loss(x, labels, torch.full((_TEXTS,), _STEPS + 1), (labels >= 0).sum(-1), 4)

    x, labels = torch.randn(_STEPS, _TEXTS, _LETTERS), torch.zeros(_TEXTS, 2, dtype=torch.long)
    with pytest.raises(RuntimeError) as of_eager:
        program(x, labels)
    mended = bcmend.patch(program)
    with pytest.raises(RuntimeError) as found:
        torch.compile(mended, backend="eager", fullgraph=True)(x, labels)
    assert str(found.value) == str(of_eager.value)


def test_types_that_it_does_not_take_are_left_to_torch() -> None:
    def program(x: Tensor, labels: Tensor) -> Tensor:
        return F.ctc_loss(x.half(), labels, torch.full((_TEXTS,), _STEPS), (labels >= 0).sum(-1), 4)

    x, labels = torch.randn(_STEPS, _TEXTS, _LETTERS), torch.zeros(_TEXTS, 2, dtype=torch.long)
    with pytest.raises(RuntimeError) as of_eager:
        program(x, labels)
    mended = bcmend.patch(program)
    with pytest.raises(RuntimeError) as found:
        torch.compile(mended, backend="eager")(x, labels)
    assert str(found.value) == str(of_eager.value)
