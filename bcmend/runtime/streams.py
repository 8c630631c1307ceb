"""What all output depends on: the standard streams, and how tensors are printed.

``print`` writes to what ``sys.stdout`` is at the moment of the call, and the text of a tensor is as
``torch.set_printoptions`` has it then. Dynamo replays a store to either when the graph has run, and
a record is delivered after that; so where a trace stores to one, its output is left alone.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from torch._tensor_str import PRINT_OPTS

from bcmend.runtime.per_trace import at_the_end, kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["watch"]

_STREAMS: Final = frozenset(["stdout", "stderr"])


def watch(tx: Any, site: LiveSite) -> None:
    """Have an output statement left alone if the trace turns out to change what it depends on."""
    output = tx.output
    found: list[LiveSite] = kept(output, "writing_sites", list)
    if not found:
        at_the_end(output, lambda: _check(output.side_effects, found))
    found.append(site)


def _check(effects: Any, writing: list[LiveSite]) -> None:
    changed = next(_changed(effects), None)
    if changed is None:
        return
    for site in writing:
        site.withdraw("cannot-snapshot", f"{changed} changed in the call")
    raise SiteChanged(restart_reason=f"bcmend: {changed} changed")


def _changed(effects: Any) -> Iterator[str]:
    for owner, stored in effects.store_attr_mutations.items():
        value = getattr(owner, "value", None)
        if value is sys:
            yield from (f"sys.{name} is" for name in sorted(_STREAMS.intersection(stored)))
        elif value is PRINT_OPTS and stored:
            yield "the options for printing tensors are"
