"""What users are told where a graph still breaks in patched code."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.reasons import REASONS
from bcmend.tracing.entry import still_breaking

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@pytest.fixture(autouse=True)
def _nobody_was_warned() -> None:
    still_breaking._WARNED.clear()


def _opens(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + open("/dev/null").fileno() * 0
    return x


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _opens(x) + 1


def _line_of_jump() -> int:
    return _opens.__code__.co_firstlineno + 1


def _warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name == "bcmend"]


def test_where_and_why_are_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    net = bcmend.patch(Net())
    compiled = torch.compile(net, backend="eager")
    for size in (2, 3):
        assert torch.equal(compiled(torch.ones(size)), torch.full([size], 2.0))
    (text,) = _warnings(caplog)
    assert f"test_still_breaking.py:{_line_of_jump()}, _opens: `if x.sum() > 0:`" in text
    assert "arm-untraceable" in text and "bcmend.explain" in text
    assert f"at line {_line_of_jump() + 1}: `x = x + open(" in text
    assert REASONS["arm-untraceable"].hint in text


def test_nothing_is_logged_where_one_graph_was_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    net = bcmend.patch(Net())
    with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
        torch.compile(net, backend="eager", fullgraph=True)(torch.ones(2))
    assert not _warnings(caplog)
    (note,) = caught.value.__notes__
    assert note.startswith("bcmend: the graph breaks at ") and "arm-untraceable" in note


def test_frames_of_an_error_are_those_of_the_program() -> None:
    def message() -> str:
        with pytest.raises(torch._dynamo.exc.Unsupported) as caught:
            torch.compile(Net(), backend="eager", fullgraph=True)(torch.ones(2))
        return str(caught.value).partition("from user code:")[2]

    stock = message()
    torch._dynamo.reset()
    bcmend.patch(Net)
    assert message() == stock
    assert stock.count(", in _opens") == 1


def test_a_failure_of_the_program_has_no_note(caplog: pytest.LogCaptureFixture) -> None:
    def fails(x: Tensor) -> Tensor:
        return x @ torch.ones(7)

    bcmend.patch(fails)
    with pytest.raises(RuntimeError) as caught:
        torch.compile(fails, backend="eager", fullgraph=True)(torch.ones(2))
    assert not any("graph breaks" in each for each in getattr(caught.value, "__notes__", ()))
    assert not _warnings(caplog)


def test_what_is_mended_is_not_mentioned(caplog: pytest.LogCaptureFixture) -> None:
    def mended(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        return x

    bcmend.patch(mended)
    with caplog.at_level(logging.INFO, "bcmend"):
        torch.compile(mended, backend="eager")(torch.ones(2))
    assert all(each.levelno < logging.WARNING for each in caplog.records)
    assert any("Dynamo stops at" in each for each in _warnings(caplog))


def test_what_the_program_asks_for_is_said_to_be_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def breaks(x: Tensor) -> Tensor:
        x = x + 1
        torch._dynamo.graph_break()
        return x * 2

    bcmend.patch(breaks)
    torch.compile(breaks, backend="eager")(torch.ones(2))
    (text,) = _warnings(caplog)
    assert "The program asks for it" in text


def _says(x: Tensor) -> Tensor:
    print("mean", x.mean())
    return x


def _has_it_said(x: Tensor) -> Tensor:
    return _says(x * 2) + 1


@pytest.mark.parametrize("program", [_says, _has_it_said])
def test_output_that_the_policy_keeps_is_said_to_be_kept(
    caplog: pytest.LogCaptureFixture, program: Any
) -> None:
    bcmend.patch(program, policy=bcmend.Policy(output="keep"))
    torch.compile(program, backend="eager")(torch.ones(2))
    (text,) = _warnings(caplog)
    advice = REASONS["policy-keep"].hint
    assert "policy-keep" in text and advice in text and "knows no way" not in text
    report = bcmend.report(program)
    assert [(each.kind, each.refusal) for each in report.refused] == [("output", "policy-keep")]
    assert advice in str(report)


def test_what_a_policy_keeps_is_reported_where_nothing_is_mended() -> None:
    bcmend.patch(_has_it_said, policy=bcmend.Policy(output="keep", mend="ahead"))
    report = bcmend.report(_has_it_said)
    assert [each.refusal for each in report.refused] == ["policy-keep"]
    assert "output='keep'" in report.policy


def _leaves(x: Tensor) -> Tensor:
    if x.sum() > 0:  # bcmend: off
        x = x + 1
    return x


def test_a_function_with_nothing_mended_may_be_switched_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def calls(x: Tensor) -> Tensor:
        x = x * 2 if x.sum() > 5 else x
        return _leaves(x) * 2

    bcmend.patch(calls)
    torch.compile(calls, backend="eager")(torch.ones(2))
    assert not _warnings(caplog)


def test_an_assertion_of_the_program_is_no_graph_break() -> None:
    names: dict[str, Any] = {}
    text = (
        "def asserts(x):\n    assert x.shape[0] == 4, 'shape'\n    return x if x.sum() > 0 else -x"
    )
    exec(text, names)  # pytest rewrites assertions
    asserts = bcmend.patch(names["asserts"])
    with pytest.raises((AssertionError, torch._dynamo.exc.Unsupported)) as caught:
        torch.compile(asserts, backend="eager", fullgraph=True)(torch.ones(2))
    assert not any("graph breaks" in each for each in getattr(caught.value, "__notes__", ()))


def _powers_of_a_negative_number(x: torch.Tensor) -> torch.Tensor:
    return (-2.5) ** x.shape[0] * x


def test_where_one_graph_is_asked_for_what_torch_fails_at_is_raised_in_each_call() -> None:
    """torch fails on fake tensors, and eager execution does not; it would find no graph later."""
    mended = torch.compile(
        bcmend.patch(_powers_of_a_negative_number), backend="eager", fullgraph=True, dynamic=True
    )
    for size in (3, 4, 5):
        with pytest.raises(torch._dynamo.exc.TorchRuntimeError, match="Expected cond to be True"):
            mended(torch.ones(size))


def test_where_graphs_may_break_what_torch_fails_at_is_left_to_python() -> None:
    patched = bcmend.patch(_powers_of_a_negative_number)
    mended = torch.compile(patched, backend="eager", dynamic=True)
    for size in (3, 4, 5):
        x = torch.ones(size)
        assert torch.equal(mended(x), _powers_of_a_negative_number(x))


class _Recurrent(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x * 2)[0] + 1


def test_a_recurrent_layer_is_said_to_be_captured_in_one_graph(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net, sequence = bcmend.patch(_Recurrent()), torch.ones(4, 2)
    torch.compile(net, backend="eager")(sequence)
    texts = [each for each in _warnings(caplog) if "the graph still breaks" in each]
    assert texts and all("Under fullgraph=True" in each for each in texts)
    torch._dynamo.reset()
    torch.compile(net, backend="eager", fullgraph=True)(sequence)


class Off(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:  # bcmend: off
            x = x + 1
        return x


def test_nobody_is_warned_of_what_the_program_switches_off(
    caplog: pytest.LogCaptureFixture,
) -> None:
    model = bcmend.patch(Off())
    assert torch.equal(torch.compile(model, backend="eager")(torch.ones(2)), torch.full([2], 2.0))
    assert not _warnings(caplog)
    report = bcmend.report(model)
    assert report.places_left == 1 and "Remove the comment `# bcmend: off`" in str(report)
