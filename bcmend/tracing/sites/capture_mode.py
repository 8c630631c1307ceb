"""In which mode patched code is being captured: as one graph, or with breaks where it must."""

from __future__ import annotations

from bcmend.dynamo import compat, frames
from bcmend.names import BUFFER
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import body_states


def in_mended_code(tx: compat.Tracer) -> bool:
    """Return whether ``tx`` traces mended code that is to be captured in one piece."""
    if not any(BUFFER in frame.symbolic_locals for frame in frames.outwards(tx)):
        return False
    if tx.one_graph:
        return True
    root = tx.output.root_tx
    return bool(
        tx.error_on_graph_break
        and root.symbolic_locals.get(BUFFER) is not None
        and body_states.state_of(root.f_code).holds(Claim.NUMBERS)
    )


def may_be_mended(tx: compat.Tracer) -> bool:
    """Return whether ``tx`` traces mended code, or patched code that is mended where it stops.

    A patched function in which nothing was mended is traced as it was written, inside of others.
    """
    return bool(tx.one_graph) or in_mended_code(tx)


def may_assert(tx: compat.Tracer) -> bool:
    """Return whether the graph may assert what the program does not; if it fails, Python runs."""
    return in_mended_code(tx) and BUFFER in tx.output.root_tx.symbolic_locals
