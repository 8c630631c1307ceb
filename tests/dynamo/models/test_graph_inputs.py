"""Inputs of the graph that code in front of it makes."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch

from bcmend.dynamo import compat
from bcmend.dynamo.models import graph_inputs


def test_an_input_knows_its_source_and_a_tensor_like_those_it_gets() -> None:
    asked: list[Any] = []
    proxy = SimpleNamespace(node=SimpleNamespace(meta={}))

    def create(*given: Any, source: Any) -> Any:
        asked.append((*given, source))
        return proxy

    output: Any = SimpleNamespace(root_tracer=SimpleNamespace(create_graph_input=create))
    source, given = compat.GlobalSource("plan"), torch.ones(2)
    with compat.FakeTensorMode():
        example = torch.zeros(2)
    assert graph_inputs.new_input(output, "made", source, given, example) is proxy
    assert asked == [("made", torch.Tensor, example, source)]
    argument = proxy.node.meta["grapharg"]
    assert argument.source is source and argument.example is given and argument.is_tensor
