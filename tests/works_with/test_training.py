"""Training: processes, precision, checkpoints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bcmend
from tests.works_with.small import Graphs, Small, Stacked, assert_equal, inputs, shown, steps

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

ROOT = Path(__file__).parents[2]


def _torchrun(script: str, *arguments: str) -> list[str]:
    """Return the lines that two processes under torchrun have written."""
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"),
            *(str(ROOT / "tests" / "works_with" / "scripts" / script), *arguments),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, ran.stderr[-4000:]
    return sorted(line for line in ran.stdout.splitlines() if line.startswith("rank "))


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
@pytest.mark.parametrize("way", ["ddp", "fsdp2"])
def test_two_processes(way: str) -> None:
    """Each process compares steps of training with eager execution in the same process group."""
    assert _torchrun("two_processes.py", way) == [
        f"rank {rank}: equal, stock breaks, mended in one graph" for rank in range(2)
    ]


@pytest.mark.slow
@pytest.mark.skipif(not torch.distributed.is_available(), reason="needs torch.distributed")
def test_layer_drop_in_two_processes() -> None:
    """As eager execution where that is told to look for unused parameters; else it fails."""
    assert _torchrun("layer_drop.py") == [f"rank {rank}: equal, 1 graph" for rank in range(2)]


def test_autocast_and_a_scaler_of_gradients() -> None:
    def train(model: Any, call: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler("cpu", init_scale=8.0)

        def step(x: Tensor) -> Any:
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16):
                result = call(x)
                loss = result.square().sum()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            return (
                result.detach(),
                scaler.get_scale(),
                next(iter(model.parameters())).detach().clone(),
            )

        return [shown(lambda: step(x)) for x in inputs()]  # noqa: B023  is called here

    expected = train(reference := Small(), reference)
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        torch._dynamo.reset()
        model, graphs = patch(Small()), Graphs("aot_eager")
        assert_equal(train(model, torch.compile(model, backend=graphs)), expected)
        counts.append(graphs.count)
    assert counts[0] > counts[1] == 1


class Checkpointed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Small() for _ in range(2))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False)
        return x


def test_checkpoints_inside_of_a_model() -> None:
    expected = steps(reference := Checkpointed(), reference, inputs()[:2])
    model = bcmend.patch(Checkpointed())
    found = steps(model, torch.compile(model, backend="aot_eager"), inputs()[:2])
    assert_equal([each[0] for each in found], [each[0] for each in expected])


def test_checkpoints_around_compiled_layers() -> None:
    def of(model: Stacked) -> Any:
        def call(x: Tensor) -> Tensor:
            for layer in model.layers:
                x = checkpoint(layer, x, use_reentrant=False)
            return x

        return call

    expected = steps(reference := Stacked(), of(reference), inputs()[:2])
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        torch._dynamo.reset()
        model, graphs = patch(Stacked()), Graphs("aot_eager")
        for layer in model.layers:
            layer.compile(backend=graphs)
        found = steps(model, of(model), inputs()[:2])
        assert_equal([each[0] for each in found], [each[0] for each in expected])
        counts.append(graphs.count)
    assert counts[0] > counts[1]
