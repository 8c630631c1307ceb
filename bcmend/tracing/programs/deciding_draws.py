"""Random operators whose numbers were computed in front of the graph, and decide what it is.

They stay in the graph, which draws again what was drawn in front of it. Nothing else may read what
they draw: a back end may have random numbers of its own.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import Node, Proxy

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.dynamo.fx_graph import close_over, function
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import TensorValue
from bcmend.tracing.effects.operator_runs import facts_of_node
from bcmend.tracing.effects.random_draws import may_draw
from bcmend.tracing.programs import random_forms
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.lifted_inputs import before_arms
from bcmend.tracing.sites.live_state import LiveSite

#: What draws the numbers that were computed in front of the graph, and the sites of the numbers.
_DECIDING: Final[Slot[set[Node]]] = Slot(set, rolls_back=False)
_SITES: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=False)


def keep(tx: compat.Tracer, predicate: TensorValue) -> None:
    """Keep the random operators that a truth comes from, although nothing depends on it now."""
    # Without one every later number would be another, and a back end takes out what has no use. An
    # assertion that cannot fail is a use that stays.
    sources: set[Node] = set()
    close_over(sources, [predicate.as_proxy().node])
    if any(map(may_draw, sources)):
        contrary = function(tx, torch.logical_not, predicate)
        holds = function(tx, torch.logical_or, predicate, contrary).as_proxy()
        arguments = (holds, "a truth or its contrary holds")
        kept = tx.output.create_proxy("call_function", compat.ASSERT_ASYNC, arguments, {})
        kept.node.meta[meta_keys.KEEPS] = True


def note(tx: compat.Tracer, node: Node, site: LiveSite | None = None) -> bool:
    """Note what draws the numbers behind a node that was computed in front of the graph.

    Return whether there is anything, which is to be kept. ``site`` is that of a number.
    """
    sources = set[Node]()
    close_over(sources, [before_arms(tx, Proxy(node)).node])
    drawn = set(filter(random_forms.is_drawn, sources))
    if not drawn:
        return False
    deciding, sites = _DECIDING.of(tx.output), _SITES.of(tx.output)
    if not deciding:
        state = body_states.state_of(tx.output.root_tx.f_code)

        def examine(_: object) -> None:
            if any(map(_is_read, deciding)):
                body_states.take_ahead(tx)  # the graph may have read what can be a number
                for each in sites:
                    each.mended("")
                falsify(Finding(Claim.DRAWN, state))

        at_the_end(tx.output, Phase.CHECK, examine)
    deciding |= drawn
    sites.extend([] if site is None else [site])
    return True


def _is_read(node: Node) -> bool:
    """Return whether something depends on what a node gives, beside what keeps it."""
    found, pending = set[Node](), [node]
    while pending:
        for each in pending.pop().users:
            if each in found or meta_keys.KEEPS in each.meta:
                continue
            facts = facts_of_node(each)
            is_plain = each.op in ("call_function", "call_method") and not (
                isinstance(each.target, compat.HigherOrderOperator)
                or facts.changes(each.args, each.kwargs)
                or facts.has_hidden_state
                or may_draw(each)
                or each.is_impure()
            )
            if not is_plain:
                return True
            found.add(each)
            pending.append(each)
    return False
