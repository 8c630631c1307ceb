"""What all output depends on: standard streams, ``torch.set_printoptions``, filters of warnings.

Dynamo replays a store to the first two when the graph has run, and a record is delivered after
that. So where a trace stores to one, its output statements are withdrawn. Filters of warnings hold
in a block, which has been left by then.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from bcmend.dynamo import compat, frames
from bcmend.dynamo.models import translators
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.knowledge.callable_names import WARNING_FUNCTIONS
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites.site_table import LiveSite

_STREAMS: Final = frozenset(["stdout", "stderr"])

_WRITING: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=True)


def watch(tx: compat.Tracer, site: LiveSite) -> None:
    """Have an output statement withdrawn if the trace changes what it depends on."""
    output = tx.output
    found = _WRITING.of(output)
    if not found:
        at_the_end(output, Phase.CHECK, lambda module: _check(output.side_effects, found))
    found.append(site)


def is_in_a_block_of_warnings(tx: compat.Tracer, action: Any) -> bool:
    """Return whether a statement warns inside a block of ``warnings.catch_warnings``."""
    if not WARNING_FUNCTIONS.intersection(action.get_code().co_names):
        return False
    return any(
        isinstance(translators.context_left_by(each), compat.CatchWarningsCtxManagerVariable)
        for frame in frames.outwards(tx)
        for each in frame.stack  # what leaves a block lies there, in inlined frames too
    )


def _check(effects: Any, writing: list[LiveSite]) -> None:
    changed = next(_changed(effects), None)
    if changed is None or not writing:  # the arms with these statements may have been refused
        return
    detail = f"{changed} changed in the call"
    falsify(*(site.unmendable("cannot-snapshot", detail) for site in writing))


def _changed(effects: Any) -> Iterator[str]:
    for owner, stored in effects.store_attr_mutations.items():
        value = getattr(owner, "value", None)
        if value is sys:
            yield from (f"sys.{name} is" for name in sorted(_STREAMS.intersection(stored)))
        elif value is compat.PRINT_OPTS and stored:
            yield "the options for printing tensors are"
