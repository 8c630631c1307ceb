"""Runs a program on a torch that has been changed, as a patch release might be, in a new process.

The torch that runs stands for a tested release; what is changed in it is a piece of code. The
changed torch has another version and another build.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from tests import new_process

_SCRIPT: Final = """
import json, sys, time, warnings
from dataclasses import replace
import torch, torch._dynamo
from torch._dynamo import config, exc, side_effects, symbolic_convert
from torch._dynamo.variables import lists, misc
{change}
from bcmend.bytecode import behavior
from bcmend.dynamo.contract import recorded
here = recorded.of_build(torch.version.git_version)
recorded.releases = lambda: (replace(here, pythons=(behavior.PYTHON,)),)
numbers = here.version.split(".")
version = ".".join((*numbers[:2], str(int(numbers[2]) + 1)))
torch.__version__, torch.version.git_version = version, "0" * 40

import bcmend

def program(x):
    if x.sum() > 0:
        y = x * 2
    else:
        y = x - 1
    if y.mean() > 1:
        with torch.no_grad():
            z = y + 3
    else:
        z = y - 3
    print("mean", z.mean().item())
    return z

def second(x):
    return x + 1 if x.sum() > 0 else x

code = program.__code__
inputs = [torch.tensor(each) for each in ([1.0, 2.0], [-1.0, -2.0], [0.25, 0.5])]
expected = [program(each).tolist() for each in inputs]
found = {{"version": version, "tested": here.version, "error": ""}}
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    try:
        began = time.perf_counter()
        bcmend.patch(program)
        found["seconds"] = time.perf_counter() - began
        bcmend.patch(second)
    except Exception as error:
        found["error"] = type(error).__name__ + ": " + str(error)
    found["warned"] = [[each.category.__name__, str(each.message)] for each in caught]
    torch._dynamo.reset()
    compiled = torch.compile(program, backend="eager")
    given = [compiled(each).tolist() for each in inputs]
    if not found["error"]:
        found["sites"] = [[each.line - code.co_firstlineno, each.status, each.refusal, each.detail]
                          for each in bcmend.report(program).sites]
found["equal"] = given == expected
found["patched"] = program.__code__ is not code
found["modules"] = [name for name in sys.modules if name.startswith("bcmend.")]
print(json.dumps(found))
"""


def run(folder: Path, change: str, **environment: str) -> dict[str, Any]:
    """Return what became of a program that is patched and compiled on the changed torch."""
    script = folder / "program.py"  # what has no file has no source
    script.write_text(_SCRIPT.format(change=change), encoding="utf-8")
    inherited = {name: text for name, text in os.environ.items() if "UNTESTED" not in name}
    done = new_process.run(str(script), env={**inherited, **environment})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found
