"""Code that Dynamo does not compile."""

from __future__ import annotations

import pytest
import torch

from bcmend.dynamo import compat, plain_python


def _callback() -> object:
    return compat.get_eval_frame_callback()


def test_a_function_runs_without_a_callback_and_the_callback_is_back_behind_it() -> None:
    seen: list[object] = []

    def outer(x: torch.Tensor) -> torch.Tensor:
        return x

    def callback(*arguments: object) -> object:
        return compat.ConvertFrameReturn()

    before = compat.set_eval_frame(callback)
    try:
        seen.append(plain_python.run(_callback))
        seen.append(_callback())
    finally:
        compat.set_eval_frame(before)
    assert seen[0] is None and seen[1] is callback


def test_the_callback_is_back_behind_an_exception() -> None:
    before = _callback()
    with pytest.raises(ZeroDivisionError):
        plain_python.run(lambda: 1 // 0)
    assert _callback() is before


def test_arguments_and_results_pass_through() -> None:
    assert plain_python.run(divmod, 7, 2) == (3, 1)


def _skipped(x: torch.Tensor) -> torch.Tensor:
    return x + 1


def test_dynamo_skips_what_it_is_told_to_skip() -> None:
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    plain_python.have_dynamo_skip(_skipped)
    result = torch.compile(_skipped, backend=backend)(torch.ones(2))
    assert result.tolist() == [2.0, 2.0] and graphs == []
