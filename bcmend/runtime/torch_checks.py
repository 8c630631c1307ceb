"""``torch._check`` and its kin, with whatever message.

A condition that is known decides while the call is traced. One that only the data can tell becomes
a side exit: where it does not hold, the call is made in plain Python, which raises the exception of
eager execution with its own message.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch._dynamo import exc
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.runtime import guards, lower, scalars, sizes
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.substitution import Call, Refused, answers_to

__all__: list[str] = []

#: What each raises; of the others the first argument says it.
_RAISES: Final[dict[Any, type[Exception]]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
    torch._check_tensor_all: RuntimeError,
}

#: What torch says where it is given no message.
_NO_MESSAGE: Final = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please"
    " report an enhancement request to PyTorch.)"
)

Parts = tuple[type[Exception], VariableTracker, "VariableTracker | None"]


def _parts(call: Call) -> Parts | None:
    """Return exception, condition and message of a check; ``None`` for a call that fails."""
    names = ("cond", "message") if call.function in _RAISES else ("error_type", "cond", "message")
    if len(call.args) > len(names):
        return None
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    error: Any = _RAISES.get(call.function)
    if error is None and "error_type" in given:
        error = given.pop("error_type").as_python_constant()
    if "cond" not in given or not given.keys() <= set(names) or not _is_exception(error):
        return None
    return error, given["cond"].realize(), given.get("message")


def _is_exception(error: Any) -> bool:
    return (
        isinstance(error, type) and issubclass(error, Exception) and not issubclass(error, Warning)
    )


@answers_to("check")
def _check(call: Call) -> VariableTracker | None:
    """``torch._check(cond, message)``, and those that raise something else."""
    parts = _parts(call)
    if parts is None:
        return None
    error, condition, message = parts
    if isinstance(condition, SymNodeVariable) and isinstance(condition.sym_num, torch.SymBool):
        # The number in an argument has a known value, and a guard on it; better none.
        if free_unbacked_symbols(condition.sym_num) or scalars.has_tensor(call.tx, condition):
            return _left_to_the_data(call, condition)
        return _known(call, bool(condition.evaluate_expr()), error, message)
    known = condition.as_python_constant() if condition.is_python_constant() else None
    if not isinstance(known, bool):
        return None
    return _known(call, known, error, message)


@answers_to("check_all")
def _check_all(call: Call) -> VariableTracker | None:
    """``torch._check_tensor_all(cond, message)``."""
    parts = _parts(call)
    if parts is None or type(parts[1]) is not TensorVariable:
        return None
    tensor = parts[1]
    if example_of(tensor).dtype is not torch.bool:
        return None
    return _left_to_the_data(call, tensor.call_method(call.tx, "all", [], {}))


def _known(
    call: Call, holds: bool, error: type[Exception], message: VariableTracker | None
) -> VariableTracker:
    if holds:
        return constant(None)
    text: Any = _NO_MESSAGE
    if message is not None and not _is_none(message):
        text = message.realize().call_function(call.tx, [], {})
        if not (text.is_python_constant() and isinstance(text.as_python_constant(), str)):
            text = VariableTracker.build(call.tx, str).call_function(call.tx, [text], {})
    exc.raise_observed_exception(error, call.tx, args=[text])


def _is_none(value: VariableTracker) -> bool:
    return value.is_python_constant() and value.as_python_constant() is None


def _left_to_the_data(call: Call, condition: VariableTracker) -> VariableTracker | None:
    tx: Any = call.tx
    if not scalars.may_take(tx):
        return None
    if not guards.can_exit(tx, call.site):
        raise Refused("the call could not be made again in plain Python")
    predicate = guards.predicate_of(tx, call.site, condition)
    guards.make_side_exit(tx, call.site, lower.negated(tx, predicate), is_only_way=False)
    sizes.note_fact(tx, condition, truth=True)
    if isinstance(condition, SymNodeVariable) and tx.one_graph and _is_of_sizes(condition):
        # What is claimed of a number may be needed for the shapes that it makes.
        proxy = tx.output.create_proxy("call_function", torch._check, (condition.as_proxy(),), {})
        wrap_fx_proxy(tx, proxy)
    return constant(None)


def _is_of_sizes(condition: SymNodeVariable) -> bool:
    """Whether a condition compares integers that torch knows nothing of."""
    node = condition.as_proxy().node
    is_unknown = bool(free_unbacked_symbols(condition.sym_num))
    return (
        is_unknown
        and node.op == "call_function"
        and all(
            isinstance(each.meta.get("example_value"), torch.SymInt)
            for each in node.all_input_nodes
        )
    )
