"""Tensors that must not be changed later in the same trace.

Fake tensors count their in-place changes, views with their base, as real ones do. A watch notes the
count; when the graph is complete the counts are compared, and where one has moved, the site is told
and the frame is traced again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo import exc

__all__ = ["SiteChanged", "add"]


class SiteChanged(exc.UnspecializeRestartAnalysis):
    """Restarts the tracing of a frame after a site has been switched."""


def add(tx: Any, example: torch.Tensor, on_change: Callable[[], None]) -> None:
    """Watch ``example``; call ``on_change`` and trace again if its contents change."""
    output = tx.output
    watches = getattr(output, "_bcmend_watches", None)
    if watches is None:
        watches = output._bcmend_watches = []
        output.register_finalizer_fns.append(lambda module: _check(watches))
    watches.append((example, example._version, on_change))


def _check(watches: list[tuple[torch.Tensor, int, Callable[[], None]]]) -> None:
    changed = [on_change for example, version, on_change in watches if example._version != version]
    for on_change in changed:
        on_change()
    if changed:
        raise SiteChanged(restart_reason="bcmend: a tensor of a mended site is changed later")
