"""What became of the sites of what is compiled, for `TORCH_TRACE` and `TORCH_LOGS`.

Each graph with code that is patched has an artifact "bcmend" beside it, which tlparse shows, and
its lines as records of the logger. Nothing is done where neither is on.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Mapping, Sequence
from functools import partial
from types import CodeType, MappingProxyType
from typing import Final

from bcmend.dynamo import compat, frames
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import WHEN_ENTERED, Phase, at_the_end
from bcmend.patching import site_records
from bcmend.patching.table import TABLE
from bcmend.policy import Policy
from bcmend.reports.outcomes import SiteRecord
from bcmend.reports.site_report import Report, line_of

_LOG: Final = logging.getLogger("bcmend")
#: Whether something is going to be said of a trace.
_IS_AWAITED: Final[Slot[bool]] = Slot(bool, rolls_back=False)


class _Entered(threading.local):
    """What this thread's traces that began in ``root`` have entered since something was said.

    A graph that ends in front of a call has been found to break in it by a trace before. ``codes``
    has the policy of each.
    """

    root: weakref.ref[CodeType] | None = None
    codes: Mapping[CodeType, Policy] = MappingProxyType({})


_ENTERED: Final = _Entered()


def _look(tx: compat.Tracer) -> None:
    if compat.trace_log.handlers or _LOG.isEnabledFor(logging.INFO):
        _note(tx)


WHEN_ENTERED.append(_look)


def _note(tx: compat.Tracer) -> None:
    root = tx.output.root_tx.f_code
    if _ENTERED.root is None or _ENTERED.root() is not root:
        _ENTERED.root, _ENTERED.codes = weakref.ref(root), {}
    _ENTERED.codes = {frames.resumed(tx.f_code): frames.mark_over(tx), **_ENTERED.codes}
    if not _IS_AWAITED.of(tx.output):
        _IS_AWAITED.put(tx.output, True)
        at_the_end(tx.output, Phase.TELL, lambda _: _tell())


def _tell() -> None:
    lines = list(map(line_of, _met(_ENTERED.codes)))
    _ENTERED.root = None
    if lines:
        about = {"name": "bcmend", "encoding": "string"}
        compat.trace_structured("artifact", lambda: about, payload_fn=partial("\n".join, lines))
    for line in lines:
        _LOG.info("%s", line)


def _met(entered: Mapping[CodeType, Policy]) -> Sequence[SiteRecord]:
    """Return what became of the sites of code, but for those that no trace has reached."""
    with TABLE.lock:
        found = {
            each.name: each
            for function, code in TABLE.reached_in(entered)
            for each in site_records.site_records([function], entered[code])
            if each.status != "planned"
        }
    return Report("", tuple(found.values()), 0, 0).sites  # in their order
