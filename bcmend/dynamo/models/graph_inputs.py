"""Inputs of the graph that the program does not give: code in front of the graph makes them."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat


@dataclass(frozen=True, eq=False)
class MadeBefore(compat.Source):
    """The source of what ``reconstruct`` makes just before the graph runs, called as a global."""

    plan_name: str

    @property
    def guard_source(self) -> compat.GuardSource:
        return compat.GuardSource.GLOBAL

    @property
    def _name_template(self) -> str:
        return f"G[{self.plan_name!r}]"


def add(
    output: compat.OutputGraph,
    name: str,
    source: compat.Source,
    given: torch.Tensor,
    example: torch.Tensor,
) -> Proxy:
    """Return a new input of the graph of a frame.

    Args:
        given: a tensor like those that the graph will get.
        example: the fake tensor for it.
    """
    proxy: Proxy = output.root_tracer.create_graph_input(name, torch.Tensor, example, source=source)
    proxy.node.meta["grapharg"] = compat.GraphArg(
        source,
        given,
        pass_arg_as_tensor=False,
        fake_tensor=example,  # type: ignore[arg-type]
        is_tensor=True,
        example_strong_ref=given,
    )
    return proxy
