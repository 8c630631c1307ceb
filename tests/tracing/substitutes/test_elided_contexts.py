"""Flags of cuDNN and locks: when a block needs neither, called directly; objects of a program."""

from __future__ import annotations

import functools
import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported
from torch._dynamo.variables import UserDefinedObjectVariable

import bcmend
from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import elided_contexts
from tests.equivalence import Call, assert_equivalent, call, fresh
from tests.tracing.in_trace import during_trace, substituted

X = torch.ones(2)


def _flags(tx: Any, **flags: Any) -> Any:
    given = {name: constant(value) for name, value in flags.items()}
    return elided_contexts._cudnn_flags(substituted(tx, "torch.backends.cudnn.flags", **given))


def _lock(tx: Any) -> Any:
    owner = constant("stands for the lock")
    return elided_contexts._lock(substituted(tx, "threading.Lock.__enter__", owner=owner))


def test_flags_hold_inside_the_block_alone() -> None:
    before = torch.backends.cudnn.benchmark

    def body(tx: Any, x: Any) -> Any:
        block = _flags(tx, benchmark=not before)
        block.enter(tx)
        x.call_method(tx, "add", [constant(1)], {})
        inside = torch.backends.cudnn.benchmark
        block.exit(tx)
        block.cleanup()
        return inside, torch.backends.cudnn.benchmark

    assert during_trace(body, X) == (not before, before)


def test_flags_that_torch_does_not_have_are_passed_on() -> None:
    assert during_trace(lambda tx, x: _flags(tx, colour=1), X) is PASS


def test_a_flag_that_is_no_constant_is_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        name = "torch.backends.cudnn.flags"
        with pytest.raises(Refusal, match="no constant"):
            elided_contexts._cudnn_flags(substituted(tx, name, x))

    during_trace(body, X)


@pytest.mark.parametrize("make", [_flags, _lock])
def test_a_block_is_refused_where_the_graph_may_break(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(tx: Any, x: Any) -> None:
        monkeypatch.setattr(elided_contexts, "_NEEDLESS", frozenset([origin_of(tx.f_code)]))
        with monkeypatch.context() as patch, pytest.raises(Refusal, match="inside the block"):
            patch.setattr(capture_mode, "in_mended_code", lambda tx: False)
            make(tx)

    during_trace(body, X)


@pytest.mark.parametrize(
    ("example", "is_on_cpu"),
    [
        (torch.ones(1), True),
        (torch.ones(1, device="meta"), False),
        ([torch.ones(1), (torch.ones(1, device="meta"),)], False),
        ((1, None, "cuda"), True),
        (None, True),
    ],
)
def test_where_an_example_lies(example: Any, is_on_cpu: bool) -> None:
    assert elided_contexts._is_on_cpu(example) is is_on_cpu


def test_the_lock_of_a_property_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def body(tx: Any, x: Any) -> Any:
        monkeypatch.setattr(elided_contexts, "_NEEDLESS", frozenset([origin_of(tx.f_code)]))
        block = _lock(tx)
        assert block.enter(tx).as_python_constant() is True
        return block.exit(tx).as_python_constant()

    assert during_trace(body, X) is None


def test_another_lock_is_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        with pytest.raises(Refusal, match="other threads"):
            _lock(tx)

    during_trace(body, X)


# Objects that were there before the call


class _Timer:
    """Counts how often it is entered, and keeps what left it."""

    def __init__(self, swallows: bool = False) -> None:
        self.entered = 0
        self.left: list[str] = []
        self.swallows = swallows

    def __enter__(self) -> _Timer:
        self.entered += 1
        return self

    def __exit__(self, kind: Any, *more: Any) -> bool:
        self.left.append("" if kind is None else kind.__name__)
        return self.swallows


class _Timed(nn.Module):
    def __init__(self, swallows: bool = False) -> None:
        super().__init__()
        self.timer, self.other = _Timer(swallows), _Timer(True)

    def forward(self, x: Tensor) -> Any:
        if x.sum() > 4:
            with self.timer:
                x = x * 2
        with self.other, self.timer as entered:
            if x.sum() < 0:
                raise ValueError(f"{x.sum().item()} is negative")
            x = x * entered.entered
        return x, self.timer.entered


def _calls() -> list[Call]:
    return [call(torch.ones(2) * each) for each in (1.0, -1.0, 5.0)]


@pytest.mark.parametrize("swallows", [True, False])
def test_an_object_is_entered_and_left_as_in_eager_execution(swallows: bool) -> None:
    assert_equivalent(lambda: _Timed(swallows), _calls, graphs=None, recompiles=None)


class _Averaged(nn.Module):
    """Has other weights for the length of a block."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.averaged = _Averages(self.layer.weight)

    def forward(self, x: Tensor) -> Any:
        with torch.no_grad(), self.averaged:
            teacher = self.layer(x)
        student = self.layer(x)
        return student.clamp(-1, 1) if (student - teacher).abs().max() > 1 else student, teacher


class _Averages:
    def __init__(self, weight: nn.Parameter) -> None:
        self.weight, self.shadow, self.kept = weight, torch.ones(2, 2), torch.empty(0)

    def __enter__(self) -> None:
        self.kept = self.weight.data.clone()
        self.weight.data.copy_(self.shadow)

    def __exit__(self, *why: Any) -> None:
        self.weight.data.copy_(self.kept)


def test_weights_are_changed_for_the_block_alone() -> None:
    assert_equivalent(_Averaged, _calls, training=True, graphs=None, recompiles=None)


class _Refusing(_Timer):
    def __enter__(self) -> _Timer:
        self.entered += 1
        if self.entered == 2:
            raise RuntimeError("the second time")
        return self


class _Refused(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.outer, self.inner = _Timer(swallows=True), _Refusing()

    def forward(self, x: Tensor) -> Any:
        with self.outer:
            if x.sum() > 0:
                x = x + 1
            with self.inner:
                x = x * 2
        return x, self.inner.entered


def test_a_block_that_cannot_be_entered() -> None:
    assert_equivalent(_Refused, _calls, fullgraph=False, graphs=None, recompiles=None)


def test_a_lock_is_still_a_break() -> None:
    lock = threading.Lock()

    def program(x: Tensor) -> Tensor:
        with lock:
            return x * 2 if x.sum() > 0 else x

    with bcmend.patched(program), pytest.raises(Unsupported):
        torch.compile(program, backend="eager", fullgraph=True)(X)


class Averaged(nn.Module):
    """A layer, and updates of an average under decorators that set the mode of autograd."""

    def __init__(self, form: str) -> None:
        super().__init__()
        self.form = form
        self.layer = nn.Linear(3, 3)
        self.register_buffer("mean", torch.zeros(3))

    @torch.set_grad_enabled(False)
    def update(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.mean.mul_(0.5).add_(x.mean(0))
        return x * self.mean

    @torch.set_grad_enabled(True)
    def scaled(self, x: Tensor) -> Tensor:
        return x * 2 if x.mean() > 0.1 else self.layer(x)

    @torch.set_grad_enabled(False)
    def nested(self, x: Tensor) -> tuple[Tensor, bool]:
        y = self.scaled(x)
        return y.detach(), torch.is_grad_enabled()

    def forward(self, x: Tensor) -> tuple[Any, ...]:
        y = self.layer(x)
        if self.form == "update":
            return y + self.update(y), self.update(y).requires_grad
        if self.form == "nested":
            return y, self.nested(y), torch.is_grad_enabled()
        if y.sum() > 0:
            y = y * self.nested(y)[0] + self.update(y)
        return y, torch.is_grad_enabled()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("form", ["update", "nested", "in an arm"])
def test_a_decorator_sets_grad_mode(form: str, backend: str, training: bool) -> None:
    rows = torch.arange(6.0).reshape(2, 3)
    assert_equivalent(
        lambda: Averaged(form),
        lambda: [call(each.clone()) for each in (rows, -rows, rows - 2)],
        backend=backend,
        training=training,
    )
    assert torch.is_grad_enabled()


class Twice(torch.set_grad_enabled):
    """A mode of another class, of which nothing is known."""


def test_a_mode_of_another_class_is_passed_on() -> None:
    def body(tx: Any, x: Any) -> Any:
        mode = Twice(True)
        owner = UserDefinedObjectVariable(mode)
        return elided_contexts._grad_mode(
            substituted(tx, "torch.set_grad_enabled.clone", owner=owner)
        )

    assert during_trace(body, X) is PASS


class _Asked:
    """Has a property that is computed at the first read; ``hasattr`` computes it."""

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)

    @functools.cached_property
    def scale(self) -> float:
        return 2.0


def _asks(x: Tensor, owner: _Asked) -> Tensor:
    y = x * 2 if hasattr(owner, "scale") else x
    return y + 1 if x.sum() > 0 else y


def _reads(x: Tensor, owner: _Asked) -> Tensor:
    return x * owner.scale if x.sum() > 0 else x


def test_a_lock_that_was_refused_is_asked_for_anew_after_the_last_unpatching() -> None:
    for program, fullgraph in ((_asks, False), (_reads, True)):
        torch._dynamo.reset()
        compiled = torch.compile(bcmend.patch(fresh(program)), backend="eager", fullgraph=fullgraph)
        for x in (torch.ones(2), -torch.ones(2)):
            assert torch.equal(compiled(x, _Asked()), program(x, _Asked()))
        bcmend.unpatch()
