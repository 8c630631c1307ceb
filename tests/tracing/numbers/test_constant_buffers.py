"""Numbers in buffers of modules are constants, as long as the buffers stay as they are."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

import bcmend
from bcmend.tracing.search import log
from bcmend.tracing.search.assumptions import Claim
from tests.equivalence import assert_equivalent, call, fresh

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class _Padded(nn.Module):
    """Pads to a whole number of steps, as codecs of sound do."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("stride", torch.tensor(4), persistent=False)
        self.register_buffer("kernel", torch.tensor(7), persistent=False)

    def forward(self, x: Tensor) -> Tensor:
        steps = (x.shape[-1] - self.kernel) / self.stride + 1
        length = (torch.ceil(steps).to(torch.int64) - 1) * self.stride + self.kernel
        extra = length - x.shape[-1]
        x = functional.pad(x, (0, extra), "reflect")
        if extra > 0:
            x = x + 1
        return x.unfold(-1, int(self.kernel), int(self.stride))[..., : self.stride].sum(-1)


class _Compiled:
    """A module compiled, and the graphs that were compiled for it."""

    def __init__(self, module: nn.Module) -> None:
        self.module, self.graphs = module, []  # type: tuple[nn.Module, list[Any]]
        own = type(module)  # with code that no other test has told anything of
        module.__class__ = type(own.__name__, (own,), {"forward": fresh(own.forward)})
        bcmend.patch(module)
        self._compiled = torch.compile(module, backend=self._compile, fullgraph=True)

    def _compile(self, graph: torch.fx.GraphModule, inputs: Any) -> Any:
        self.graphs.append(graph)
        return graph.forward

    def agrees(self, *given: Tensor) -> bool:
        """Return whether a call equals one without bcmend, and leaves the same buffers."""
        eager, arguments = copy.deepcopy((self.module, given))
        expected = eager(*arguments)
        after = dict(eager.named_buffers())
        is_equal = torch.equal(self._compiled(*given), expected)
        return is_equal and all(
            torch.equal(each, after[name]) for name, each in self.module.named_buffers()
        )

    @property
    def takes_numbers(self) -> bool:
        """Return whether the last graph takes a number out of a tensor."""
        return any(node.target == "item" for node in self.graphs[-1].graph.nodes)


X = torch.arange(20.0).reshape(2, 10)


def test_what_is_computed_of_buffers_is_known() -> None:
    compiled = _Compiled(_Padded())
    assert compiled.agrees(X)
    assert compiled.agrees(-X)
    assert len(compiled.graphs) == 1
    assert not compiled.takes_numbers


class _Sliced(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("length", torch.tensor([3]))

    def forward(self, x: Tensor) -> Tensor:
        return x.new_ones(int(self.length)) * x.sum()


@pytest.mark.parametrize("by_other_means", [False, True])
def test_a_buffer_that_changes_between_calls(by_other_means: bool) -> None:
    compiled = _Compiled(_Sliced())
    assert compiled.agrees(X)
    assert not compiled.takes_numbers
    for length in (5, 6, 3):
        buffer: Any = compiled.module.length
        (buffer.data if by_other_means else buffer).fill_(length)
        assert compiled.agrees(X)
    assert compiled.takes_numbers
    assert len(compiled.graphs) == 2, "the numbers are data-dependent from then on"


def test_a_buffer_that_is_replaced() -> None:
    compiled = _Compiled(_Sliced())
    assert compiled.agrees(X)
    for length in (5, 6, 3):
        compiled.module.length = torch.tensor([length])
        assert compiled.agrees(X)
    assert len(compiled.graphs) == 2, "the numbers are data-dependent from then on"


class _Chain(nn.Module):
    def __init__(self, length: int) -> None:
        super().__init__()
        self.inner = _Sliced()
        self.inner.length.fill_(length)

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(x) * 2


def test_another_module_has_constants_of_its_own() -> None:
    one, other = _Compiled(_Chain(3)), _Compiled(_Chain(5))
    for each in (one, other, one, other):
        assert each.agrees(X)
    assert not one.takes_numbers
    assert not other.takes_numbers


class _Counts(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("length", torch.tensor(3))

    def forward(self, x: Tensor) -> Tensor:
        ones = x.new_ones(int(self.length))
        self.length += 1
        return ones * x.sum()


class _Counted(_Counts):
    def forward(self, x: Tensor) -> Tensor:
        self.length += 1
        return x.new_ones(int(self.length)) * x.sum()


class _Replaces(_Counts):
    def forward(self, x: Tensor) -> Tensor:
        ones = x.new_ones(int(self.length))
        self.length = self.length + 1
        return ones * x.sum()


@pytest.mark.parametrize("make", [_Counts, _Counted, _Replaces])
def test_a_buffer_that_the_call_changes_itself(make: type[nn.Module]) -> None:
    compiled = _Compiled(make())
    for _ in range(3):
        assert compiled.agrees(X)
    assert compiled.takes_numbers
    assert len(compiled.graphs) == 1


class _Due(_Counts):
    """Does something at each fourth call, as what is drawn anew now and then."""

    def forward(self, x: Tensor) -> Tensor:
        if self.length >= 4:
            x = x * 2
            self.length.zero_()
        else:
            self.length += 1
        for _ in range(3):
            x = x.sin()
        return x


class _Begun(_Due):
    """Sets a flag once."""

    def forward(self, x: Tensor) -> Tensor:
        if self.length == 3:
            x = x * 2
            self.length.fill_(5)
        for _ in range(3):
            x = x.sin()
        return x


@pytest.mark.parametrize("make", [_Due, _Begun])
def test_a_trace_ends_where_it_has_changed_a_buffer(make: type[nn.Module]) -> None:
    compiled = _Compiled(make())
    code = type(compiled.module).forward.__code__
    for _ in range(6):
        assert compiled.agrees(X)
    (found,) = (
        trace
        for trace in log.traces([code])
        if any(each.claim is Claim.CONSTANT for each in trace.findings)
    )
    assert found.line is not None
    assert found.line - code.co_firstlineno < 6


def test_a_buffer_that_is_changed_by_another_name() -> None:
    class Net(_Sliced):
        def forward(self, x: Tensor, other: Tensor) -> Tensor:
            other.add_(1)
            return super().forward(x)

    net = Net()
    assert isinstance(net.length, Tensor)
    view = net.length.view(())
    compiled = _Compiled(net)
    assert compiled.agrees(X, view)
    assert compiled.takes_numbers


def test_an_argument_is_not_known() -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor, length: Tensor) -> Tensor:
            return x.new_ones(int(length)) * x.sum()

    compiled = _Compiled(Net())
    assert compiled.agrees(X, torch.tensor(3))
    assert compiled.agrees(X, torch.tensor(4))


class _Initialised(nn.Module):
    """Refuses to go backwards before it has seen something, as ActNorm does."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("initialised", torch.tensor(0, dtype=torch.uint8))

    def forward(self, x: Tensor, reverse: bool) -> Tensor:
        if reverse:
            if self.initialised.item() == 0:
                raise RuntimeError("nothing was seen so far")
            return x / 2
        if self.initialised.item() == 0:
            self.initialised.fill_(1)
        return x * 2


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_check_that_fails_for_what_a_buffer_holds_at_first(fullgraph: bool) -> None:
    calls = [call(X, each) for each in (True, True, False, True)]
    assert_equivalent(
        _Initialised, lambda: calls, fullgraph=fullgraph, graphs=None, recompiles=None
    )
