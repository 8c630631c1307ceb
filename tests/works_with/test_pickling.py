"""What ``torch.compile`` returned is copied and pickled after it was called, as on torch alone."""

from __future__ import annotations

import copy
import importlib
import io
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import torch

import bcmend
from tests import new_process
from tests.works_with.small import Small, Stacked, assert_equal, inputs, shown

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@pytest.fixture(autouse=True)
def _uninstalled() -> Iterator[None]:
    yield
    bcmend.uninstall()


def _patched(model: Any, **options: Any) -> Any:
    return torch.compile(bcmend.patch(model), **options)


def _installed(model: Any, **options: Any) -> Any:
    bcmend.install()
    return torch.compile(model, **options)


def _unpatched(model: Any, **options: Any) -> Any:
    compiled = torch.compile(bcmend.patch(model), **options)
    for x in inputs():
        shown(lambda: compiled(x))  # noqa: B023  is called here
    bcmend.unpatch(model)
    return compiled


def _ahead(model: Any, **options: Any) -> Any:
    return torch.compile(bcmend.patch(model, policy=bcmend.Policy(mend="ahead")), **options)


ENTRIES: Final[dict[str, Any]] = {
    "patch": _patched,
    "compile": bcmend.compile,
    "install": _installed,
    "unpatched": _unpatched,
    "ahead": _ahead,
}


def _pickled(obj: Any) -> Any:
    return pickle.loads(pickle.dumps(obj))


def _saved(obj: Any) -> Any:
    file = io.BytesIO()
    torch.save(obj, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


def _by_cloudpickle(obj: Any) -> Any:
    found: Any = pytest.importorskip("cloudpickle")
    return pickle.loads(found.dumps(obj))


AGAIN: Final[dict[str, Any]] = {
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "pickle": _pickled,
    "save": _saved,
    "cloudpickle": _by_cloudpickle,
}


def _shown(call: Callable[[Any], Any]) -> list[Any]:
    return [shown(lambda: call(x)) for x in inputs()]  # noqa: B023  is called here


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
@pytest.mark.parametrize("entry", ENTRIES.values(), ids=ENTRIES)
def test_what_was_called_is_copied(entry: Any, again: Any) -> None:
    model = Small()
    expected = _shown(model)
    compiled = entry(model, backend="eager")
    assert_equal(_shown(compiled), expected)
    copied = again(compiled)
    assert type(copied) is type(compiled)
    assert_equal(_shown(copied), expected)
    assert_equal(_shown(again(copied)), expected)  # a copy that was called
    assert_equal(_shown(compiled), expected)


@pytest.mark.parametrize("again", [copy.deepcopy, _saved])
def test_what_was_called_is_copied_with_inductor(again: Any) -> None:
    model = Small()
    expected = _shown(model)
    compiled = torch.compile(bcmend.patch(model), dynamic=False)
    assert_equal(_shown(compiled), expected)
    assert_equal(_shown(again(compiled)), expected)


@pytest.mark.parametrize("again", AGAIN.values(), ids=AGAIN)
def test_a_compiled_part_of_a_module_is_copied(again: Any) -> None:
    model: Any = Stacked()
    expected = _shown(model)
    bcmend.patch(model)
    model.layers[1] = torch.compile(model.layers[1], backend="eager")
    model.layers[2].compile(backend="eager")
    assert_equal(_shown(model), expected)
    assert_equal(_shown(again(model)), expected)


def test_a_copy_is_mended_as_its_original() -> None:
    compiled = torch.compile(bcmend.patch(Small()), backend="eager")
    _shown(compiled)
    torch._dynamo.utils.counters.clear()
    _shown(_pickled(compiled))
    assert not torch._dynamo.utils.counters["graph_break"]


CHILD: Final = """
import sys, torch
how = sys.argv[2]
if how != "stock":
    import bcmend
compiled = torch.load(sys.argv[1], weights_only=False)
if how == "install":
    bcmend.install()
    compiled = torch.compile(compiled._orig_mod, backend="eager")
elif how == "patch":
    bcmend.patch(compiled)
from tests.works_with.small import inputs, shown
for _ in range(2):
    print([shown(lambda: compiled(x).tolist()) for x in inputs()])
print(len(torch._dynamo.utils.counters["graph_break"]) > 0, "bcmend" in sys.modules)
"""


@pytest.mark.parametrize(
    ("entry", "how", "breaks"),
    [
        ("patch", "stock", "True False"),
        ("patch", "patch", "False True"),
        ("install", "install", "False True"),
        ("unpatched", "stock", "True False"),
    ],
)
def test_what_was_called_is_loaded_in_another_process(
    entry: str, how: str, breaks: str, tmp_path: Path
) -> None:
    model = Small()
    expected = str([shown(lambda: model(x).tolist()) for x in inputs()])  # noqa: B023  is called here
    compiled = ENTRIES[entry](model, backend="eager")
    _shown(compiled)
    torch.save(compiled, tmp_path / "compiled")
    assert _run(tmp_path / "compiled", how) == [expected, expected, breaks]


def _run(path: Path, how: str) -> list[str]:
    root = Path(importlib.import_module("tests").__path__[0]).parent
    ran = new_process.run("-c", CHILD, str(path), how, cwd=root)
    assert ran.returncode == 0, ran.stderr
    return ran.stdout.splitlines()


def test_after_the_last_unpatch_nothing_of_bcmend_is_pickled() -> None:
    model = bcmend.patch(Small())
    compiled = torch.compile(model, backend="eager")
    _shown(compiled)
    bcmend.unpatch()
    assert b"bcmend" not in pickle.dumps(compiled).replace(b"_bcmend", b"")
