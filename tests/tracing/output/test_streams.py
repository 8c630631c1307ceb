"""Output statements are withdrawn where the trace stores to what they depend on."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.dynamo.trace_state import Phase
from bcmend.tracing.output import streams
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.site_table import LiveSite


def _site() -> LiveSite:
    return LiveSite("module.f:1", "output", _site.__code__)


def _tracer(stores: dict[Any, dict[str, object]]) -> Any:
    effects = SimpleNamespace(store_attr_mutations=stores)
    return SimpleNamespace(output=SimpleNamespace(side_effects=effects, register_finalizer_fns=[]))


class _Model:
    """A model of an object, by identity."""

    def __init__(self, value: object) -> None:
        self.value = value


def _end(tx: Any) -> None:
    (end,) = tx.output.register_finalizer_fns
    end(None)


def test_a_replaced_stream_withdraws_every_statement_and_restarts_the_trace() -> None:
    sites = [_site(), _site()]
    stores: dict[Any, dict[str, object]] = {}
    tx = _tracer(stores)
    for site in sites:
        streams.watch(tx, site)
    stores[_Model(sys)] = {"stdout": object()}
    with pytest.raises(Falsified):
        _end(tx)
    assert [site.withdrawn for site in sites] == ["cannot-snapshot"] * 2
    assert "sys.stdout" in sites[0].detail


def test_options_for_printing_tensors_count_whatever_their_name() -> None:
    site = _site()
    tx = _tracer({_Model(torch._tensor_str.PRINT_OPTS): {"precision": 2}})
    streams.watch(tx, site)
    with pytest.raises(Falsified):
        _end(tx)
    assert "options for printing" in site.detail


@pytest.mark.parametrize(
    "stores",
    [
        {},
        {_Model(sys): {"argv": []}},
        {_Model(torch._tensor_str.PRINT_OPTS): {}},
        {_Model(object()): {"stdout": 1}},
    ],
)
def test_other_stores_change_nothing(stores: Any) -> None:
    site = _site()
    tx = _tracer(stores)
    streams.watch(tx, site)
    _end(tx)
    assert site.active


def test_the_stores_are_looked_at_in_the_phase_of_checks() -> None:
    from bcmend.dynamo.trace_state import _STATE

    tx = _tracer({})
    streams.watch(tx, _site())
    streams.watch(tx, _site())
    assert [phase for phase, _ in _STATE.of(tx.output).steps] == [Phase.CHECK]


def test_where_all_statements_were_in_refused_arms_nothing_is_traced_again() -> None:
    effects: Any = SimpleNamespace(store_attr_mutations={_Model(sys): {"stdout": None}})
    site = _site()
    with pytest.raises(Falsified):
        streams._check(effects, [site])
    assert site.withdrawn
    streams._check(effects, [])
