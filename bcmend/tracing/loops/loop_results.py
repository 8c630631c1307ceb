"""Which tensors those that a loop carries are, and which memory they share.

Without an iteration eager execution has one tensor before the loop and after it; behind an
iteration two names may be one tensor. In the graph all that is carried is copied. Where the program
can tell, the loop is left to Dynamo.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Final

from bcmend.dynamo import compat
from bcmend.dynamo.values import Value, example_of
from bcmend.tracing.effects import sharing, watches
from bcmend.tracing.loops.loop_values import Carried
from bcmend.tracing.lowering import shared_results
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites.site_table import LiveSite

#: Why a loop is unrolled: in the graph what it carries is copied.
TOLD_APART: Final = "a value of the loop is changed in place later, or compared by identity"


def _told_apart(site: LiveSite) -> Finding:
    return Finding(Claim.CARRIED, site, evidence=TOLD_APART)


def note_entering(tx: compat.Tracer, site: LiveSite, entering: Sequence[Value]) -> None:
    """Note that what enters an iteration may be any tensor."""
    for value in entering:
        assert isinstance(value, compat.TensorVariable)
        sharing.add_result(tx, example_of(value), (), _told_apart(site), is_any=True)


def watch_carried(
    tx: compat.Tracer,
    site: LiveSite,
    carried: Carried,
    values: tuple[Sequence[Value], Sequence[Value], Sequence[Value]],
) -> None:
    """Watch what was carried; ``values`` are before the loop, after an iteration and behind it.

    Those after an iteration are the carried ones alone.
    """
    finding = _told_apart(site)
    before, after = ([each[at].realize() for at in carried.tensors] for each in values[::2])
    tensors = [
        [example_of(each) for each in group if isinstance(each, compat.TensorVariable)]
        for group in (before, values[1][: len(carried.tensors)], after)
    ]
    starts, ends, results = tensors
    for value, result in zip(before, results, strict=True):
        if isinstance(value, compat.NumpyNdarrayVariable) and value.source is not None:
            shared_results.watch_leaving(tx, result, finding)  # Dynamo makes another array of it
    for start, result in zip(starts, results, strict=True):
        watches.add(tx, start, finding)
        watches.add(tx, result, finding)
        sharing.relate(tx, start, result)
        sharing.add_result(
            tx, result, [*starts, *ends], finding, is_older=True, is_read_before=True
        )
    related = [
        (results[one], results[other])
        for one, other in combinations(range(len(ends)), 2)
        if sharing.shares(tx, ends[one], ends[other])
    ]
    shared_results.relate(tx, related, finding)
