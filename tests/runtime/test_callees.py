"""Loggers that traced code finds by name: constant in mended code, and nowhere else."""

from __future__ import annotations

import logging
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import bcmend

X = torch.tensor([1.0, 2.0, 3.0])


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    counters.clear()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _says(x: Tensor) -> Tensor:
    logging.getLogger("tests.found").warning("found")
    return x * 2


_UNPATCHED = """
import logging, sys, torch
from torch._dynamo.utils import counters

if sys.argv[1] == "imported":
    import bcmend
    bcmend.compile(lambda x: print(x) or x, backend="eager")(torch.ones(1))
    torch._dynamo.reset()
    counters.clear()

def program(x):
    logger = logging.getLogger("tests.found")
    return x * 2 if logger is not None else x

torch.compile(program, backend="eager")(torch.ones(1))
print(counters["stats"]["unique_graphs"], *counters["graph_break"])
"""


def test_code_that_is_not_patched_is_traced_as_without_bcmend() -> None:
    found = []
    for word in ("imported", "stock"):
        command = [sys.executable, "-c", _UNPATCHED, word]
        run = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(run.stdout.removeprefix("tensor([1.])\n"))
    assert found[0] == found[1] != ""


@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_logger_found_in_mended_code_costs_no_graph(
    fullgraph: bool, caplog: pytest.LogCaptureFixture
) -> None:
    compiled: Any = bcmend.compile(_says, backend="eager", fullgraph=fullgraph)
    compiled(X)
    assert counters["stats"]["unique_graphs"] == 1
    assert [each.getMessage() for each in caplog.records if each.name == "tests.found"] == ["found"]


def test_a_logger_found_behind_a_graph_break(caplog: pytest.LogCaptureFixture) -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        logging.getLogger("tests.found").warning("after")
        return x + 1

    bcmend.compile(program, backend="eager")(X)
    assert counters["stats"]["unique_graphs"] == 2
    assert [each.getMessage() for each in caplog.records if each.name == "tests.found"] == ["after"]
