"""A function of a module that was imported anew, as notebooks do when its file has changed."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch._dynamo.testing
from torch import Tensor

import bcmend
from bcmend import Policy

_SOURCE = """
def helper(x):
    if x.sum() > 0:
        return x * 2
    return x - 2
"""


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    name = f"module_of_{tmp_path.name}"  # Dynamo keeps what it has imported by a name
    (tmp_path / f"{name}.py").write_text(_SOURCE)
    monkeypatch.syspath_prepend(tmp_path)
    yield importlib.import_module(name)
    sys.modules.pop(name, None)


def _nothing(name: str) -> None: ...


def _import_anew(name: str) -> None:
    del sys.modules[name]
    importlib.import_module(name)


def _import_again(name: str) -> None:
    importlib.reload(sys.modules[name])


def _forget(name: str) -> None:
    del sys.modules[name]


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize(
    ("happens", "mend"),
    [
        *((each, "on-demand") for each in (_nothing, _import_anew, _import_again)),
        *((each, "ahead") for each in (_nothing, _import_anew, _import_again, _forget)),
    ],
)
def test_its_older_copy_is_one_graph(
    module: ModuleType, happens: Callable[[str], None], mend: str, fullgraph: bool
) -> None:
    helper = module.helper

    def called(x: Tensor) -> Tensor:
        return helper(x) + 1  # type: ignore[no-any-return]

    expected = [called(torch.ones(2) * sign) for sign in (1, -1)]
    bcmend.patch(called, policy=Policy(mend=mend))
    happens(module.__name__)
    counting = torch._dynamo.testing.CompileCounterWithBackend("eager")
    compiled = torch.compile(called, backend=counting, fullgraph=fullgraph)
    found = [compiled(torch.ones(2) * sign) for sign in (1, -1)]
    torch.testing.assert_close(found, expected)
    assert counting.frame_count == 1
