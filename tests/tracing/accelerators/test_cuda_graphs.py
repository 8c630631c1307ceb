"""Graphs that CUDA graphs cannot hold: which they are, and what Inductor is told of them.

What becomes of them on a GPU, ``tests/gpu`` looks at.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch._inductor import config
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import Graph, GraphModule

import bcmend
from bcmend.tracing.accelerators.cuda_graphs import cannot_be_held


def takes_a_number(x: torch.Tensor) -> torch.Tensor:
    return x * int(x.abs().max())


def takes_none(x: torch.Tensor) -> torch.Tensor:
    if x.sum() > 0:
        x = x * 2
    return x - 1


def loops(x: torch.Tensor) -> torch.Tensor:
    while x.sum() < 9:
        x = x * 2
    return x


@pytest.mark.parametrize(
    ("program", "is_held"), [(takes_a_number, False), (loops, False), (takes_none, True)]
)
@pytest.mark.parametrize("training", [False, True])
def test_a_graph_with_numbers_of_data_or_a_loop_is_compiled_without(
    program: Callable[[torch.Tensor], torch.Tensor], is_held: bool, training: bool
) -> None:
    torch._dynamo.reset()
    seen: list[bool] = []
    told: list[Any] = []

    def backend(graph: GraphModule, inputs: Any) -> Any:
        told.append(graph.meta.get("cudagraph_annotation"))
        return torch._inductor.compile(graph, inputs)

    options = {
        "triton.cudagraphs": True,
        "force_disable_caches": True,
        "post_grad_custom_post_pass": lambda graph: seen.append(config.triton.cudagraphs),
    }
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    x = torch.tensor([1.0, 2.5, -2.0], requires_grad=training)
    try:
        with config.patch(options):
            result = compiled(x)
            if training:
                result.sum().backward()
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
    assert len(seen) >= 1 + training and set(seen) == {is_held}
    assert [each is None or each.fwd for each in told] == [is_held]


def _graph(device: str, *, shown: bool) -> GraphModule:
    """A graph over an argument on a device, which computes with zeros that are on the CPU."""
    graph = Graph()
    with FakeTensorMode():
        x = graph.placeholder("x")
        x.meta["example_value"] = torch.empty(3, device=device)
        zeros = graph.call_function(torch.zeros, ((),))
        zeros.meta["example_value"] = torch.empty((), device="cpu")
        total = graph.call_function(torch.add, (x, zeros))
        total.meta["example_value"] = torch.empty(3, device=device)
    graph.output((total, zeros) if shown else (total,))
    return GraphModule(torch.nn.Module(), graph)


@pytest.mark.parametrize(
    ("device", "shown", "expected"),
    [("cuda", True, True), ("cuda", False, False), ("cpu", True, False)],
)
def test_a_tensor_on_the_cpu_that_is_shown_stays_there(
    device: str, shown: bool, expected: bool
) -> None:
    assert cannot_be_held(_graph(device, shown=shown)) is expected
