"""What `bcmend.why` returns and shows."""

from __future__ import annotations

import json
import re

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.reports.search_report import FindingRecord, TraceRecord, Why

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

X = torch.linspace(0.5, 1, 4)


class Listing(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found = [x]
        if x.sum() > 0:
            found.append(x * 2)
        print("at", x)
        return found[0] + found[-1]


def test_the_log_says_what_was_assumed_what_was_found_and_what_came_next(
    capsys: pytest.CaptureFixture[str],
) -> None:
    model = bcmend.patch(Listing())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 3)
    found = bcmend.why(model)
    assert found.subject.endswith("Listing")
    first, *others = found.traces
    assert first.findings[0].assumed == "torch captures the code as it is"
    assert first.findings[0].evidence == first.reason == "Data-dependent branching"
    assert all(each.findings for each in found.traces[:-1])
    assert (others[-1].reason, others[-1].findings) == ("", ())
    assert all(each.seconds > 0 for each in found.traces)
    branch = {row.subject for each in others for row in each.findings}
    assert any(name.endswith("Listing.forward:23:branch") for name in branch)


def test_what_is_captured_as_it_is_was_never_traced_anew() -> None:
    model = bcmend.patch(nn.Linear(2, 2))
    torch.compile(model, backend="eager")(torch.ones(2))
    assert bcmend.why(model).traces == ()


def test_the_log_begins_anew_with_the_object() -> None:
    counts = []
    for _ in range(2):
        model = bcmend.patch(Listing())
        torch.compile(model, backend="eager")(X)
        counts.append(len(bcmend.why(model).traces))
        bcmend.unpatch(model)
        torch._dynamo.reset()
    assert counts[0] == counts[1] > 2


def test_nothing_can_be_said_of_what_has_no_bytecode() -> None:
    with pytest.raises(bcmend.UnsupportedObject):
        bcmend.why(3)


FOUND = FindingRecord("a.f:3:branch", "it is so", "seen", "another way", "one call")
WHY = Why(
    "a.f",
    (
        TraceRecord("f", "/x/a.py", 3, "g", "Data-dependent", 0.5, ()),
        TraceRecord("f", "/x/a.py", 4, "f", "bcmend: another way", 1.25, (FOUND, FOUND)),
        TraceRecord("f", "/x/a.py", None, "f", "", 0.25, ()),
        TraceRecord("h", "/x/a.py", None, "h", "bcmend: no line", 0.0, ()),
    ),
)


def test_the_text_goes_function_by_function_and_says_equal_findings_once() -> None:
    lines = [re.sub(r"\s+", " ", line).strip() for line in str(WHY).splitlines()]
    assert lines == [
        "bcmend: a.f",
        "4 traces, 2.0 s",
        "",
        "f",
        "1 0.50 s stopped at a.py:3",
        "Data-dependent",
        "2 1.25 s stopped at a.py:4",
        "assumed it is so (2 times)",
        "of a.f:3:branch",
        "not so seen",
        "instead another way, for one call",
        "3 0.25 s captured",
        "",
        "h",
        "1 0.00 s stopped at a.py:?",
    ]


def test_the_json_has_all_fields() -> None:
    loaded = json.loads(WHY.to_json())
    assert loaded == WHY.to_dict() | {"traces": loaded["traces"]}
    assert loaded["traces"][1]["findings"][0]["assumed"] == "it is so"
    assert [each["line"] for each in loaded["traces"]] == [3, 4, None, None]
