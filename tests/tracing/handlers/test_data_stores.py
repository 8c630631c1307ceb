"""Stores to ``tensor.data`` in arms: parameters and buffers that the first batch initialises."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import bcmend
from tests.differences_of_torch import STORES_TO_DATA_ARE_NOTED
from tests.equivalence import Call, assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Initialised(nn.Module):
    """Scales and shifts by what the first batch says, in the way of its ``form``."""

    def __init__(self, form: str = "new") -> None:
        super().__init__()
        self.form, self.layer = form, nn.Linear(4, 4)
        self.scale, self.shift = nn.Parameter(torch.ones(4)), nn.Parameter(torch.zeros(4))
        self.register_buffer("initialised", torch.tensor(False))
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, x: Tensor) -> Tensor:
        x = self.layer(x)
        if not self.initialised:
            self._initialise(x)
            self.initialised.data = torch.tensor(True)
        return x * torch.exp(self.scale) + self.shift + self.mean

    def _initialise(self, x: Tensor) -> None:
        if self.form == "without gradients":
            with torch.no_grad():
                self.scale.data = -torch.log(x.std(0))
                self.shift.data = -x.mean(0)
        elif self.form == "with gradients":
            deviation = -torch.log(x.std(0))
            self.scale.data = deviation.data
            self.shift.data = (x.mean(0) * torch.exp(self.scale)).data
        elif self.form == "of itself":
            self.mean.data = 0.9 * self.mean.data + 0.1 * x.detach().mean(0)
            self.scale.data *= 1.5
            self.scale.data = self.scale.data + self.mean
        elif self.form == "stored elsewhere":
            self.mean = x.detach().mean(0)
            self.shift.data = self.mean
        elif self.form == "changed later":
            value = x.detach().mean(0)
            self.shift.data = value
            value.mul_(2)
        elif self.form == "changed itself later":
            value = x.detach().mean(0)
            self.shift.data = value
            self.shift.data.mul_(2)
            self.scale.data += value
        elif self.form == "read before":
            before = self.shift.data
            self.shift.data = x.detach().mean(0)
            self.scale.data += before
        elif self.form == "another form":
            self.mean.data = x.detach()[:1] * 2
        elif self.form == "from outside":
            self.shift.data = self.mean


def _calls() -> list[Call]:
    torch.manual_seed(3)
    return [call(torch.randn(5, 4)) for _ in range(3)]


_WRITTEN = ["without gradients", "with gradients", "of itself"]


@pytest.mark.parametrize("form", _WRITTEN)
def test_parameters_that_the_first_batch_initialises(form: str) -> None:
    assert_equivalent(lambda: Initialised(form), _calls, training=True)


@pytest.mark.parametrize("form", _WRITTEN)
def test_a_back_end_traces_the_backward(form: str) -> None:
    assert_equivalent(lambda: Initialised(form), _calls, training=True, backend="aot_eager")


@pytest.mark.parametrize("form", _WRITTEN)
def test_without_gradients(form: str) -> None:
    assert_equivalent(lambda: Initialised(form), _calls)


@pytest.mark.slow
def test_with_inductor() -> None:
    assert_equivalent(
        lambda: Initialised("with gradients"), _calls, training=True, backend="inductor"
    )


#: What is said first where torch notes the store.
_NOTED = "an input gets the data of another tensor" if STORES_TO_DATA_ARE_NOTED else ""
_OTHER_FORM = _NOTED or "a tensor gets another form in place"
_OTHER_MEMORY = _NOTED or "a tensor is changed in place, and the arm reads another of its memory"


@pytest.mark.parametrize(
    ("form", "reason"),
    [
        ("stored elsewhere", "a tensor gets the memory of another one that is used further"),
        ("changed later", "a tensor gets the memory of another one that is used further"),
        ("changed itself later", "a tensor gets the memory of another one that is used further"),
        ("read before", "a tensor gets the memory of another one that is used further"),
        ("another form", _OTHER_FORM),
        ("from outside", _OTHER_MEMORY),
    ],
)
def test_memory_that_can_be_told_apart(form: str, reason: str) -> None:
    torch.manual_seed(0)
    modules = [Initialised(form) for _ in range(2)]
    modules[1].load_state_dict(modules[0].state_dict())
    bcmend.patch(modules[1])
    compiled = torch.compile(modules[1], backend="eager")
    for each in _calls():
        assert torch.equal(modules[0](*each.arguments), compiled(*each.arguments))
    for one, other in zip(*(each.state_dict().values() for each in modules), strict=True):
        assert torch.equal(one, other)
    assert reason in [each.detail for each in bcmend.report(modules[1]).sites]
