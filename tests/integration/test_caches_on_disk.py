"""What processes find of each other in torch's caches on disk.

A model runs as it is, mended, and mended by another policy, in processes with one folder: each call
has to be what eager execution gives, whoever filled the folder.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

_PROGRAM = """
import contextlib, copy, io, json, sys
import torch
import bcmend
from torch._dynamo.utils import counters

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second, self.count = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4), 0

    def forward(self, x):
        if x.isnan().any():
            raise ValueError("not a number")
        h = self.first(x)
        if h.sum() > 0:
            h, self.count = self.second(h).exp(), self.count + 1
        else:
            h = h - 1
        print("mean", round(h.mean().item(), 3), self.count)
        return h.relu()

def outcome(function, x):
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        try:
            found = function(x)
        except ValueError as error:
            found = str(error)
    return found, out.getvalue()

_, way, loaded, saved = sys.argv
if loaded:
    torch.compiler.load_cache_artifacts(open(loaded, "rb").read())
model = Model()
eager = copy.deepcopy(model)
if way != "as it is":
    output = "keep" if way == "output kept" else "defer"
    bcmend.patch(model, policy=bcmend.Policy(output=output))
compiled = torch.compile(model)
torch.manual_seed(5)
x = torch.randn(3, 4)
for given in (x, -x, x * 0 + 1, x * float("nan"), x):
    (one, shown), (other, expected) = outcome(compiled, given), outcome(eager, given)
    assert shown == expected, (shown, expected)
    if isinstance(other, str):
        assert one == other
    else:
        torch.testing.assert_close(one, other)
if saved:
    open(saved, "wb").write(torch.compiler.save_cache_artifacts()[0])
found = counters["inductor"]
print(json.dumps({each: found[f"fxgraph_cache_{each}"] for each in ("hit", "miss")}))
"""


class _Processes:
    """Runs the program in processes that share a folder."""

    def __init__(self, folder: Path) -> None:
        self.program = folder / "program.py"
        self.program.write_text(_PROGRAM, encoding="utf-8")
        self.caches = folder / "caches"

    def run(self, way: str, *, loads: str = "", saves: str = "", packages: bool = False) -> Any:
        """Return how many graphs were found and how many were not."""
        added = {
            "TORCHINDUCTOR_CACHE_DIR": str(self.caches),
            "PYTHONPATH": os.pathsep.join(sys.path),
            "TORCH_CACHING_PRECOMPILE": "1" if packages else "0",
        }
        done = subprocess.run(
            [sys.executable, str(self.program), way, loads, saves],
            env={**os.environ, **added},
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.parametrize("others", [[], ["output kept"]])
def test_processes_with_one_folder(tmp_path: Path, others: list[str]) -> None:
    processes = _Processes(tmp_path)
    assert processes.run("as it is")["miss"]
    mended = processes.run("mended")
    assert mended["miss"]
    for way in others:
        processes.run(way)
    again = processes.run("mended")
    assert not again["miss"] and again["hit"]


@pytest.mark.slow
@pytest.mark.parametrize("first", ["as it is", "mended"])
def test_artifacts_that_another_process_has_saved(tmp_path: Path, first: str) -> None:
    artifacts = str(tmp_path / "artifacts")
    _Processes(tmp_path).run(first, saves=artifacts)
    for number, way in enumerate(["as it is", "mended", "output kept"]):
        folder = tmp_path / str(number)
        folder.mkdir()
        found = _Processes(folder).run(way, loads=artifacts)
        assert bool(found["miss"]) is (way != first)


@pytest.mark.slow
def test_packages_of_precompiled_code(tmp_path: Path) -> None:
    """A package finds code by its name: none is kept of what is mended, and none is used for it."""
    processes = _Processes(tmp_path)
    for way in ("mended", "as it is", "mended", "output kept"):
        processes.run(way, packages=True)
