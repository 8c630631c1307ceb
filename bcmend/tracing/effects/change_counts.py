"""In-place changes of tensors, with those that torch's version counter misses.

Running statistics of norms and what ``torch._foreach_add_`` and its kin change are noted by storage
when Dynamo meets the calls; ``x.data`` has a version counter of its own, which is added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.autograd.graph import increment_version
from torch.fx import Node
from torch.nn import functional

from bcmend.dynamo import compat, handlers, hooks, trace_state
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, example_of
from bcmend.knowledge import effects, targets
from bcmend.tracing.effects.operator_runs import storage_of


@dataclass(slots=True, eq=False)
class _Uncounted:
    """By storage: changes that torch has not counted, and the tensors with counters of their own.

    Beside each of these is its count when it was made. ``raised``: how often bcmend has raised the
    count of a fake tensor for a change that the program makes without.
    """

    noted: Counter[int] = field(default_factory=Counter)
    raised: Counter[int] = field(default_factory=Counter)
    apart: dict[int, list[tuple[torch.Tensor, int]]] = field(default_factory=dict)


_UNCOUNTED: Final = Slot(_Uncounted, rolls_back=False)


def changes(example: torch.Tensor) -> int:
    """Return how often a fake tensor has been changed in place."""
    found, memory = _uncounted(example), storage_of(example)
    apart = sum(each._version - before for each, before in found.apart.get(memory, ()))
    return example._version + found.noted[memory] + apart


def counted(example: torch.Tensor) -> int:
    """Return how many changes in place of a fake tensor torch has counted in the program."""
    return example._version - _uncounted(example).raised[storage_of(example)]


def raise_count(example: torch.Tensor) -> None:
    """Have those that watch a fake tensor notice a change that torch does not count."""
    increment_version(example)
    _uncounted(example).raised[storage_of(example)] += 1


def _uncounted(example: torch.Tensor) -> _Uncounted:
    mode: Any = getattr(example, "fake_mode", None)
    return _Uncounted() if mode is None else _UNCOUNTED.of(mode)


def note(changed: Any) -> None:
    """Have those that watch a tensor notice a change that has no count of torch's."""
    if isinstance(changed, compat.TensorVariable):
        example = example_of(changed)
        _uncounted(example).noted[storage_of(example)] += 1


#: Norms that write their running statistics in training.
_NORMS: Final[tuple[Callable[..., Any], ...]] = (
    functional.batch_norm,
    torch.batch_norm,
    torch.native_batch_norm,
    torch.ops.aten.native_batch_norm,
    functional.instance_norm,
    torch.instance_norm,
)


def statistics_of(node: Node) -> list[Node]:
    """Return the running statistics that a node of a graph may write."""
    if node.op not in ("call_function", "call_method"):
        return []
    given = _statistics_in(node.target, node.args, node.kwargs)
    return [each for each in given if isinstance(each, Node)]


def _statistics_in(target: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> list[Any]:
    norm = effects.facts_of_target(target).statistics
    if norm is None or norm.switch.is_off(arguments, keywords):
        return []
    return [*arguments[norm.first : norm.first + 2], *map(keywords.get, norm.names)]


def _note_statistics(call: Call) -> Answer:
    """Note the change of running statistics."""
    named = {name: _known(each) for name, each in call.kwargs.items()}
    for each in _statistics_in(call.function, list(map(_known, call.args)), named):
        note(each)
    return PASS


def _known(value: Value) -> Any:
    """Return the constant behind a value, or the value if it is none."""
    known = value.realize()
    return known.value if isinstance(known, compat.ConstantVariable) else known


def _note_lists(call: Call) -> Answer:
    """Note the change of each tensor in the lists that are changed."""
    for position, name in targets.changed_lists(call.function):
        given = call.args[position : position + 1] or [call.kwargs.get(name)]
        for each in getattr(given[0] and given[0].realize(), "items", ()):
            note(each.realize())
    return PASS


_PURPOSE: Final = "changes in place that torch does not count"

for _norm in _NORMS:
    handlers.function(_norm, _PURPOSE)(_note_statistics)
for _function in targets.CHANGING_LISTS:
    handlers.function(_function, _PURPOSE)(_note_lists)


@hooks.around(compat.TensorVariable, methods.DATA_OF_TENSOR, _PURPOSE)
def _attr_data(inner: Any, variable: TensorValue, tx: compat.Tracer) -> Value:
    """Model ``x.data``, and note the version counter of the result."""
    result: Value = inner(variable, tx)
    if isinstance(result, compat.TensorVariable):
        _count_apart(example_of(result))
    return result


def _count_apart(example: torch.Tensor) -> None:
    """Note a tensor that shares memory with another and has its own version counter."""
    known = _uncounted(example).apart.setdefault(storage_of(example), [])
    known.append((example, example._version))


@trace_state.when_late
def _follow_earlier(tx: compat.Tracer) -> None:
    """Note each ``x.data`` in the part of a trace before patched code."""
    for node in tx.output.graph.nodes:
        example = node.meta.get("example_value")
        if node.target is compat._get_data_attr and isinstance(example, torch.Tensor):
            _count_apart(example)
