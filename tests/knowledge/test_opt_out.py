"""Code that says itself that it is left alone."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.knowledge import opt_out
from tests.patching.test_waiting import Counting

SOURCE = '''
import functools

def same(f):
    @functools.wraps(f)
    def inner(*args):
        return f(*args)
    return inner

def plain(x):
    if x.sum() > 0:
        x = x + 1
    return x

def one_line(x):
    if x.sum() > 0:  # noqa: E501  # Bcmend: off
        x = x + 1
    if x.sum() > 3:
        x = x - 1
    return x

def of_many_lines(x):
    print(
        "a",
        x.shape,  # bcmend: off
    )
    return x

@same
def decorated(
    x,
):  # bcmend: off, since ...
    if x.sum() > 0:
        x = x + 1
    return x

class Cell:  # bcmend: off
    """Text."""

    def step(self, x):

        # a comment

        return [x for _ in range(2) if x.sum() > 0]

def after(x):
    text = "# bcmend: off"
    return x if x.sum() > 0 else x - 1
'''


def _line(text: str) -> int:
    return SOURCE.splitlines().index(text) + 1


def _module(folder: Path, text: str, name: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(text)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(name="code")
def _code(tmp_path: Path) -> Iterator[ModuleType]:
    torch._dynamo.reset()
    yield _module(tmp_path, SOURCE, "opted_out_code")
    bcmend.unpatch()
    torch._dynamo.reset()
    del sys.modules["opted_out_code"]


def _graphs(function: object, *given: Tensor) -> int:
    count = Counting()
    torch.compile(function, backend=count)(*given)  # type: ignore[call-overload]
    return len(count.codes)


def test_lines_are_those_of_statements_and_of_what_they_define(code: ModuleType) -> None:
    found = opt_out.lines_off(str(code.__file__), vars(code))
    call, decorated, cell = map(_line, ("    print(", "@same", "class Cell:  # bcmend: off"))
    expected = {_line("    if x.sum() > 0:  # noqa: E501  # Bcmend: off"), *range(call, call + 4)}
    expected |= set(range(decorated, decorated + 7))
    assert found == expected | set(range(cell, _line("def after(x):") - 1))


@pytest.mark.parametrize("text", ["def f(:  # bcmend: off\n", "x = '''  # bcmend: off\n", "\0"])
def test_what_is_no_source_has_no_such_lines(tmp_path: Path, text: str) -> None:
    path = tmp_path / "broken.py"
    path.write_text(text)
    assert not opt_out.lines_off(str(path), {})
    assert not opt_out.lines_off(str(tmp_path / "missing.py"), {})


def test_a_source_that_has_changed_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "changed.py"
    path.write_text("def f(): pass\n")
    assert not opt_out.lines_off(str(path), {})
    path.write_text("def f(): pass  # bcmend: off\n")
    assert opt_out.lines_off(str(path), {}) == {1}


def test_a_site_is_left_alone_by_a_comment(code: ModuleType) -> None:
    bcmend.patch(code.one_line, policy=bcmend.Policy(mend="ahead"))
    first, second = bcmend.report(code.one_line, ahead=True).sites
    assert (first.status, first.refusal) == ("refused", "switched-off")
    assert "comment" in first.detail and second.status == "planned"
    assert _graphs(code.one_line, torch.ones(2)) > 1


@pytest.mark.parametrize("name", ["decorated", "of_many_lines", "Cell.step"])
def test_a_function_or_call_is_left_alone_by_a_comment(code: ModuleType, name: str) -> None:
    function = code.Cell().step if name == "Cell.step" else getattr(code, name)
    with bcmend.patched(function, policy=bcmend.Policy(mend="ahead")):
        assert not bcmend.report(function, ahead=True).mended
        stock = _graphs(getattr(function, "__wrapped__", function), torch.ones(2))
        torch._dynamo.reset()
        assert _graphs(function, torch.ones(2)) >= stock
        assert not bcmend.report(function, ahead=True).mended


def test_other_functions_of_the_file_are_mended(code: ModuleType) -> None:
    for function in (code.plain, code.after):
        bcmend.patch(function)
        assert _graphs(function, torch.ones(2)) == 1


def test_a_module_or_its_package_is_left_alone_by_a_flag(code: ModuleType) -> None:
    vars(code)[opt_out.FLAG] = 0
    bcmend.patch(code.plain)
    assert _graphs(code.plain, torch.ones(2)) > 1
    bcmend.unpatch()
    del vars(code)[opt_out.FLAG]
    package = ModuleType("opted_out_package")
    code.__name__ = "opted_out_package.inner.code"
    assert not opt_out.is_module_off(vars(code))
    sys.modules["opted_out_package"] = package
    vars(package)[opt_out.FLAG] = False
    try:
        assert opt_out.is_module_off(vars(code))
    finally:
        del sys.modules["opted_out_package"]


def test_a_process_is_left_alone(code: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BCMEND", "0")
    assert bcmend.patch(code.plain) is code.plain
    assert not bcmend.api.is_anything_patched()
    found = bcmend.report(code.plain, ahead=True)
    assert not found.sites and "BCMEND=0 is set" in str(found) and "torch" not in str(found)
    with pytest.raises(bcmend.TrialError, match="BCMEND=0"):
        bcmend.explain(code.plain, torch.ones(2))
    assert _graphs(code.plain, torch.ones(2)) > 1
    bcmend.unpatch(code.plain)
    with pytest.raises(TypeError):
        bcmend.patch(3)


def test_another_word_in_the_environment_is_an_error(
    code: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BCMEND", "no")
    with pytest.raises(bcmend.BcmendError, match="BCMEND is 'no'"):
        bcmend.patch(code.plain)
    assert not bcmend.api.is_anything_patched()
