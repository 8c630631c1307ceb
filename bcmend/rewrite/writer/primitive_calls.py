"""Calls of the primitives: functions that decide at a site while Dynamo traces the code.

What each primitive takes and gives is declared in ``bcmend.tracing.entry``. The first argument is
always the name of the site.
"""

from __future__ import annotations

from bcmend.bytecode import emit
from bcmend.bytecode.instructions import Label
from bcmend.names import CONDITION, NAMESPACE
from bcmend.rewrite.sites.plan import Site
from bcmend.rewrite.writer.stretch import Emitted, Stretch


def ask(site: Site, name: str, *arguments: Emitted) -> Emitted:
    """Return a call of the primitive ``name`` for a site; it pushes the answer."""
    return emit.call_global((NAMESPACE, name), [emit.load_const(site.name), *arguments])


def write_condition_test(stretch: Stretch, site: Site, original: Label) -> None:
    """Write: store the condition, and go to ``original`` unless it is data-dependent."""
    stretch.add(emit.store_local(CONDITION))
    stretch.add(ask(site, "data_dependent", emit.load_local(CONDITION)))
    stretch.add(emit.jump_if_false(original))


def write_truth(stretch: Stretch, site: Site) -> None:
    """Write: put the truth of the condition in its place, where that is known."""
    stretch.add(emit.store_local(CONDITION))
    stretch.add(ask(site, "known", emit.load_local(CONDITION)))
    stretch.add(emit.as_condition())


def write_original_test(stretch: Stretch, original: Label) -> None:
    """Write: ``original``, with the condition on the stack for the unchanged jump that follows."""
    stretch.add([original, *emit.load_local(CONDITION), *emit.as_condition()])
