"""Models that ask whether they are being compiled, or for the default device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.policy import CompilingPolicy
from tests.patching.test_late import Counting

X = torch.tensor([1.0, 2.0, 3.0])
LARGE = X * 100


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _is_compiling() -> bool:
    """As libraries ask, for releases of torch that have it elsewhere."""
    try:
        return torch.compiler.is_compiling()
    except AttributeError:
        return False


def raises(x: Tensor, mask: Tensor | None = None) -> Tensor:
    if not _is_compiling() and mask is None:
        mask = torch.ones_like(x)
    return x * mask[0]  # type: ignore[index]


def breaks(x: Tensor) -> Tensor:
    if torch.compiler.is_dynamo_compiling():
        return x * torch.tensor(open("/dev/null").fileno() * 0 + 2)
    return x * 2


def checks(x: Tensor) -> Tensor:
    if not torch.compiler.is_compiling() and (x > 100).any():
        raise ValueError("large")
    return x * 2


def branches(x: Tensor) -> Tensor:
    if torch.compiler.is_compiling():
        return x + 1
    return x + 1 if x.sum() > 0 else x - 1


def both_break(x: Tensor) -> Tensor:
    x = x + 1
    number = open("/dev/null").fileno() * 0
    if torch.compiler.is_compiling():
        return x * 2 + number
    torch._dynamo.graph_break()
    x = x * 2
    torch._dynamo.graph_break()
    return x + number


@pytest.mark.parametrize("program", [raises, breaks])
def test_what_cannot_be_captured_compiled_is_captured_as_in_eager_execution(
    program: Callable[..., Tensor],
) -> None:
    backend = Counting()
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    for _ in range(2):
        graphs, result = backend.in_call(compiled)
        assert graphs == 1 and torch.equal(result, program(torch.ones(3)))
    assert torch.equal(compiled(X), program(X))
    assert "told that it is not" in str(bcmend.why(program))


def test_what_is_captured_is_as_on_torch_alone() -> None:
    compiled = torch.compile(bcmend.patch(checks), backend="eager", fullgraph=True)
    assert torch.equal(compiled(LARGE), LARGE * 2)
    backend = Counting()
    compiled = torch.compile(bcmend.patch(branches), backend=backend)
    assert backend.in_call(compiled)[0] == 1
    assert not bcmend.report(branches).sites


@pytest.mark.parametrize(("chosen", "is_raised"), [("eager", True), ("compiled", False)])
def test_a_policy_says_which_path_is_taken(chosen: CompilingPolicy, is_raised: bool) -> None:
    policy = bcmend.Policy(compiling=chosen)
    compiled = torch.compile(
        bcmend.patch(checks, policy=policy), backend="eager", fullgraph=chosen == "eager"
    )
    assert torch.equal(compiled(X), X * 2)
    if is_raised:
        with pytest.raises(ValueError, match="large"):
            compiled(LARGE)
    else:
        assert torch.equal(compiled(LARGE), LARGE * 2)


def test_a_policy_that_says_compiled_keeps_what_torch_does() -> None:
    policy = bcmend.Policy(compiling="compiled")
    compiled = torch.compile(bcmend.patch(raises, policy=policy), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        compiled(X)


def test_where_neither_path_is_captured_the_graph_breaks_as_on_torch_alone() -> None:
    def runs(prepared: Callable[[Any], Any]) -> tuple[int, Tensor]:
        torch._dynamo.reset()
        backend = Counting()
        compiled = torch.compile(prepared(both_break), backend=backend)
        backend.in_call(compiled)
        return backend.in_call(compiled)

    stock, expected = runs(lambda program: program)
    mended, result = runs(bcmend.patch)
    assert mended <= stock and torch.equal(result, expected)


def on_the_default_device(x: Tensor) -> Tensor:
    return torch.ones(3, device=torch.get_default_device()).to(x.dtype)


def inside_of_a_mode(x: Tensor) -> Tensor:
    with torch.device("meta"):
        device = torch.get_default_device()
    return torch.ones(3, device=device)


def test_the_default_device_is_known_and_another_is_another_variant() -> None:
    backend = Counting()
    compiled = torch.compile(bcmend.patch(on_the_default_device), backend=backend, fullgraph=True)
    assert backend.in_call(compiled)[0] == 1
    assert compiled(X).device.type == "cpu"
    bcmend.unpatch()
    bcmend.patch(on_the_default_device)
    compiled = torch.compile(on_the_default_device, backend="eager")
    for device in ("meta", "cpu"):
        with torch.device(device):
            assert compiled(X).device.type == device
    assert compiled(X).device.type == "cpu"


def test_a_default_device_that_the_code_sets_is_left_to_torch() -> None:
    compiled = torch.compile(bcmend.patch(inside_of_a_mode), backend="eager")
    assert compiled(X).device == inside_of_a_mode(X).device
