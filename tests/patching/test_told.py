"""What `TORCH_TRACE` and `TORCH_LOGS` say of sites, in processes in which torch reads them."""

from __future__ import annotations

import logging
import os
from pathlib import Path

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.patching import site_records
from tests.new_process import run_anew

PROGRAM = """
import torch
import bcmend

def helper(x):
    if x.min() < 0:  # bcmend: off
        x = x.abs()
    return x

def function(x):
    if x.sum() > 100:
        x = x / 100
    return helper(x)

if __name__ == "__main__":
    bcmend.patch(function)
    torch.compile(function, backend="eager")(torch.ones(3))
"""
MENDED = "program.py:11, function: branch mended: where: 1 cheap operator, nothing can fail"
LEFT = (
    "program.py:6, helper: branch still breaks the graph: switched-off: by a comment in the source"
)


def _run(folder: Path, **variables: str) -> str:
    script = folder / "program.py"
    script.write_text(PROGRAM, encoding="utf-8")
    ended = run_anew(str(script), env={**os.environ, **variables}, cwd=folder)
    assert ended.returncode == 0, ended.stderr
    return ended.stderr


def test_what_was_mended_is_an_artifact_of_the_trace(tmp_path: Path) -> None:
    said = _run(tmp_path, TORCH_TRACE=str(tmp_path / "trace"))
    assert MENDED not in said
    (log,) = (tmp_path / "trace").iterdir()
    lines = log.read_text(encoding="utf-8").splitlines()
    at = next(number for number, line in enumerate(lines) if '"name": "bcmend"' in line)
    assert '"artifact"' in lines[at] and '"frame_id"' in lines[at]
    assert [line.strip() for line in lines[at + 1 : at + 3]] == [LEFT, MENDED]


def test_torch_logs_says_what_was_mended_and_what_not(tmp_path: Path) -> None:
    said = _run(tmp_path, TORCH_LOGS="bcmend").splitlines()
    for line in (MENDED, LEFT):
        assert any(each.endswith(line) for each in said)


def _function(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_nothing_is_looked_for_where_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compat.trace_log, "handlers", [])
    asked: list[object] = []
    found = site_records.site_records

    def site_records_of(*arguments: object) -> object:
        asked.append(arguments)
        return found(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(site_records, "site_records", site_records_of)
    for level, is_asked in ((logging.WARNING, False), (logging.INFO, True)):
        torch._dynamo.reset()
        logging.getLogger("bcmend").setLevel(level)
        torch.compile(bcmend.patch(_function), backend="eager")(torch.ones(3))
        assert bool(asked) is is_asked
    logging.getLogger("bcmend").setLevel(logging.NOTSET)
