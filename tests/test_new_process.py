"""A program that runs in a fork sees what it would in a process that has imported torch itself."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from tests import new_process

SEEN = """
import os, sys, warnings
import own
def annotated(x: int): pass
print(sys.argv, __name__, globals().get("__file__"), sys.path[0], own.NUMBER, os.getcwd())
print(os.environ, sys.stdin.read() == "", sys.modules["__main__"].__dict__ is globals())
print([name for name in sys.modules if name.partition(".")[0] in ("bcmend", "tests", "pytest")])
print(annotated.__annotations__, annotated.__module__, os.path.exists("own.py"))
warnings.warn("warned")
sys.exit(7)
"""


@pytest.mark.parametrize("is_file", [False, True], ids=["text", "file"])
def test_a_program_sees_the_same_as_in_a_process_anew(tmp_path: Path, is_file: bool) -> None:
    (tmp_path / "own.py").write_text("NUMBER = 3")
    (tmp_path / "program.py").write_text(SEEN)
    program = [str(tmp_path / "program.py")] if is_file else ["-c", SEEN]
    env = {**os.environ, "PYTHONPATH": str(tmp_path), "OWN": "own"}
    env.pop("HOME", None)
    fork, anew = (
        function(*program, "word", env=env, cwd=tmp_path)
        for function in (new_process.run, new_process.run_anew)
    )
    assert fork.stdout == anew.stdout != ""
    where = program[0] if is_file else "<string>"
    assert f"{where}:9: UserWarning: warned" in fork.stderr and anew.stderr.startswith(where)
    assert fork.returncode == anew.returncode == 7


def test_programs_leave_nothing_to_each_other() -> None:
    change = "import torch, os; torch.own = os.environ['OWN'] = 'x'; print('bcmend' in sys.modules)"
    ask = "import torch, os, sys; print(hasattr(torch, 'own'), 'OWN' in os.environ)"
    assert new_process.run("-c", f"import sys, bcmend; {change}").stdout == "True\n"
    assert new_process.run("-c", ask).stdout == "False False\n"


def test_an_error_is_shown_and_is_a_status() -> None:
    done = new_process.run("-c", "print('before')\nraise ValueError('mine')")
    assert done.stdout == "before\n" and done.returncode == 1
    assert 'File "<string>", line 2, in <module>\nValueError: mine\n' in done.stderr
    assert new_process.run("-c", "import os; os.abort()").returncode < 0


@pytest.mark.skipif(sys.platform != "linux", reason="no program is forked")
def test_what_forks_has_one_thread_and_torch() -> None:
    ask = "import os, sys; print(len(os.listdir(f'/proc/{os.getppid()}/task')), *sys.modules)"
    threads, *modules = new_process.run("-c", ask).stdout.split()
    assert threads == "1", "a lock that another one holds is never released in a fork"
    assert {"torch", "torch._dynamo"} <= {*modules} and "bcmend" not in modules


def test_a_fork_computes_in_threads_and_compiles() -> None:
    program = """
import torch
torch.set_num_threads(2)
x = torch.ones(300, 300, requires_grad=True)
compiled = torch.compile(lambda x: (x @ x).exp().sum(), backend="aot_eager")
compiled(x * 0).backward(), (x @ x).sum().backward()
print(x.grad.sum().item() > 0)
"""
    done = new_process.run("-c", program)
    assert done.stdout == "True\n", done.stderr
