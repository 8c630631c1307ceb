"""Past its bounds, a chain of nested branches is refused as a whole."""

from __future__ import annotations

from contextlib import ExitStack
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.fx import Graph

import bcmend
from bcmend.names import SPLIT
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.nesting_limits import Nesting, TooDeep
from bcmend.tracing.sites.site_table import LiveSite

CODE = (lambda: None).__code__


def _tracer() -> Any:
    return SimpleNamespace(output=SimpleNamespace(root_tx=SimpleNamespace(f_code=CODE)))


def _site(name: str = "tests.nested", kind: str = "branch") -> LiveSite:
    return LiveSite(name, kind, CODE)


def _graph(operations: int) -> Graph:
    graph = Graph()
    for number in range(operations):
        graph.placeholder(f"input_{number}")
    return graph


def test_the_chain_counts_the_branches_being_mended() -> None:
    tx, site = _tracer(), _site()
    with nesting_limits.mending(tx, site), nesting_limits.mending(tx, site):
        assert nesting_limits.times(tx, site) == 2
    assert nesting_limits.times(tx, site) == 0


def test_a_half_is_traced_while_its_arm_is_open() -> None:
    """While the split is lowered, what asks is in the arm around it, if there is one."""
    tx, half = _tracer(), _site("tests.half", SPLIT)
    with nesting_limits.mending(tx, _site()), nesting_limits.in_one_more_arm(tx):
        with nesting_limits.mending(tx, half):
            assert not nesting_limits.is_in_half(tx)
            with nesting_limits.in_one_more_arm(tx):
                assert nesting_limits.is_in_half(tx)
            assert not nesting_limits.is_in_half(tx)


def test_an_arm_is_open_only_while_it_is_traced() -> None:
    tx = _tracer()
    assert not nesting_limits.is_in_an_arm(tx)
    with pytest.raises(ValueError), nesting_limits.in_one_more_arm(tx):
        assert nesting_limits.is_in_an_arm(tx)
        raise ValueError
    assert not nesting_limits.is_in_an_arm(tx)


def test_too_many_levels_refuse_every_branch_of_the_chain() -> None:
    tx, sites = _tracer(), [_site(f"tests.{n}") for n in range(nesting_limits.LEVELS + 1)]
    with pytest.raises(Falsified), ExitStack() as stack:
        for site in sites:
            stack.enter_context(nesting_limits.mending(tx, site))
    assert all("too-deep" in site.outcome.refused for site in sites)
    assert nesting_limits.times(tx, sites[0]) == 0


def test_as_many_levels_as_allowed_pass() -> None:
    tx, site = _tracer(), _site()
    with ExitStack() as stack:
        for _ in range(nesting_limits.LEVELS):
            stack.enter_context(nesting_limits.mending(tx, site))
    assert not site.outcome.refused


def test_only_the_outermost_branch_restarts_the_trace() -> None:
    tx, outer, inner = _tracer(), _site("tests.outer"), _site("tests.inner")
    with pytest.raises(Falsified), nesting_limits.mending(tx, outer):
        with pytest.raises(TooDeep), nesting_limits.mending(tx, inner):
            raise TooDeep("for a test")
        assert not outer.outcome.refused
        raise TooDeep("for a test")
    assert inner.outcome.refused == outer.outcome.refused == {"too-deep": "for a test"}


def test_arms_are_counted_for_each_outermost_branch_anew() -> None:
    tx, site = _tracer(), _site()
    for _ in range(2):
        with nesting_limits.mending(tx, site):
            for _ in range(nesting_limits.ARMS):
                with nesting_limits.in_one_more_arm(tx):
                    pass
    with pytest.raises(Falsified), nesting_limits.mending(tx, site):
        for _ in range(nesting_limits.ARMS + 1):
            with nesting_limits.in_one_more_arm(tx):
                pass
    assert "too-deep" in site.outcome.refused


def test_a_cond_is_one_deeper_than_those_in_its_arms_and_twice_as_large() -> None:
    small, large = _graph(3), _graph(5)
    assert nesting_limits.require_shallow([small, large])[:2] == (1, 16)
    outer = _graph(1)
    nesting_limits.mark_cond(outer.placeholder("cond"), Nesting(1, 16))
    assert nesting_limits.require_shallow([outer, _graph(2)])[:2] == (2, 2 * (1 + 16 + 2))


def test_too_many_nested_conds_are_refused() -> None:
    graph = _graph(0)
    nesting_limits.mark_cond(graph.placeholder("cond"), Nesting(nesting_limits.CONDS, 10))
    with pytest.raises(TooDeep, match="one in another"):
        nesting_limits.require_shallow([graph])


def test_flat_choices_do_not_count_as_levels() -> None:
    inner = _graph(2)
    nesting_limits.mark_cond(inner.placeholder("cond"), Nesting(1, 16, depth=2, is_flat=True))
    assert nesting_limits.require_shallow([inner])[:3] == (2, 2 * (2 + 16), 3)
    assert nesting_limits.require_shallow([inner], are_flat=True)[:3] == (1, 2 * 2 + 16, 3)
    shallow = _graph(2)
    nesting_limits.mark_cond(shallow.placeholder("cond"), Nesting(1, 16, is_flat=True))
    assert nesting_limits.require_shallow([shallow], are_flat=True)[:3] == (2, 2 * (2 + 16), 2)


def test_operations_are_bounded_only_in_nested_conds() -> None:
    over = nesting_limits.OPERATIONS // 2 + 1
    assert nesting_limits.require_shallow([_graph(over)])[:2] == (1, 2 * over)
    graph = _graph(over)
    nesting_limits.mark_cond(graph.placeholder("cond"), Nesting(1, 1))
    with pytest.raises(TooDeep, match="operations"):
        nesting_limits.require_shallow([graph])


def _frank_wolfe(rows: Tensor) -> Tensor:
    gramian = rows @ rows.T
    share = torch.ones(gramian.shape[0]) / gramian.shape[0]
    for _ in range(250):
        place = torch.argmin(gramian @ share)
        one = torch.zeros(gramian.shape[0])
        one[place] = 1.0
        a, b, c = share @ (gramian @ one), share @ (gramian @ share), one @ (gramian @ one)
        step: Any
        if c <= a:
            step = 1.0
        elif b <= a:
            step = 0.0
        else:
            step = (b - a) / (b + c - 2 * a)
        share = (1 - step) * share + step * one
        if step < 0.001:
            break
    return share @ rows


def test_a_branch_left_out_of_the_call_is_given_up_where_it_is_tried_again() -> None:
    rows = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
    bcmend.patch(_frank_wolfe)
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(_frank_wolfe, backend="eager", fullgraph=True)(rows)
    mended = torch.compile(_frank_wolfe, backend="eager")
    torch.testing.assert_close(mended(rows), _frank_wolfe(rows), rtol=0, atol=0)
