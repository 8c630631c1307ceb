"""What a user asks of Dynamo holds for patched code as for other code."""

from __future__ import annotations

import io
import logging
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

LOGGER = logging.getLogger("tests.settings_of_dynamo")
INPUTS = [torch.ones(3), torch.zeros(3), torch.ones(4), torch.ones(3)]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _program(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 3:
        y = y + 1
    return y


class _Runs:
    """A back end that counts how often its graphs run."""

    count = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            self.count += 1
            return graph.forward(*arguments)

        return run


@pytest.mark.parametrize(
    ("stance", "runs"), [("default", 4), ("force_eager", 1), ("eager_on_recompile", 3)]
)
def test_a_stance_is_obeyed(stance: str, runs: int) -> None:
    """The first call compiles a graph; the third has another shape, and would be compiled anew."""
    expected = [_program(x) for x in INPUTS]
    backend = _Runs()
    compiled = torch.compile(bcmend.patch(_program), backend=backend, dynamic=False)
    results = [compiled(INPUTS[0])]
    with torch.compiler.set_stance(stance):
        results += [compiled(x) for x in INPUTS[1:]]
    assert backend.count == runs
    for result, other in zip(results, expected, strict=True):
        assert torch.equal(result, other)


def test_a_stance_that_forbids_recompilation_is_obeyed() -> None:
    backend = _Runs()
    compiled = torch.compile(bcmend.patch(_program), backend=backend, dynamic=False)
    compiled(INPUTS[0])
    with torch.compiler.set_stance("fail_on_recompile"):
        compiled(INPUTS[1])
        with pytest.raises(RuntimeError, match="fail_on_recompile"):
            compiled(INPUTS[2])
    assert backend.count == 2


def _inner(x: Tensor) -> Tensor:
    return _program(x) - 1


@pytest.mark.parametrize("recursive", [True, False])
def test_disabled_code_is_not_compiled(recursive: bool) -> None:
    """Without ``recursive``, what the disabled function calls is compiled on its own."""
    expected = [_inner(x) for x in INPUTS]
    backend = _Runs()
    bcmend.patch(_inner)
    disabled = torch.compiler.disable(_inner, recursive=recursive)

    def root(x: Tensor) -> Any:
        return disabled(x)

    compiled = torch.compile(root, backend=backend, dynamic=False)
    for x, other in zip(INPUTS, expected, strict=True):
        assert torch.equal(compiled(x), other)
    assert backend.count == (0 if recursive else 4)


def _logs(x: Tensor) -> Tensor:
    x = x + 1
    LOGGER.warning("large")
    return x * 2 if x.sum() > 1 else x


@pytest.mark.parametrize("is_ignored", [True, False])
def test_functions_that_are_to_be_ignored_are(
    is_ignored: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(LOGGER, "handlers", [logging.StreamHandler(stream)])
    ignored = {logging.Logger.warning, LOGGER.warning} if is_ignored else set()
    backend = _Runs()
    with torch._dynamo.config.patch(ignore_logging_functions=ignored):
        compiled = torch.compile(bcmend.patch(_logs), backend=backend, fullgraph=True)
        assert torch.equal(compiled(INPUTS[0]), torch.full((3,), 4.0))
    assert backend.count == 1
    assert stream.getvalue() == ("" if is_ignored else "large\n")
