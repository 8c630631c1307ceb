"""One more operation in the graph being traced, and the tensor that Dynamo makes of its result.

Arguments are Dynamo's variables, their proxies, or plain values.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.variables import NumpyNdarrayVariable, TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import get_specialized_props, wrap_fx_proxy
from torch.fx import Proxy

__all__ = ["function", "in_kind_of", "method", "variable_of"]


def function(tx: Any, target: Any, *arguments: Any, **named: Any) -> TensorVariable:
    """Call a function in the graph."""
    return _add(tx, "call_function", target, arguments, named)


def method(tx: Any, name: str, *arguments: Any, **named: Any) -> TensorVariable:
    """Call a method of the first argument in the graph."""
    return _add(tx, "call_method", name, arguments, named)


def in_kind_of(tx: Any, model: VariableTracker, value: Any) -> Any:
    """Return ``value`` as an array of numpy's, which is a tensor to the graph, if ``model`` is."""
    if type(model) is not NumpyNdarrayVariable or type(value) is not TensorVariable:
        return value
    return variable_of(tx, value.as_proxy(), NumpyNdarrayVariable)


def variable_of(tx: Any, proxy: Proxy, kind: type[TensorVariable] = TensorVariable) -> Any:
    """Return another variable for a tensor that is in the graph."""
    example = proxy.node.meta["example_value"]
    return kind(proxy, **get_specialized_props(kind, tx, example, None))


def _add(
    tx: Any, kind: str, target: Any, arguments: tuple[Any, ...], named: dict[str, Any]
) -> TensorVariable:
    given = tuple(
        each.as_proxy() if isinstance(each, VariableTracker) else each for each in arguments
    )
    result = wrap_fx_proxy(tx, tx.output.create_proxy(kind, target, given, named))
    assert isinstance(result, TensorVariable)
    return result
