"""All that is given to ``torch.compile`` is mended: here, in scripts, in their children."""

from __future__ import annotations

import gc
import json
import os
import re
import subprocess
import sys
import weakref
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend import api, installation
from bcmend.cli import main
from bcmend.patching import compilations
from bench.python_calls import python_calls
from tests.patching.test_waiting import Counting

X = torch.ones(2, 3)


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        x = self.linear(x)
        if x.sum() > 1000:
            x = x + 1
        return x * 2


class Plain(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x).relu()


class Called:
    def __call__(self, x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x


def function(x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    before = torch.compile
    yield
    bcmend.uninstall()
    assert torch.compile is before
    bcmend.unpatch()
    torch._dynamo.reset()


def _compile_in_place(backend: Any) -> Callable[..., Any]:
    net = Net()
    net.compile(backend=backend)
    return net


def _decorated(backend: Any) -> Callable[..., Any]:
    @torch.compile(backend=backend)
    def inner(x: Tensor) -> Tensor:
        return x + 1 if x.sum() > 0 else x

    return inner


WAYS: dict[str, Callable[[Any], Callable[..., Any]]] = {
    "a module": lambda backend: torch.compile(Net(), backend=backend),
    "a module in place": _compile_in_place,
    "a function": lambda backend: torch.compile(function, backend=backend),
    "a decorator": _decorated,
    "a method": lambda backend: torch.compile(Net().forward, backend=backend),
    "an object": lambda backend: torch.compile(Called(), backend=backend),
    "what is compiled": lambda backend: torch.compile(
        torch.compile(Net(), backend="eager"), backend=backend
    ),
}


@pytest.mark.parametrize("way", WAYS)
def test_all_that_is_compiled_is_mended(way: str) -> None:
    stock = Counting()
    expected = WAYS[way](stock)(X)
    assert len(stock.codes) > 1
    torch._dynamo.reset()
    bcmend.install()
    mended = Counting()
    result = WAYS[way](mended)(X)
    assert len(mended.codes) == 1
    assert result.shape == expected.shape


def test_uninstalling_leaves_what_the_program_has_patched() -> None:
    own, other = bcmend.patch(Net()), Plain()
    bcmend.install()
    for each in (own, other):
        torch.compile(each, backend="eager")(X)
    bcmend.uninstall()
    assert api.is_patched(own) and not api.is_patched(other)
    stock = Counting()
    torch.compile(function, backend=stock)(X)
    assert len(stock.codes) > 1


def test_uninstalling_gives_functions_their_code_back() -> None:
    code = function.__code__
    bcmend.install(bcmend.Policy(mend="ahead"))
    torch.compile(function, backend="eager")(X)
    assert function.__code__ is not code
    bcmend.uninstall()
    assert function.__code__ is code and not api.is_anything_patched()


def test_what_has_no_bytecode_is_compiled_as_ever() -> None:
    bcmend.install()
    assert torch.equal(torch.compile(torch.sin, backend="eager")(X), X.sin())
    with pytest.raises(RuntimeError, match=r"torch\.jit\.script"):
        torch.compile(torch.jit.script(Plain()), backend="eager")


def test_a_wrong_policy_changes_nothing() -> None:
    before = torch.compile
    with pytest.raises(bcmend.PolicyError):
        bcmend.install(3)  # type: ignore[arg-type]
    assert torch.compile is before


def test_what_compiles_without_it_is_as_on_torch_alone() -> None:
    bcmend.install()
    with compilations.without():
        stock = Counting()
        torch.compile(function, backend=stock)(X)
    assert len(stock.codes) > 1
    assert getattr(torch.compile, "__wrapped__", None) is not None


def test_nothing_is_installed_where_the_process_is_switched_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch.compile
    monkeypatch.setenv("BCMEND", "0")
    bcmend.install()
    installation.install_with_torch()
    assert torch.compile is before


def test_what_does_not_break_costs_what_patching_costs() -> None:
    def first_call(prepared: Callable[[nn.Module], Any] = lambda _: None) -> int:
        torch._dynamo.reset()
        net = nn.Sequential(*(Plain() for _ in range(8)))

        def call() -> None:
            prepared(net)
            torch.compile(net, backend="eager")(X)

        return python_calls(call)

    first_call()
    stock = first_call()
    first_call(bcmend.patch)
    patched = first_call(bcmend.patch)
    bcmend.unpatch()
    bcmend.install()
    first_call()
    installed = first_call()
    assert installed <= 1.01 * patched <= 1.03 * stock, (installed, patched, stock)


SCRIPT = """
import multiprocessing, os, sys

def graphs():
    import torch
    found = []
    def count(module, _):
        found.append(module)
        return module.forward
    def program(x):
        return x + 1 if x.sum() > 0 else x
    torch.compile(program, backend=count)(torch.ones(2))
    return len(found)

def work(queue):
    queue.put(graphs())

if __name__ == "__main__":
    print(sys.argv, os.path.basename(sys.path[0]), "torch" in sys.modules)
    import helper
    print(helper.NAME, graphs())
    context = multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=work, args=(queue,))
    process.start()
    print("child", queue.get())
    process.join()
    sys.exit(7)
"""


def _run(folder: Path, *arguments: str, **names: str) -> subprocess.CompletedProcess[str]:
    root = str(Path(bcmend.__file__).parents[1])
    path = os.pathsep.join(filter(None, (root, os.environ.get("PYTHONPATH", ""))))
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, **names},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(name="folder")
def _folder(tmp_path: Path) -> Path:
    (tmp_path / "inner").mkdir()
    (tmp_path / "inner" / "script.py").write_text(SCRIPT)
    (tmp_path / "inner" / "helper.py").write_text("NAME = 'helper'")
    (tmp_path / "inner" / "__init__.py").write_text("")
    (tmp_path / "helper.py").write_text("NAME = 'outer'")
    return tmp_path


def test_a_script_and_its_children_are_mended(folder: Path) -> None:
    found = _run(folder, "-m", "bcmend", "run", "inner/script.py", "--flag", "3")
    expected = ["['inner/script.py', '--flag', '3'] inner False", "helper 1", "child 1"]
    assert found.stdout.splitlines() == expected, found.stderr
    assert found.returncode == 7


LATE = """
import atexit, os, pickle
class Own: pass
def late():
    os.chdir("/")
    print(pickle.loads(pickle.dumps(Own())).__class__ is Own, os.path.exists(__file__))
atexit.register(late)
raise BrokenPipeError("mine")
"""


def test_a_script_is_the_main_module_until_the_process_ends(folder: Path) -> None:
    (folder / "late.py").write_text(LATE)
    found = _run(folder, "-m", "bcmend", "run", "late.py")
    assert found.stdout == "True True\n"
    assert found.returncode == 1 and "BrokenPipeError: mine" in found.stderr


def test_a_module_is_run_by_its_name(folder: Path) -> None:
    found = _run(folder, "-m", "bcmend", "run", "-m", "inner.script", "a")
    path = str(folder / "inner" / "script.py")
    expected = [f"['{path}', 'a'] {folder.name} False", "outer 1", "child 1"]
    assert found.stdout.splitlines() == expected, found.stderr
    assert found.returncode == 7


RECEIPT = """
import sys, torch

class Net(torch.nn.Module):
    def forward(self, x):
        if x.sum() > 0:
            x = x * 2
        print("mean", x.mean())
        return x

def main():
    torch.compile(Net(), backend="eager")(torch.ones(2))
    if "fail" in sys.argv:
        raise ValueError("mine")

main()
"""


@pytest.mark.parametrize(("policy", "status", "left"), [("keep", 1, "1"), ("defer", 0, "nothing")])
def test_a_script_ends_with_a_receipt(folder: Path, policy: str, status: int, left: str) -> None:
    (folder / "net.py").write_text(RECEIPT)
    options = ["--policy", f"output={policy}", "--fail-on-break", "--report", "found.json"]
    found = _run(folder, "-m", "bcmend", "run", *options, "net.py")
    assert found.returncode == status, found.stderr
    last = found.stderr.splitlines()[-1]
    assert last.startswith("bcmend: 1 object compiled, ") and f" {left} left; " in last
    (report,) = json.loads((folder / "found.json").read_text())
    assert (report["subject"], report["counts"]["mended"]) == ("Net", 1 if policy == "keep" else 2)


INSTALLED = """
import multiprocessing, os, sys, torch, bcmend

bcmend.install(receipt="quiet" not in sys.argv)

class Net(torch.nn.Module):
    def forward(self, x):
        return x + 1 if x.sum() > 0 else x

def work():
    def local(x):
        return x + 1 if x.sum() > 0 else x
    torch.compile(Net(), backend="eager")(torch.ones(2))
    torch.compile(local, backend="eager")(torch.ones(2))

if __name__ == "__main__":
    if "spawn" in sys.argv:
        process = multiprocessing.get_context("spawn").Process(target=work)
        process.start()
        process.join()
        assert process.exitcode == 0
    elif "fork" in sys.argv:
        work()
        child = os.fork()
        if child:
            os.waitpid(child, 0)
    elif "nothing" not in sys.argv:
        work()
"""


@pytest.mark.parametrize(
    ("how", "rank", "receipts"),
    [
        ("usually", "0", 1),
        ("fork", "0", 1),
        ("spawn", "0", 0),
        ("nothing", "0", 0),
        ("quiet", "0", 0),
        ("usually", "1", 0),
    ],
)
def test_a_process_that_installs_ends_with_a_receipt(
    folder: Path, how: str, rank: str, receipts: int
) -> None:
    (folder / "net.py").write_text(INSTALLED)
    found = _run(folder, "net.py", how, RANK=rank)
    assert found.returncode == 0, found.stderr
    lines = [each for each in found.stderr.splitlines() if each.startswith("bcmend: ")]
    assert len(lines) == receipts
    assert all(" 2 objects compiled, 2 places mended, nothing left; " in each for each in lines), (
        lines
    )


def test_a_receipt_keeps_nothing_alive_that_may_hold_tensors() -> None:
    def make() -> tuple[weakref.ref[Any], ...]:
        net = Net()

        def closed(x: Tensor) -> Tensor:
            return net(x)

        torch.compile(closed, backend="eager")
        torch.compile(net.forward, backend="eager")
        torch.compile(net, backend="eager")
        return weakref.ref(net), weakref.ref(closed)

    bcmend.install()
    found = make()
    gc.collect()
    assert [each() for each in found] == [None, None]


def test_a_receipt_has_what_the_policy_names_in_vain(folder: Path) -> None:
    (folder / "net.py").write_text(RECEIPT)
    options = ["--policy", "off=*:output,net.*", "--policy", "exclude=mymodl"]
    found = _run(folder, "-m", "bcmend", "run", *options, "net.py")
    assert found.returncode == 0, found.stderr
    ends = "; policy entries that match nothing: exclude='mymodl', off='net.*'"
    assert found.stderr.splitlines()[-1].endswith(ends)


def test_the_traceback_of_a_script_is_its_own(folder: Path) -> None:
    (folder / "net.py").write_text(RECEIPT)
    found = _run(folder, "-m", "bcmend", "run", "net.py", "fail")
    assert found.returncode == 1
    assert "ValueError: mine" in found.stderr and "bcmend: 1 object compiled" in found.stderr
    files = re.findall(r'File "(.*?)"', found.stderr)
    assert files == [str(folder / "net.py")] * 2


def test_the_environment_switches_scripts_off(folder: Path) -> None:
    found = _run(folder, "-m", "bcmend", "run", "inner/script.py", BCMEND="0")
    assert [line[-1] for line in found.stdout.splitlines()[1:]] == ["2", "2"], found.stderr


def test_another_start_of_python_is_run_as_well(folder: Path) -> None:
    other = folder / "other"
    other.mkdir()
    (other / "sitecustomize.py").write_text("print('the other one')")
    path = os.pathsep.join(
        [installation.STARTUP, str(other), str(Path(bcmend.__file__).parents[1])]
    )
    found = _run(folder, "-c", "import sys; print(sys.meta_path[0])", PYTHONPATH=path, BCMEND="1")
    first, second = found.stdout.splitlines()
    assert first == "the other one" and "bcmend.installation" in second


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (["missing.py"], "there is no script"),
        (["-m", "missing"], "there is no module"),
        (["--policy", "output", __file__], "expected NAME=VALUE"),
        (["--policy", "output=never", __file__], "no such policy"),
        (["--policy", "no_such=1", __file__], "no such policy"),
    ],
)
def test_what_cannot_be_run_is_one_line(
    capsys: pytest.CaptureFixture[str], given: list[str], expected: str
) -> None:
    assert main(["run", *given]) == 2
    assert expected in capsys.readouterr().err
    assert "BCMEND" not in os.environ or os.environ["BCMEND"] != "1"
