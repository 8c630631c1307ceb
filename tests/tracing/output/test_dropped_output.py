"""Output in exported code: left out, said once, and never an error."""

from __future__ import annotations

import logging
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.reports.places import shown_place
from bcmend.tracing.output import dropped_output

X = torch.tensor([1.0, 2.0, 3.0])
_LOG = logging.getLogger(__name__)


class Talking(nn.Module):
    """Writes something on each side of a branch and around it."""

    def forward(self, x: Tensor) -> Tensor:
        print("given", x.shape, f"{x.mean().item():.2f}")
        if x.sum() > 0:
            _LOG.warning("positive %s", x)
            x = x * 2
        else:
            warnings.warn("negative", stacklevel=1)
            x = x - 1
        print("done")
        return x


class Checking(nn.Module):
    """Checks one side of a branch."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 100:
                raise ValueError("too large")
            x = x * 2
        return x


class Quiet(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _exported(program: nn.Module) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exported = torch.export.export(bcmend.patch(program), (X,), strict=True)
    return exported.module(), [each for each in caught if each.category is bcmend.OutputDropped]


class Saying(nn.Module):
    """Writes by everything that a graph cannot have, and has no branch."""

    def __init__(self) -> None:
        super().__init__()
        self.log = _LOG

    def forward(self, x: Tensor) -> Tensor:
        print("given", x.shape, f"{x.mean().item():.2f}", x.tolist())
        for turn in range(2):
            self.log.warning("turn %d %s", turn, x)
            x = x + turn
        warnings.warn("plain", stacklevel=2)
        return print("result", x.numpy()) or x * 2


def _exported_without_dynamo(program: Any) -> tuple[Any, list[warnings.WarningMessage]]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        exported = torch.export.export(program, (X,), strict=False)
    return exported, [each for each in caught if each.category is bcmend.OutputDropped]


def test_output_is_left_out_with_one_warning(capfd: pytest.CaptureFixture[str]) -> None:
    program = Talking()
    exported, (warning,) = _exported(program)
    sites = [site for site in bcmend.report(program).sites if site.kind == "output"]
    assert len(sites) == 4
    for site in sites:
        assert f"{shown_place(__file__, site.line)} ({site.name})" in str(warning.message)
    capfd.readouterr()
    assert torch.equal(exported(X), X * 2)
    assert torch.equal(exported(-X), -X - 1)
    assert capfd.readouterr().out == ""


def test_there_is_no_warning_where_nothing_is_left_out() -> None:
    exported, caught = _exported(Quiet())
    assert caught == []
    assert torch.equal(exported(-X), -X - 1)


def test_a_check_in_an_arm_is_asserted() -> None:
    exported, _ = _exported(Checking())
    assert torch.equal(exported(-X * 1000), -X * 1000)
    with pytest.raises(RuntimeError, match=r"Checking\.forward: if x\.max"):
        exported(X * 1000)


def _logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == __name__]


def test_without_dynamo_output_is_left_out_with_one_warning_each_time(
    capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    program = bcmend.patch(Saying())
    for _ in range(2):
        exported, (warning,) = _exported_without_dynamo(program)
        assert bcmend.report(program).sites[0].name in str(warning.message)
        assert torch.equal(exported.module()(X), (X + 1) * 2)
    assert capfd.readouterr().out == ""
    assert _logged(caplog) == []
    program(X)
    assert capfd.readouterr().out.startswith("given torch.Size([3]) 2.00")
    assert _logged(caplog) == [f"turn 0 {X}", f"turn 1 {X}"]


def test_without_dynamo_nothing_is_left_out_that_the_policy_keeps(
    capfd: pytest.CaptureFixture[str],
) -> None:
    class Plain(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print("kept")
            return x * 2 if x.shape[0] > 2 else x

    program = bcmend.patch(Plain(), policy=bcmend.Policy(output="keep"))
    exported, caught = _exported_without_dynamo(program)
    assert caught == []
    assert capfd.readouterr().out == "kept\n"
    assert torch.equal(exported.module()(X), X * 2)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="needs a C++ compiler")
def test_what_is_compiled_ahead_of_time_writes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    exported, caught = _exported_without_dynamo(bcmend.patch(Saying()))
    package = torch._inductor.aoti_compile_and_package(
        exported, package_path=str(tmp_path / "model.pt2")
    )
    capfd.readouterr()
    found = torch._inductor.aoti_load_package(package)(X)
    assert torch.equal(found, (X + 1) * 2)
    assert len(caught) == 1
    assert capfd.readouterr().out == ""


class Reporting(nn.Module):
    """Writes, and chooses nothing."""

    def forward(self, x: Tensor) -> Tensor:
        print("given", f"{x.mean().item():.2f}")
        _LOG.warning("largest %s", x.max())
        return x * 2


def test_a_model_for_onnx_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("onnxscript")
    model = bcmend.patch(Reporting())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        program = torch.onnx.export(model, (X,), dynamo=True, verbose=False)
    assert program is not None
    assert [node.op_type for node in program.model.graph] == ["Mul"]
    assert sum(each.category.__name__ == "OutputDropped" for each in caught) == 1
    assert "given" not in capsys.readouterr().out


def test_where_all_statements_were_in_refused_arms_nothing_is_said(
    recwarn: pytest.WarningsRecorder,
) -> None:
    dropped_output._warn([])
    assert not recwarn.list
