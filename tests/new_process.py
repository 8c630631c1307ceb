"""Runs programs in processes of their own that begin with torch and Dynamo imported.

The import takes longer than most programs do. So one process imports both, and nothing of bcmend,
and each program runs in a fork of it. Not for programs that ask what is imported of torch, or for
which torch is to read a variable of the environment when it is imported.
"""

from __future__ import annotations

import atexit
import functools
import gc
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any


def run(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Return how ``python`` ends with arguments that begin with a script, or ``-c`` and a text."""
    if sys.platform != "linux":  # elsewhere libraries may not work in a fork
        return run_anew(*arguments, env=env, cwd=cwd)
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder, name) for name in ("stdout", "stderr")]
        given = {
            "arguments": arguments,
            "env": dict(os.environ if env is None else env),
            "cwd": str(cwd or Path.cwd()),
            "files": list(map(str, files)),
        }
        status = _sent(json.dumps(given))
        shown = [each.read_text(encoding="utf-8") for each in files]
    return subprocess.CompletedProcess([sys.executable, *arguments], status, *shown)


def run_anew(
    *arguments: str, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Return the same of an interpreter that has imported nothing."""
    return subprocess.run(
        [sys.executable, *arguments], env=env, cwd=cwd, capture_output=True, text=True, check=False
    )


@functools.cache
def _forking() -> subprocess.Popen[str]:
    """Return the process that forks; it ends with this one."""
    # Without -P it would find the modules of this folder.
    command = [sys.executable, "-P", __file__]
    found = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(found.communicate)
    return found


def _sent(request: str) -> int:
    """Return the status that a program ends with."""
    process = _forking()
    assert process.stdin is not None and process.stdout is not None
    print(request, file=process.stdin, flush=True)
    answer = process.stdout.readline()
    assert answer, f"the process that forks has ended with {process.wait()}"
    return int(answer)


# In the process that forks


def _next() -> dict[str, Any]:
    """Return what is to be run, in a fork; end where nothing more is asked for."""
    for line in sys.stdin:
        child = os.fork()
        if not child:
            given: dict[str, Any] = json.loads(line)
            return given
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
    sys.exit()


def _redirect(stdout: str, stderr: str) -> None:
    for number, file, mode in ((0, os.devnull, "rb"), (1, stdout, "wb"), (2, stderr, "wb")):
        with open(file, mode) as opened:
            os.dup2(opened.fileno(), number)


def _become(arguments: list[str], env: dict[str, str], cwd: str) -> None:
    """Run a program as the interpreter does that is given the arguments."""
    os.chdir(cwd)
    os.environ.clear()
    os.environ.update(env)
    main = sys.modules["__main__"] = ModuleType("__main__")
    first, *others = arguments
    if first == "-c":
        text, name, folder = others.pop(0), "<string>", ""
    else:
        text, name, folder = Path(first).read_text(encoding="utf-8"), first, str(Path(first).parent)
        main.__file__ = name
    sys.argv = [first, *others]
    sys.path[:0] = [folder, *filter(None, env.get("PYTHONPATH", "").split(os.pathsep))]
    exec(compile(text, name, "exec", dont_inherit=True), vars(main))


if __name__ == "__main__":
    import torch._dynamo  # noqa: F401  for the programs

    gc.freeze()  # a fork would copy all of it to find that none is garbage
    asked = _next()
    _redirect(*asked.pop("files"))
    _become(**asked)
