"""Run by torchrun: layer drop under DDP that is told of no unused parameters."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

import bcmend
from tests.works_with.small import Graphs, assert_equal, inputs


class Dropping(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(4, 4), nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        if x.sum() > 0:
            h = self.second(h)
        return h.tanh()


def _train(compiled: Any, *, finds_unused: bool, is_patched: bool = False) -> Any:
    model: Any = bcmend.patch(Dropping()) if is_patched else Dropping()
    call = compiled(DistributedDataParallel(model, find_unused_parameters=finds_unused))
    shown = []
    for turn in range(3):
        model.zero_grad()
        call(inputs()[(turn + dist.get_rank()) % 2]).square().sum().backward()
        shown.append([each.grad.clone() for each in model.parameters()])
    return shown


def main() -> None:
    dist.init_process_group("gloo")
    expected = _train(lambda model: model, finds_unused=True)
    graphs = Graphs("aot_eager")

    def compiled(model: Any) -> Any:
        return torch.compile(model, backend=graphs)

    assert_equal(_train(compiled, finds_unused=False, is_patched=True), expected)
    sys.stdout.write(f"rank {dist.get_rank()}: equal, {graphs.count} graph\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
