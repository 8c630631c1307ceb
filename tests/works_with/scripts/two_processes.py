"""Run by torchrun: steps of training in two processes, mended, beside eager ones."""

from __future__ import annotations

import sys
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import bcmend
from tests.works_with.small import Graphs, Stacked, assert_equal, inputs, logged


def _wrapped(model: Any, way: str) -> Any:
    if way == "ddp":
        return DistributedDataParallel(model, find_unused_parameters=False)
    from torch.distributed.fsdp import fully_shard

    for layer in model.layers:
        fully_shard(layer)
    return fully_shard(model)


def _train(way: str, graphs: Graphs | None, *, is_patched: bool) -> Any:
    model: Any = Stacked(2)
    if is_patched:
        bcmend.patch(model)
    if graphs is not None and way == "fsdp2":
        for layer in model.layers:
            layer.compile(backend=graphs)
    model = _wrapped(model, way)
    call = model if graphs is None or way == "fsdp2" else torch.compile(model, backend=graphs)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    shown = []
    for turn in range(4):
        x = inputs(rows=2 + dist.get_rank())[(turn + dist.get_rank()) % 2]
        with logged() as texts:
            result = call(x)
        optimizer.zero_grad()
        result.square().sum().backward()
        optimizer.step()
        weights = [
            getattr(each, "to_local", lambda e=each: e)().detach().clone()
            for each in model.parameters()
        ]
        shown.append((result.detach(), list(texts), weights))
    return shown


def main() -> None:
    way = sys.argv[1]
    dist.init_process_group("gloo")
    expected = _train(way, None, is_patched=False)
    counts = []
    for is_patched in (False, True):
        bcmend.unpatch()
        torch._dynamo.reset()
        graphs = Graphs("aot_eager")
        assert_equal(_train(way, graphs, is_patched=is_patched), expected)
        counts.append(graphs.count)
    stock, mended = counts
    words = "stock breaks" if stock > mended else f"stock has {stock} graphs"
    found = "mended in one graph" if mended <= 2 else f"mended in {mended} graphs"
    sys.stdout.write(f"rank {dist.get_rank()}: equal, {words}, {found}\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
