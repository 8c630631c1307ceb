"""Functions that compute arrays on the host, called inside the graph.

A function such as one that draws the spans of a spectrogram to be masked reads numbers out of
tensors, loops as often as they say and fills an array by numpy. Nothing of that can be captured,
but its result mostly has one shape whatever the data. Where the trace has stopped in a function of
which ``analysis.host_only`` knows that it does nothing else, the next trace has an operator in its
place, ``bcmend::host_function``, which calls it with the tensors as they are then. The operator has
an effect in torch's sense, so that it is neither removed nor run twice, and several keep their
order.

Which shape the result has is tried once, while the call is traced. Where a later result is of
another, or the function fails, a side exit makes the call in plain Python.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from types import CodeType, FunctionType
from typing import Any, Final

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.variables import NumpyNdarrayVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy
from torch._dynamo.variables.tensor import SymNodeVariable
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.analysis.host_only import is_host_only
from bcmend.runtime import guards, host_calls, operators, random_numbers, scalars
from bcmend.runtime.backoff import Stop
from bcmend.runtime.leaves import is_plain
from bcmend.runtime.merge import example_of
from bcmend.runtime.substitution import Call, Refused, answers_to, require_always, take_over
from bcmend.substitutes import Substitute

__all__ = ["take_over_where_stopped"]

_PLAIN: Final = (bool, int, float, str, type(None))

#: What each call in a graph is, by its key: a function, and its arguments with ``_Place`` for each
#: tensor. A key says all that there is to know, so that a graph out of a cache finds its own.
_CALLS: Final[dict[str, _Made]] = {}


class _Made:
    """A call, but for the tensors that are given to it."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    @property
    def key(self) -> str:
        name = f"{self.function.__module__}.{self.function.__qualname__}"
        return f"{name} {self.args!r} {self.kwargs!r}"

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        given = iter(tensors)

        def filled(value: Any) -> Any:
            return next(given) if isinstance(value, _Place) else value

        args = [filled(each) for each in self.args]
        kwargs = {name: filled(each) for name, each in self.kwargs.items()}
        return self.function(*args, **kwargs)


def _registered(made: _Made) -> str:
    """Keep a call; return its key, which that of another function by the same name does not get."""
    key = made.key
    while key in _CALLS and not _is_same(_CALLS[key].function, made.function):
        key += "'"
    _CALLS[key] = made
    return key


def _is_same(one: FunctionType, other: FunctionType) -> bool:
    same_code = one.__code__ == other.__code__ and one.__globals__ is other.__globals__
    return one is other or (same_code and one.__defaults__ == other.__defaults__)


class _Place:
    """Stands for a tensor among the arguments of a call."""

    def __repr__(self) -> str:
        return "<tensor>"


# The operator


def _run(
    key: str, tensors: Sequence[torch.Tensor], shape: Sequence[int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the array, and whether the call has to be made in plain Python."""
    copies = [each.detach().clone() for each in tensors]
    callback = set_eval_frame(None)  # what it does is not compiled
    try:
        result = torch.from_numpy(_CALLS[key](copies)).clone()
        is_as_tried = result.shape == torch.Size(shape) and result.dtype == dtype
    except Exception:  # the call in plain Python raises it where eager execution does
        is_as_tried = False
    finally:
        set_eval_frame(callback)
    if not is_as_tried or not _are_equal(copies, tensors):
        return torch.zeros(shape, dtype=dtype), torch.tensor(True)
    return result.contiguous(), torch.tensor(False)


def _are_equal(copies: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> bool:
    """Whether copies still hold what they are copies of, bit for bit.

    What writes through an array of numpy's leaves no trace in the version of a tensor.
    """
    pairs = zip(copies, tensors, strict=True)
    return all(torch.equal(*map(_bytes, each)) for each in pairs)


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().reshape(-1).view(torch.uint8)


def _fake(
    key: str, tensors: Sequence[torch.Tensor], shape: Sequence[int], dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.empty(shape, dtype=dtype), torch.empty((), dtype=torch.bool)


HOST_FUNCTION: Final = operators.define(
    "host_function(str key, Tensor[] tensors, int[] shape, ScalarType dtype) -> (Tensor, Tensor)",
    _run,
    _fake,
)


# Which functions


def _code_of(function: FunctionType) -> CodeType:
    return function.__code__


#: Gives the code of a function as it was written. Set by the installation.
code_of: Callable[[FunctionType], CodeType] = _code_of


def take_over_where_stopped(stops: Iterable[Stop]) -> bool:
    """Have the innermost function that can be called by the operator be called so from now on."""
    return any(map(_take_over, stops))


def _take_over(stop: Stop) -> bool:
    function = stop.function
    if not isinstance(function, FunctionType) or not is_host_only(function, code_of):
        return False
    name = f"{function.__module__}.{function.__qualname__}"
    return take_over(function, Substitute(name, "host function"))


@answers_to("host function")
def _call(call: Call) -> VariableTracker:
    tx: Any = call.tx
    if tx.export or not scalars.may_take(tx):
        raise Refused("the graph may break, or is exported")
    require_always(tx, "called")
    if not guards.can_exit(tx, call.site):
        raise Refused("the call could not be made again in plain Python")
    tensors: list[TensorVariable] = []
    args = [_argument(each, tensors) for each in call.args]
    kwargs = {name: _argument(each, tensors) for name, each in call.kwargs.items()}
    made = _Made(call.function, args, kwargs)
    example = _tried(made, tensors)
    key = _registered(made)
    host_calls.note_drawn_inside(tx)
    operands = (
        key,
        [each.as_proxy() for each in tensors],
        list(example.shape),
        example.dtype,
    )
    results: Any = wrap_fx_proxy(
        tx, tx.output.create_proxy("call_function", HOST_FUNCTION, operands, {})
    )
    array, is_other = results.items
    guards.make_side_exit(tx, call.site, is_other, is_only_way=True)
    same = tx.output.create_proxy("call_method", "detach", (array.as_proxy(),), {})
    shown: VariableTracker = NumpyNdarrayVariable.create(tx, same)
    return shown


def _argument(value: VariableTracker, tensors: list[TensorVariable]) -> Any:
    """Return a constant, or a place for a tensor, which is added to ``tensors``."""
    value = value.realize()
    if isinstance(value, TensorVariable):
        if not is_plain(value) or example_of(value).requires_grad:
            raise Refused("a tensor of a subclass, or one that requires gradients")
        if free_unbacked_symbols(example_of(value)):
            raise Refused("a tensor of a size that the data tell")
        tensors.append(value)
        return _Place()
    return _constant(value)


def _constant(value: VariableTracker) -> Any:
    """Return an immutable value; a size that varies from call to call has a graph for each."""
    value = value.realize()
    if isinstance(value, TupleVariable):
        return tuple(map(_constant, value.items))
    if isinstance(value, SymNodeVariable) and not free_unbacked_symbols(value.sym_num):
        return value.evaluate_expr()
    known = value.as_python_constant() if value.is_python_constant() else value
    if not _is_immutable(known):
        raise Refused("an argument that is no tensor and no constant")
    return known


def _is_immutable(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_immutable, value))
    return type(value) in _PLAIN


#: What to fill tensors with, to see which shape a call gives: as a mask, a length, an index.
_FILLS: Final = (1, 64, 0)


def _tried(made: _Made, tensors: Sequence[TensorVariable]) -> torch.Tensor:
    """Return what the call gives, in the form that the graph has it in.

    It is tried with the arguments of the call being traced, if these are what it gets, else with
    tensors of one number.
    """
    before = random_numbers.states_of_python()
    failed: Exception | None = None
    try:
        for examples in _examples(tensors):
            before_call = [each.clone() for each in examples]
            try:
                result = torch.from_numpy(made(examples)).clone()
            except Exception as error:
                failed = failed or error
                continue
            if not _are_equal(examples, before_call):
                raise Refused("it changes an argument")
            return result
    finally:
        random_numbers.put_back_python(before)
    raise Refused(f"it raises {type(failed).__name__} when it is tried")


def _examples(tensors: Sequence[TensorVariable]) -> Iterator[list[torch.Tensor]]:
    nodes = [each.as_proxy().node for each in tensors]
    given = [each.meta["grapharg"] for each in nodes if "grapharg" in each.meta]
    values = [each.example for each in given if isinstance(each.example, torch.Tensor)]
    if len(values) == len(tensors):
        yield [each.detach().clone() for each in values]
    forms = [example_of(each) for each in tensors]
    for fill in _FILLS:
        yield [
            torch.full([int(size) for size in each.shape], fill, dtype=each.dtype) for each in forms
        ]
