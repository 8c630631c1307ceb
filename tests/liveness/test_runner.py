"""A run finds hooks that torch passes by, and programs that differ from eager execution."""

from __future__ import annotations

from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat, hooks, operators
from bcmend.errors import BcmendError
from bcmend.liveness import loading, runner
from bcmend.liveness.program import Program, program

NAMED = {each.name: each for each in loading.programs()}
NEGATIVE = "nb_negative_impl"


def _ran(*programs: Program) -> runner.Ran:
    (found,) = runner.run(programs).ran
    return found


@program("TensorVariable.call_method")
def _branch() -> Callable[..., Any]:
    def body(x: Tensor) -> Any:
        return x + 1 if x.sum() > 0 else x - 1

    return body


@program("TensorVariable.call_method")
def _other_when_compiled() -> Callable[..., Any]:
    def body(x: Tensor) -> Any:
        return (x + 1 if x.sum() > 0 else x - 1) + torch.compiler.is_compiling()

    return body


def test_a_program_that_is_as_it_has_to_be() -> None:
    found = runner.run([_branch])
    (ran,) = found.ran
    assert (ran.difference, ran.not_called, ran.graphs) == ("", (), 1) and ran.is_right
    assert "operators[bcmend_branch]" in ran.called
    seen = {each.target: each.programs for each in found.seen if each.programs}
    assert seen == {"TensorVariable.call_method": ("_branch",)}
    assert not found.is_right  # most hooks are called by no program of this run


def test_a_difference_from_eager_execution() -> None:
    ran = _ran(_other_when_compiled)
    assert ran.difference.startswith("call 0: ") and not ran.is_right


def test_an_exception_of_the_compiler_is_a_difference() -> None:
    @program()
    def breaking() -> Callable[..., Any]:
        def body(x: Tensor) -> Any:
            return x + len(str(type(x).__mro__)) + torch.compiler.disable(int)(x[0])

        return body

    ran = _ran(breaking)
    assert "Unsupported" in ran.difference and ran.graphs == 0


def test_a_method_that_torch_does_not_call_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """As it would be if Dynamo called another method in place of the one that is replaced."""
    owner: Any = compat.SymNodeVariable
    of_torch = getattr(owner, NEGATIVE)

    def read(model: Any, name: str) -> Any:
        return (
            MethodType(of_torch, model)
            if name == NEGATIVE
            else object.__getattribute__(model, name)
        )

    target = f"SymNodeVariable.{NEGATIVE}"
    alive = NAMED["truths_in_arithmetic"]
    assert target in alive.proves and _ran(alive).is_right
    monkeypatch.setattr(owner, "__getattribute__", read, raising=False)
    found = runner.run([alive])
    (ran,) = found.ran
    assert target in ran.not_called and not ran.is_right
    assert [each.programs for each in found.seen if each.target == target] == [()]


def test_a_table_that_torch_does_not_read_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    copied = dict(operators.table(operators.FUNCTIONS))

    def table(name: str) -> Any:
        return copied if name == operators.FUNCTIONS else operators.table(name)

    monkeypatch.setattr(hooks, "table", table)
    assert {"functions[equal]", "functions[allclose]"} <= set(_ran(NAMED["questions"]).not_called)


def test_nothing_is_counted_while_anything_is_patched() -> None:
    def body(x: Tensor) -> Tensor:
        return x + 1

    with bcmend.patched(body), pytest.raises(BcmendError, match="while anything is patched"):
        runner.run([_branch])


def test_all_is_as_before_a_run() -> None:
    registry = hooks.REGISTRY
    names = ("hooks", "watches", "rows", "subclasses", "caches")
    before = [getattr(registry, name) for name in names]
    numbers = torch.get_rng_state()
    runner.run([_branch])
    assert all(getattr(registry, name) is one for name, one in zip(names, before, strict=True))
    assert torch.equal(torch.get_rng_state(), numbers)
    assert not (registry.depth or registry.armed or registry.watching)
