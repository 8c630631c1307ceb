"""One more operation in the graph being traced, and the tensor that Dynamo makes of its result.

Arguments are Dynamo's variables, their proxies, or plain values.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy

__all__ = ["function", "method"]


def function(tx: Any, target: Any, *arguments: Any, **named: Any) -> TensorVariable:
    """Call a function in the graph."""
    return _add(tx, "call_function", target, arguments, named)


def method(tx: Any, name: str, *arguments: Any, **named: Any) -> TensorVariable:
    """Call a method of the first argument in the graph."""
    return _add(tx, "call_method", name, arguments, named)


def _add(
    tx: Any, kind: str, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> TensorVariable:
    given = tuple(
        each.as_proxy() if isinstance(each, VariableTracker) else each for each in arguments
    )
    result = wrap_fx_proxy(tx, tx.output.create_proxy(kind, target, given, named))
    assert isinstance(result, TensorVariable)
    return result
