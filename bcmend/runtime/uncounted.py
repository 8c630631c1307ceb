"""Changes in place that torch does not count: a norm in training writes its running statistics.

What watches a tensor goes by ``changes`` and not by the count of torch alone. A norm is noted when
Dynamo meets its call, for the memory that the statistics lie in.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
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


def changes(example: torch.Tensor) -> int:
    """Return how often a fake tensor has been changed in place, in this trace and before it."""
    return example._version + _uncounted(example)[storage_of(example)]


def _uncounted(example: torch.Tensor) -> Counter[int]:
    """Return the changes that torch has not counted, by memory; each trace has its own."""
    mode: Any = getattr(example, "fake_mode", None)
    if mode is None:
        return Counter()
    if not hasattr(mode, _NAME):
        setattr(mode, _NAME, Counter())
    found: Counter[int] = getattr(mode, _NAME)
    return found


#: Where a norm is given its statistics, and whether it is in training; and the name of the latter.
_NORMS: Final[dict[Callable[..., Any], tuple[int, str]]] = {
    functional.batch_norm: (1, "training"),
    torch.batch_norm: (3, "training"),
    torch.native_batch_norm: (3, "training"),
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
                statistics = None if each is None else each.realize()
                if isinstance(statistics, TensorVariable):
                    example = example_of(statistics)
                    _uncounted(example)[storage_of(example)] += 1
        return None if before is None else before(called, tx, *given, **named)

    return handle


def _may_be_true(switch: VariableTracker | None) -> bool:
    known = None if switch is None else switch.realize()
    return not isinstance(known, ConstantVariable) or bool(known.value)


def install() -> None:
    """Let Dynamo ask here first."""
    handlers = TorchInGraphFunctionVariable._get_handlers()
    for norm, (first, switch) in _NORMS.items():
        handlers[norm] = _noting(handlers.get(norm), first, switch)
