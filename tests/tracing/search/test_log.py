"""Records of traces that were given up: where, why, and until when."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.patching import site_records
from bcmend.reports.outcomes import Retrace
from bcmend.reports.site_report import Report
from bcmend.tracing.search import log

X = torch.linspace(-1, 1, 4)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _halved(x: Tensor) -> Tensor:
    if x.max() > 2:
        x = x / 2
    return x


class Model(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x = _halved(x)
        return x * 2 if x.sum() > 0 else x


class Listing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        if x.sum() > 0:
            found.append(x * 2)
        return found[-1] - 1


def _line(function: object, text: str) -> int:
    lines = open(__file__, encoding="utf-8").read().splitlines()
    first: int = function.__code__.co_firstlineno  # type: ignore[attr-defined]
    return next(at for at, line in enumerate(lines, 1) if at > first and text in line)


@pytest.mark.parametrize("mend", ["on-demand", "ahead"])
def test_code_is_traced_again_once_after_the_stop(mend: str) -> None:
    policy = bcmend.Policy(mend=mend)  # type: ignore[arg-type]
    model = bcmend.patch(Model(), policy=policy)
    assert bcmend.report(model).retraces == ()
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(X), model(X))
    line = _line(_halved, "x.max()")
    stop = Retrace(__file__, line, "_halved", "Data-dependent branching")
    assert bcmend.report(model).retraces == ((stop,) if mend == "on-demand" else ())
    assert torch.equal(compiled(X + 9), model(X + 9))
    assert len(bcmend.report(model).retraces) == (mend == "on-demand")


def test_a_restart_of_bcmend_has_its_reason_and_its_line() -> None:
    model = bcmend.patch(Listing(), policy=bcmend.Policy(mend="ahead"))
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(X + 1), model(X + 1))
    first, *_ = bcmend.report(model).retraces
    assert first.reason.startswith("bcmend: ") and "forward" in first.reason
    assert first.function == "Listing.forward" and first.line is not None


def test_a_stop_in_a_trace_of_other_code_belongs_to_what_stopped() -> None:
    model = bcmend.patch(Model())

    def root(x: Tensor) -> Tensor:
        y: Tensor = model(x)
        return y + 1

    assert torch.equal(torch.compile(root, backend="eager")(X), root(X))
    line = _line(_halved, "x.max()")
    stop = Retrace(__file__, line, "_halved", "Data-dependent branching")
    assert bcmend.report(model).retraces == (stop,)
    places = [log.origin_of(each) for each in (root.__code__, Model.forward.__code__)]
    assert not any(map(log._TRACES.get, places))


def test_records_go_when_the_object_is_patched_anew() -> None:
    for _ in range(2):
        model = bcmend.patch(Model())
        compiled = torch.compile(model, backend="eager")
        assert torch.equal(compiled(X), model(X))
        assert len(bcmend.report(model).retraces) == 1
        bcmend.unpatch(model)
        torch._dynamo.reset()


def test_a_break_that_nothing_mends_stays() -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1 if x.sum() > 0 else x
        torch._dynamo.graph_break()
        return y * 2

    bcmend.patch(program)
    assert torch.equal(torch.compile(program, backend="eager")(X), program(X))
    report = bcmend.report(program)
    (stop,) = report.still_breaking
    assert stop.line == _line(program, "graph_break()") and stop.function == program.__qualname__
    assert [site.status for site in report.sites] == ["mended"]
    bcmend.unpatch(program)


def test_records_of_one_place_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "_KEPT", 2)
    code = _halved.__code__
    log.forget([code])
    for number in range(4):
        log.note_error(code, ValueError(f"{number}\nmore"))
    found = site_records.retraces([code, code])
    assert [each.reason for each in found] == ["0", "1"]
    log.forget([code])
    assert site_records.retraces([code]) == ()


def test_what_a_report_says() -> None:
    first = Retrace("/a/b.py", 7, "f", "why")
    twice = Report("f", (), 1, 1, retraces=(first, replace(first, stays=True)))
    assert "  /a/b.py:7  f  why (2 times)" in str(twice).splitlines()
    retraces = (first, Retrace("/a/c.py", None, "long.name", "so"))
    report = Report("f", (), 1, 1, retraces=retraces)
    assert str(report).splitlines()[2:] == [
        "",
        "traced again 2 times, after a stop at",
        "  /a/b.py:7  f          why",
        "  /a/c.py:?  long.name  so",
    ]
    unmarked = {"stays": False, "begins": False, "span": None}
    assert report.to_dict()["retraces"] == [
        {"file": "/a/b.py", "line": 7, "function": "f", "reason": "why", **unmarked},
        {"file": "/a/c.py", "line": None, "function": "long.name", "reason": "so", **unmarked},
    ]
    assert "<summary>traced again 2 times, after a stop at</summary>" in report.to_html()
    assert '<td class="place">/a/b.py:7</td>' in report.to_html()
    assert "traced again 2 times" in str(report.__rich__().caption)
    bare = Report("f", (), 1, 1)
    assert "traced again" not in f"{bare}{bare.to_html()}{bare.__rich__().caption}"
