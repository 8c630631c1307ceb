"""Twice as many turns with a break cost twice as much, in counts that do not vary."""

from __future__ import annotations

import pytest

from bench.scale import KINDS, QUADRATIC, Body, counted

#: How much more the first call of twice as many turns may be, with room for what it costs once.
LINEAR, SQUARE = 2.2, 4.4


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("body", KINDS, ids=lambda body: body.__name__)
def test_first_calls_grow_as_their_turns(body: Body) -> None:
    counted(body, 1)
    few, many = counted(body, 4), counted(body, 8)
    largest = SQUARE if body in QUADRATIC else LINEAR
    assert (few.graphs, many.graphs) == (1, 1)
    assert many.traces <= few.traces
    assert many.nodes <= largest * few.nodes
    assert many.calls <= largest * few.calls
