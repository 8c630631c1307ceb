"""Copies of tensors in records, made only of those that are changed later in the same trace.

A record keeps a tensor itself, and watches it. Where the complete graph shows that it has been
changed in place since, the frame is traced again, and the record keeps a copy of it: of this one
tensor, known by its number among those of its site. What two records keep of one tensor is one
copy.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import torch
from torch._dynamo.variables import TensorVariable

from bcmend.runtime import calls, watches
from bcmend.runtime.costs import bytes_of
from bcmend.runtime.merge import example_of
from bcmend.runtime.operations import storage_of
from bcmend.runtime.per_trace import at_the_end, kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.uncounted import changes

__all__ = ["is_due", "lies_in_differentiable", "unchanged"]


@dataclass(slots=True, eq=False)
class _Made:
    """What one trace has copied.

    Attributes:
        numbers: how many tensors each site has kept so far.
        sizes: how many bytes each has copied.
        copies: by graph, tensor and number of changes made to it until then.
    """

    numbers: Counter[LiveSite] = field(default_factory=Counter)
    sizes: dict[LiveSite, float] = field(default_factory=dict)
    copies: dict[tuple[Any, TensorVariable, int], TensorVariable] = field(default_factory=dict)


def _made(tx: Any) -> _Made:
    output = tx.output

    def begin() -> _Made:
        made = _Made()
        at_the_end(output, lambda: _note_sizes(made))
        return made

    return kept(output, "copies", begin)


def _note_sizes(made: _Made) -> None:
    for site, size in made.sizes.items():
        site.clone_bytes = int(size) if math.isfinite(size) else None


def is_due(tx: Any, site: LiveSite) -> bool:
    """Whether the next tensor that ``site`` keeps has to be copied, as far as is known."""
    return _made(tx).numbers[site] in site.copied


def unchanged(tx: Any, site: LiveSite, value: TensorVariable) -> TensorVariable:
    """Return a tensor that has the contents of ``value`` as they are now when the graph has run."""
    made = _made(tx)
    number = made.numbers[site]
    made.numbers[site] += 1
    made.sizes.setdefault(site, 0)
    example = example_of(value)
    if number not in site.copied and not lies_in_differentiable(value):
        watches.add(tx, example, lambda: site.copied.add(number))
        return value
    key = tx.output.current_tracer, value, changes(example)
    if key not in made.copies:
        made.copies[key] = calls.in_kind_of(tx, value, calls.method(tx, "clone", value))
        made.sizes[site] += bytes_of(example)
    return made.copies[key]


def lies_in_differentiable(value: TensorVariable) -> bool:
    """Whether a tensor lies in the memory of another one that has a gradient.

    Where both leave a graph, Inductor may hand out one object for the two, and what marks the kept
    one as having no gradient takes it from the other.
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
