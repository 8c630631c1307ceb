"""What must not be changed later in the same trace.

Fake tensors count their in-place changes, views with their base, as real ones do. A watch notes the
count; when the graph is complete the counts are compared, and where one has moved, the site is told
and the frame is traced again. Of an object, Dynamo keeps what was stored to its attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import exc
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime.per_trace import at_the_end
from bcmend.runtime.uncounted import changes

__all__ = ["SiteChanged", "add", "add_object"]

Watch = tuple[Callable[[], bool], Callable[[], None]]


class SiteChanged(exc.UnspecializeRestartAnalysis):
    """Restarts the tracing of a frame after a site has been switched."""


def add(tx: Any, example: torch.Tensor, on_change: Callable[[], None]) -> None:
    """Watch ``example``; call ``on_change`` and trace again if its contents change."""
    before = changes(example)
    _add(tx, lambda: changes(example) != before, on_change)


def add_object(tx: Any, value: VariableTracker, on_change: Callable[[], None]) -> None:
    """Watch an object; call ``on_change`` and trace again if something is stored to it."""
    effects = tx.output.side_effects
    before = _stored(effects, value)
    _add(tx, lambda: _stored(effects, value) != before, on_change)


def _stored(effects: Any, value: VariableTracker) -> dict[str, int]:
    """Return what a trace has stored to the attributes of an object, by identity."""
    stored = effects.store_attr_mutations.get(value, {})
    return {name: id(each) for name, each in stored.items()}


def _add(tx: Any, is_changed: Callable[[], bool], on_change: Callable[[], None]) -> None:
    output = tx.output
    watches = getattr(output, "_bcmend_watches", None)
    if watches is None:
        watches = output._bcmend_watches = []
        at_the_end(output, lambda: _check(watches))
    watches.append((is_changed, on_change))


def _check(watches: list[Watch]) -> None:
    changed = [on_change for is_changed, on_change in watches if is_changed()]
    for on_change in changed:
        on_change()
    if changed:
        raise SiteChanged(restart_reason="bcmend: what a mended site needs is changed later")
