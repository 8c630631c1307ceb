"""Copies of tensors in records, made only of those that are changed later in the same trace.

A record stores the tensor itself and watches it. If the complete graph has changed it in place
since, the frame is traced again, and the record stores a copy of this one tensor, known by its
number among those of its site. Records share the copies of a tensor.

``lies_in_differentiable`` works round AOTAutograd: Inductor may return one object for a tensor and
a detached one, and marking the second as not differentiable detaches the first
(https://github.com/pytorch/pytorch/pull/195357; reproduced on 2.13.0). It can go when
``test_a_result_loses_its_gradient_to_a_detached_one`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import torch

from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import example_of
from bcmend.tracing.effects import watches
from bcmend.tracing.effects.change_counts import changes
from bcmend.tracing.effects.costs import bytes_of
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites.site_table import LiveSite

Tensor: TypeAlias = compat.TensorVariable


@dataclass(slots=True, eq=False)
class _Made:
    """What one trace has copied: how many tensors and bytes a site, and the copies.

    The copies are found by graph, tensor and number of changes made to the tensor until then.
    """

    numbers: Counter[LiveSite] = field(default_factory=Counter)
    sizes: dict[LiveSite, float] = field(default_factory=dict)
    copies: dict[tuple[Any, Tensor, int], Tensor] = field(default_factory=dict)


_MADE: Final = Slot(_Made, rolls_back=True)


def _made(tx: compat.Tracer) -> _Made:
    made = _MADE.peek(tx.output)
    if made is None:
        made = _MADE.of(tx.output)
        at_the_end(tx.output, Phase.TELL, lambda module: _note_sizes(made))
    return made


def _note_sizes(made: _Made) -> None:
    for site, size in made.sizes.items():
        site.outcome.clone_bytes = int(size) if math.isfinite(size) else None


def is_due(tx: compat.Tracer, site: LiveSite) -> bool:
    """Return whether the next tensor that ``site`` stores has to be copied, as far as is known."""
    return not site.holds(Claim.UNCHANGED, _made(tx).numbers[site])


def unchanged(tx: compat.Tracer, site: LiveSite, value: Tensor) -> Tensor:
    """Return a tensor that still has the present contents of ``value`` when the graph has run."""
    made = _made(tx)
    number = made.numbers[site]
    made.numbers[site] += 1
    made.sizes.setdefault(site, 0)
    example = example_of(value)
    if site.holds(Claim.UNCHANGED, number) and not lies_in_differentiable(value):
        watches.add(tx, example, Finding(Claim.UNCHANGED, site, number))
        return value
    key = tx.output.current_tracer, value, changes(example)
    if key not in made.copies:
        made.copies[key] = fx_graph.in_kind_of(tx, value, fx_graph.method(tx, "clone", value))
        made.sizes[site] += bytes_of(example)
    return made.copies[key]


def lies_in_differentiable(value: Tensor) -> bool:
    """Return whether a tensor lies in the memory of another one that requires a gradient.

    Inductor may return one object for the two, and detaching the one detaches the other.
    """
    node, memory = value.as_proxy().node, storage_of(example_of(value))
    waiting = list(node.all_input_nodes)
    while waiting:
        example = waiting[-1].meta.get("example_value")
        inner = waiting.pop().all_input_nodes
        if isinstance(example, torch.Tensor) and storage_of(example) == memory:
            if example.requires_grad:
                return True
            waiting += inner
    return False
