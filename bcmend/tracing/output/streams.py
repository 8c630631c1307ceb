"""What all output depends on: the standard streams, and ``torch.set_printoptions``.

Dynamo replays a store to them when the graph has run, and a record is delivered after that. So
where a trace stores to one, its output statements are withdrawn.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
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
