"""Programs that were never patched compile as on torch alone while another model is patched."""

from __future__ import annotations

import os
import re
from pathlib import Path

from tests import new_process

ROOT = Path(__file__).parents[2]

#: What differs from run to run: times, addresses, and the prefix of a line of a log.
_VARIES = (
    (r"(?m)^[VIWE]\d{4} [\d:.]+ \d+ ", ""),
    (r"latency = [\d.]+ us", ""),
    (r"0x[0-9a-f]+", "N"),
    (r"(?<=_dict___)\d+", "N"),  # counts the names that the process has made
    (r"\d{7,}(\.\d+)?", "N"),
)


def _seen(*arguments: str) -> dict[str, str]:
    """Return what each program showed: results, graphs, errors and tracebacks; guards and logs."""
    done = new_process.run(
        *(str(Path(__file__).with_name("unpatched_programs.py")), *arguments),
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found: dict[str, str] = {}
    for stream in (done.stdout, done.stderr):
        for pattern, becomes in _VARIES:
            stream = re.sub(pattern, becomes, stream)
        for part in stream.split("=== ")[1:]:
            name, _, text = part.partition("\n")
            found[name] = found.get(name, "") + text
    return found


def test_unpatched_programs_compile_as_without_bcmend() -> None:
    alone, beside = _seen(), _seen("patched")
    assert len(alone) == 30 and list(alone) == list(beside)
    for name, seen in alone.items():
        assert beside[name] == seen, name
    everything = "".join(alone.values())
    for kind in ("class GraphModule", "Traceback", "GuardManager", "Graph break in user code"):
        assert kind in everything
