"""What a loop carries is watched, and may be any tensor in an iteration."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from bcmend.dynamo import fx_graph
from bcmend.dynamo.values import example_of
from bcmend.tracing.effects import sharing
from bcmend.tracing.loops import loop_results
from bcmend.tracing.loops.loop_values import Carried
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.site_table import LiveSite
from tests.tracing.plain_trace import traced

X = torch.ones(2)


def _site() -> LiveSite:
    return LiveSite("key", "branch", _site.__code__)


def test_what_enters_an_iteration_is_compared_with_nothing() -> None:
    site = _site()

    def step(tx: Any, x: Any) -> Any:
        entering = fx_graph.method(tx, "clone", x)
        loop_results.note_entering(tx, site, [entering])
        with pytest.raises(Falsified):
            sharing.require_known(tx, example_of(entering), example_of(x))
        return x

    traced(step, X)
    assert not site.holds(Claim.CARRIED)


@pytest.mark.parametrize("shared", [False, True])
def test_ends_that_share_memory_are_related(shared: bool) -> None:
    site = _site()

    def step(tx: Any, x: Any) -> Any:
        before, after = ([fx_graph.method(tx, "clone", x) for _ in range(2)] for _ in range(2))
        end = fx_graph.method(tx, "clone", x)
        ends = [end, end if shared else fx_graph.method(tx, "clone", x)]
        carried = Carried((0, 1), (), (), gradients=False)
        loop_results.watch_carried(tx, site, carried, (before, ends, after))
        one, other = map(example_of, after)
        assert sharing.shares(tx, one, other) is shared
        assert sharing.shares(tx, one, example_of(before[0]))
        return x

    traced(step, X)
    assert not site.withdrawn
