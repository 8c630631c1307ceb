"""Changes in place that torch does not count for the tensor that is changed.

A norm in training writes its running statistics; ``torch._foreach_add_`` and its kin change fake
tensors without a count; and ``x.data`` has a count of its own. What watches a tensor goes by
``changes`` and not by the count of torch alone. Norms and changes of many tensors are noted when
Dynamo meets their calls, for the memory that they write to; of ``x.data``, the counts are added.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._dynamo.variables import ConstantVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch.fx import Node
from torch.nn import functional

from bcmend.runtime.merge import example_of
from bcmend.runtime.operations import storage_of

__all__ = ["changes", "install", "statistics_of"]

_NAME: Final = "_bcmend_uncounted"


@dataclass(slots=True, eq=False)
class _Uncounted:
    """By memory: how many changes torch has not counted; and tensors that count for themselves.

    Beside each of these is what it had counted when it was made.
    """

    noted: Counter[int] = field(default_factory=Counter)
    apart: dict[int, list[tuple[torch.Tensor, int]]] = field(default_factory=dict)


def changes(example: torch.Tensor) -> int:
    """Return how often a fake tensor has been changed in place, in this trace and before it."""
    found, memory = _uncounted(example), storage_of(example)
    apart = sum(each._version - before for each, before in found.apart.get(memory, ()))
    return example._version + found.noted[memory] + apart


def _uncounted(example: torch.Tensor) -> _Uncounted:
    """Return what torch has not counted; each trace has its own."""
    mode: Any = getattr(example, "fake_mode", None)
    if mode is None:
        return _Uncounted()
    if not hasattr(mode, _NAME):
        setattr(mode, _NAME, _Uncounted())
    found: _Uncounted = getattr(mode, _NAME)
    return found


def _note(variable: VariableTracker | None) -> None:
    """Note a change of a tensor."""
    changed = None if variable is None else variable.realize()
    if isinstance(changed, TensorVariable):
        example = example_of(changed)
        _uncounted(example).noted[storage_of(example)] += 1


#: Where a norm is given its statistics, and whether it is in training; and the name of the latter.
_NORMS: Final[dict[Callable[..., Any], tuple[int, str]]] = {
    functional.batch_norm: (1, "training"),
    torch.batch_norm: (3, "training"),
    torch.native_batch_norm: (3, "training"),
    torch.ops.aten.native_batch_norm: (3, "training"),
    functional.instance_norm: (1, "use_input_stats"),
    torch.instance_norm: (3, "use_input_stats"),
}
_AT: Final = 5
_STATISTICS: Final = ("running_mean", "running_var")


def statistics_of(node: Node) -> list[Node]:
    """Return the running statistics that a node of a graph may write."""
    first, switch = _NORMS.get(node.target, (0, ""))  # type: ignore[arg-type]
    if not switch or node.kwargs.get(switch, dict(enumerate(node.args)).get(_AT)) is False:
        return []
    given = (*node.args[first : first + 2], *map(node.kwargs.get, _STATISTICS))
    return [each for each in given if isinstance(each, Node)]


def _noting(before: Callable[..., Any] | None, first: int, switch: str) -> Callable[..., Any]:
    """Return a handler of a norm that notes what it writes, and leaves the rest to others."""

    def handle(called: Any, tx: Any, *given: VariableTracker, **named: VariableTracker) -> Any:
        if _may_be_true(named[switch] if switch in named else dict(enumerate(given)).get(_AT)):
            for each in (*given[first : first + 2], *map(named.get, _STATISTICS)):
                _note(each)
        return None if before is None else before(called, tx, *given, **named)

    return handle


def _may_be_true(switch: VariableTracker | None) -> bool:
    known = None if switch is None else switch.realize()
    return not isinstance(known, ConstantVariable) or bool(known.value)


#: Functions that change each tensor of a list.
_OF_LISTS: Final = [
    getattr(torch, name)
    for name in dir(torch)
    if name.startswith("_foreach_") and name.endswith("_")
]


def _noting_list(before: Callable[..., Any] | None) -> Callable[..., Any]:
    """Return a handler of a function that changes the tensors of its first argument."""

    def handle(called: Any, tx: Any, *given: VariableTracker, **named: VariableTracker) -> Any:
        first: Any = given[0].realize() if given else named["self"].realize()
        for each in getattr(first, "items", ()):
            _note(each)
        return None if before is None else before(called, tx, *given, **named)

    return handle


def _with_counts(before: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``TensorVariable.method_attr_data`` such that the result's changes are found again."""

    def method_attr_data(self: TensorVariable, tx: Any) -> VariableTracker:
        result: VariableTracker = before(self, tx)
        if isinstance(result, TensorVariable):
            example = example_of(result)
            known = _uncounted(example).apart.setdefault(storage_of(example), [])
            known.append((example, example._version))
        return result

    return method_attr_data


def install() -> None:
    """Let Dynamo ask here first."""
    handlers = TorchInGraphFunctionVariable._get_handlers()
    for norm, (first, switch) in _NORMS.items():
        handlers[norm] = _noting(handlers.get(norm), first, switch)
    for function in _OF_LISTS:
        handlers[function] = _noting_list(handlers.get(function))
    TensorVariable.method_attr_data = _with_counts(TensorVariable.method_attr_data)  # type: ignore[method-assign]
