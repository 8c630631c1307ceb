"""What is watched is compared once, when the graph is complete."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from bcmend.dynamo import trace_state
from bcmend.tracing.effects import watches
from bcmend.tracing.effects.change_counts import changes
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.site_table import LiveSite


class _Trace:
    """A trace with nothing but its end."""

    def __init__(self) -> None:
        self.stored: dict[Any, dict[str, Any]] = {}
        effects = SimpleNamespace(store_attr_mutations=self.stored)
        self.output: Any = SimpleNamespace(side_effects=effects)
        self.site = LiveSite("tests.site", "output", (lambda: None).__code__)

    def finding(self, name: str) -> Finding:
        return Finding(Claim.UNCHANGED, self.site, name)

    @property
    def called(self) -> list[Any]:
        return self.site.all_found(Claim.UNCHANGED)

    def end(self) -> None:
        trace_state._STATE.of(self.output).end(None)


@pytest.fixture
def trace(monkeypatch: pytest.MonkeyPatch) -> Any:
    found = _Trace()

    def at_the_end(output: Any, phase: Any, step: Any) -> None:
        trace_state._STATE.of(output).steps.append((phase, step))

    monkeypatch.setattr(watches, "at_the_end", at_the_end)
    return found


def test_a_tensor_that_stays_as_it_is_changes_nothing(trace: Any) -> None:
    x = torch.ones(2)
    x.add_(1)
    watches.add(trace, x, trace.finding("x"))
    x.add(1)
    trace.end()
    assert trace.called == []


def test_each_change_is_told_before_the_trace_starts_anew(trace: Any) -> None:
    x, y, z = torch.ones(2), torch.ones(2), torch.ones(2)
    for name, each in (("x", x), ("y", y), ("z", z)):
        watches.add(trace, each, trace.finding(name))
    x.add_(1)
    z[:1].mul_(2)  # by a view
    with pytest.raises(Falsified):
        trace.end()
    assert trace.called == ["x", "z"]


def test_an_object_is_watched_by_what_is_stored_to_it(trace: Any) -> None:
    one, other, value = object(), object(), object()
    trace.stored[one] = {"a": value}
    for each in (one, other):
        watches.add_object(trace, each, trace.finding("one" if each is one else "other"))
    trace.stored[one] = {"a": value}  # the same value again
    trace.stored[other] = {"b": value}
    with pytest.raises(Falsified):
        trace.end()
    assert trace.called == ["other"]


def test_changes_of_fake_tensors_are_counted_with_those_of_views() -> None:
    with FakeTensorMode():
        x = torch.ones(4)
        before = changes(x)
        x[1:].add_(1)
        assert changes(x) == before + 1 and changes(x[2:]) == changes(x)
