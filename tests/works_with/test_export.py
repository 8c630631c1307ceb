"""Exported programs: equal to eager execution on other inputs than that of the export.

Where eager execution raises, an exported program fails at an assertion, and one for ONNX, which
has none, goes on.
"""

from __future__ import annotations

import logging
import shutil
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.reasons import REASONS
from bcmend.reports.places import shown_place

_LOG = logging.getLogger(__name__)
Exported = Callable[[Tensor], Tensor]
Export = Callable[[nn.Module], Exported]

ROWS: Final = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
INPUTS: Final = {
    "as exported": ROWS,
    "negative": -ROWS,
    "mixed": ROWS * torch.tensor([1.0, -1.0, 1.0]),
    "large": ROWS * 100,
    "nan": torch.where(ROWS == 5, torch.nan, ROWS),
}


class Branching(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear = nn.Linear(3, 3)

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if y.sum() > 0:
            y = y * 2
        else:
            y = y - 1
        return y.relu()


class Checking(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        if y.max() > 100:
            raise ValueError("too large")
        return y + 1


class CheckingInAnArm(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 100:
                raise ValueError(f"too large: {x}")
            x = x * 2
        assert not torch.isnan(x).any(), "nan"
        return x


class Writing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        print("sum", x.sum())
        if x.sum() > 0:
            _LOG.warning("largest %s", x.max())
            return x * 2
        return x - 1


class Counting(nn.Module):
    """Has a number out of a tensor steer a shape."""

    def forward(self, x: Tensor) -> Tensor:
        n = int((x > 0).sum())
        return torch.arange(n) * 2


class All(Branching):
    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if torch.isnan(y).any():
            raise ValueError("nan")
        if y.sum() > 0:
            _LOG.warning("positive %s", y.sum())
            y = y * 2
        else:
            y = y - 1
        return torch.cat([y.flatten(), torch.zeros(int((x > 0).sum()))])


def _as_program(model: nn.Module, strict: bool) -> Exported:
    return torch.export.export(model, (ROWS,), strict=strict).module()


def _for_onnx(model: nn.Module) -> Exported:
    reference = pytest.importorskip("onnx.reference")
    pytest.importorskip("onnxscript")
    program = torch.onnx.export(model, (ROWS,), dynamo=True, verbose=False)
    assert program is not None
    proto = program.model_proto
    evaluator = reference.ReferenceEvaluator(proto)
    (given,) = proto.graph.input
    return lambda x: torch.from_numpy(evaluator.run(None, {given.name: x.numpy()})[0].copy())


def _ahead_of_time(model: nn.Module) -> Exported:
    if shutil.which("g++") is None:
        pytest.skip("needs a C++ compiler")
    path = torch._inductor.aoti_compile_and_package(torch.export.export(model, (ROWS,)))
    return torch._inductor.aoti_load_package(path)


EXPORTERS: Final[dict[str, Export]] = {
    "strict": partial(_as_program, strict=True),
    "not strict": partial(_as_program, strict=False),
    "onnx": _for_onnx,
    "aoti": _ahead_of_time,
}
#: What stock torch exports too.
_OF_STOCK: Final = {("strict", Counting), ("onnx", Counting)}

pytestmark = [
    pytest.mark.usefixtures("dynamo_begun_anew"),
    pytest.mark.filterwarnings("ignore::bcmend.ChecksDropped", "ignore::bcmend.OutputDropped"),
]


def _cases() -> list[Any]:
    return [
        pytest.param(name, model, marks=[pytest.mark.slow] * (name == "aoti"))
        for name in EXPORTERS
        for model in (Branching, Checking, CheckingInAnArm, Writing, Counting, All)
    ]


@pytest.mark.parametrize(("exporter", "model"), _cases())
def test_an_exported_program_is_eager_execution(
    exporter: str, model: type[nn.Module], capfd: pytest.CaptureFixture[str]
) -> None:
    with torch.no_grad():
        if (exporter, model) not in _OF_STOCK:
            with pytest.raises(Exception, match=r"(?i)data-dependent|export"):
                EXPORTERS[exporter](model())
            torch._dynamo.reset()
        exported = EXPORTERS[exporter](bcmend.patch(model()))
        compared = 0
        for x in INPUTS.values():
            try:
                expected = model()(x)
            except (ValueError, AssertionError):
                if exporter != "onnx":
                    with pytest.raises(RuntimeError, match=r"test_export\.py:\d+, .*"):
                        exported(x)
                continue
            capfd.readouterr()
            found = exported(x)
            assert capfd.readouterr().out == ""
            torch.testing.assert_close(found, expected, equal_nan=True)
            compared += 1
        assert compared >= 3


def test_an_assertion_says_where_the_check_stands() -> None:
    exported = EXPORTERS["not strict"](bcmend.patch(Checking()))
    line = Checking.forward.__code__.co_firstlineno + 2
    with pytest.raises(RuntimeError) as caught:
        exported(INPUTS["large"])
    expected = f"test_export.py:{line}, Checking.forward: if y.max() > 100: raise ValueError("
    assert expected in str(caught.value)


def test_a_dynamic_dimension_stays_dynamic() -> None:
    rows = torch.export.Dim("rows")
    program = torch.export.export(
        bcmend.patch(Branching()), (ROWS,), dynamic_shapes=({0: rows},), strict=False
    ).module()
    for size in (3, 7):
        x = torch.randn(size, 3)
        torch.testing.assert_close(program(x), Branching()(x))


@pytest.mark.parametrize("policy", [bcmend.Policy(), bcmend.Policy(mend="ahead")])
def test_what_is_patched_ahead_is_exported_as_well(policy: bcmend.Policy) -> None:
    exported = EXPORTERS["not strict"](bcmend.patch(Branching(), policy=policy))
    for x in (ROWS, -ROWS):
        torch.testing.assert_close(exported(x), Branching()(x))


def test_checks_that_onnx_has_not_are_listed() -> None:
    model = bcmend.patch(Checking())
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        EXPORTERS["onnx"](model)
    (warning,) = (each for each in caught if each.category is bcmend.ChecksDropped)
    (site,) = bcmend.report(model).sites
    assert f"{shown_place(__file__, site.line)} ({site.name})" in str(warning.message)


class Failing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() < 0:
            x = x.reshape(7)
        return x + 1


@pytest.mark.parametrize("exporter", ["strict", "not strict"])
def test_what_cannot_be_exported_says_why_and_what_to_do(exporter: str) -> None:
    with pytest.raises(Exception, match=r"(?i)data-dependent") as caught:
        EXPORTERS[exporter](bcmend.patch(Failing()))
    (note,) = caught.value.__notes__
    line = Failing.forward.__code__.co_firstlineno + 1
    assert f"test_export.py:{line}, Failing.forward: `if x.sum() < 0:`" in note
    assert "(export)" in note and REASONS["export"].hint in note


class Raising(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if len(x) == 2:
            raise ValueError("two rows")
        return x * 2 if x.sum() > 0 else x


@pytest.mark.parametrize("exporter", ["strict", "not strict"])
def test_an_exception_of_the_program_is_raised_as_on_torch_alone(exporter: str) -> None:
    found = []
    for model in (Raising(), bcmend.patch(Raising())):
        with pytest.raises(Exception, match="two rows") as caught:
            EXPORTERS[exporter](model)
        found.append((caught.type, getattr(caught.value, "__notes__", [])))
        torch._dynamo.reset()
    assert found[0] == found[1]


def test_what_is_not_patched_fails_as_on_torch_alone() -> None:
    bcmend.patch(Branching())
    with pytest.raises(Exception, match="data-dependent") as caught:
        EXPORTERS["not strict"](Failing())
    assert not hasattr(caught.value, "__notes__")
