"""The running statistics of a norm change, although torch does not count that."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses import FakeTensorMode
from torch.nn import functional

import bcmend
from bcmend.tracing.effects import change_counts
from corpus.patterns.pattern import signs
from tests.equivalence import assert_equivalent, call


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


class _Statistics(nn.Module):
    def __init__(self, norm: nn.Module) -> None:
        super().__init__()
        self.norm: Any = norm


class _Shown(_Statistics):
    def forward(self, x: Tensor) -> Any:
        print("before", self.norm.running_mean)
        x = self.norm(x)
        print("after", self.norm.running_mean, self.norm.running_var.sum().item())
        return x


class _ShownInAnArm(_Statistics):
    def forward(self, x: Tensor) -> Any:
        if x.sum() < 100:
            print("before", self.norm.running_mean)
            x = self.norm(x)
            print("after", self.norm.running_mean.sum().item())
        return x


class _ShownAsParts(_Statistics):
    def forward(self, x: Tensor) -> Any:
        first = self.norm.running_mean[:1]
        print("before", first, {"all": self.norm.running_var.detach()})
        mean, var = self.norm.running_mean, self.norm.running_var
        y = torch.batch_norm(x, None, None, mean, var, True, 0.5, 1e-5, False)
        z = functional.batch_norm(x, running_mean=mean, running_var=var, training=True)
        print("after", first)
        return y + z


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", [_Shown, _ShownInAnArm, _ShownAsParts])
def test_statistics_are_shown_as_they_were(
    kind: type[_Statistics], backend: str, *, training: bool
) -> None:
    def inputs() -> list[Any]:
        return [call(torch.arange(6.0).reshape(2, 3) * scale) for scale in (1, -2, 20)]

    assert_equivalent(
        lambda: kind(nn.BatchNorm1d(3)),
        inputs,
        backend=backend,
        training=training,
        may_copy=True,
        zero_gradients=True,
    )


def test_statistics_of_an_instance_norm() -> None:
    def inputs() -> list[Any]:
        return [call(torch.arange(12.0).reshape(1, 3, 4) * scale) for scale in (1, -2)]

    def make() -> nn.Module:
        return _Shown(nn.InstanceNorm1d(3, track_running_stats=True))

    assert_equivalent(make, inputs)


def test_nothing_is_copied_in_evaluation() -> None:
    class Shown(_Statistics):
        def forward(self, x: Tensor) -> Any:
            print("before", self.norm.running_mean)
            return self.norm(x)

    model = Shown(nn.BatchNorm1d(3)).eval()
    bcmend.compile(model, backend="eager", fullgraph=True)(torch.ones(2, 3))
    assert [site.clone_bytes for site in bcmend.report(model).sites] == [0]


def _by_data() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        print("before", y, y.max())
        z = y if x.sum() > 0 else y + 1
        y.data.add_(100)
        y.data[0] = 7
        return z + y

    return program


def _by_data_between_statements() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            print("before", y.max())
            y.data.clamp_(max=1)
            print("after", y.max())
        return y

    return program


def _by_a_list() -> Any:
    def program(x: Tensor) -> Tensor:
        y, z = x * 2, x * 3
        print("before", y)
        if x.sum() > 0:
            print("taken", z.max())
        torch._foreach_add_([y, z], 100.0)
        return y + z

    return program


def _by_an_operator() -> Any:
    def program(x: Tensor) -> Tensor:
        mean, var = torch.zeros(3), torch.ones(3)
        print("before", mean, var)
        rows = x.expand(2, 3) * torch.tensor([[1.0], [2.0]])
        normal = torch.ops.aten.native_batch_norm(rows, None, None, mean, var, True, 0.5, 1e-5)
        print("after", mean, var)
        return normal[0]

    return program


@pytest.mark.parametrize(
    "make",
    [_by_data, _by_data_between_statements, _by_a_list, _by_an_operator],
    ids=lambda each: each.__name__[1:],
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_output_shows_what_was_there_before_the_change(make: Any, backend: str) -> None:
    assert_equivalent(make, signs, backend=backend, recompiles=None)


def test_a_count_that_is_raised_is_none_of_the_program() -> None:
    with FakeTensorMode():
        example = torch.ones(2)
        view = example[1:]
        example.add_(1)
        before = example._version
        change_counts.raise_count(view)
        assert example._version > before
        assert change_counts.counted(example) == change_counts.counted(view) == before
        example.add_(1)
        assert change_counts.counted(example) == before + 1
