"""Functions that compute arrays on the host, called inside the graph.

A function such as one that draws the spans of a spectrogram to be masked reads numbers out of
tensors, loops and fills an array by numpy. None of that can be captured, but its result mostly has
one shape. Where the trace has stopped in a function of which ``analysis.host_only`` knows that it
does nothing else, the next trace has the operator ``bcmend::host_function`` in its place, which
calls it with the tensors as they are then. The operator has an effect in torch's sense, so that it
is neither removed nor run twice, and several keep their order.

The shape of the result is found by one call while tracing. Where a later result is of another
shape, or the function fails, a side exit makes the call in plain Python.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, Final

import torch

from bcmend.analysis.host_only import is_host_only
from bcmend.bytecode.names_used import code_objects
from bcmend.dynamo import compat, frames, operators
from bcmend.dynamo.handlers import Answer
from bcmend.dynamo.values import Value, example_of, is_unbacked
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.knowledge.interruptions import is_interruption
from bcmend.knowledge.substitute_rows import Substitute
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.search import strict
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.body_states import Stop, state_of
from bcmend.tracing.sites.session import SESSION
from bcmend.tracing.substitutes import dispatch, host_calls
from bcmend.tracing.substitutes.autograd_leaf import is_plain
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal

_PLAIN: Final = (bool, int, float, str, type(None))

#: What each call in a graph is, by its key: a function, and its arguments with ``_Place`` for each
#: tensor. A key says all that there is to know, so that a graph out of a cache finds its own. It
#: lives as long as compiled code that makes the call.
_CALLS: Final[weakref.WeakValueDictionary[str, _Made]] = weakref.WeakValueDictionary()


class _Made:
    """A call, but for the tensors that are given to it."""

    def __init__(self, function: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        self.function, self.args, self.kwargs = function, args, kwargs

    @property
    def key(self) -> str:
        return f"{_name(self.function)} {self.args!r} {self.kwargs!r}"

    def __call__(self, tensors: Sequence[torch.Tensor]) -> Any:
        given = iter(tensors)

        def filled(value: Any) -> Any:
            return next(given) if isinstance(value, _Place) else value

        args = [filled(each) for each in self.args]
        kwargs = {name: filled(each) for name, each in self.kwargs.items()}
        return self.function(*args, **kwargs)


def _name(function: Any) -> str:
    return f"{function.__module__}.{function.__qualname__}"


def _registered(tx: compat.Tracer, made: _Made) -> str:
    """Return the key of a call, which that of another function by the same name does not get."""
    key = made.key
    while (known := _CALLS.get(key)) is not None and not _is_same(known.function, made.function):
        key += "'"
    frames.keep_with(tx, _CALLS.setdefault(key, made))
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
    callback = compat.set_eval_frame(None)  # what it does is not compiled
    try:
        result = torch.from_numpy(_CALLS[key](copies)).clone()
        is_as_tried = result.shape == torch.Size(shape) and result.dtype == dtype
    except Exception as error:
        # The function of the program fails, or gives no array. The call in plain Python raises
        # what it raises, where eager execution does.
        if is_interruption(error):
            raise
        strict.require_foreign(error, _run, _Made.__call__)
        is_as_tried = False
    finally:
        compat.set_eval_frame(callback)
    if not is_as_tried or not _are_equal(copies, tensors):
        return torch.zeros(shape, dtype=dtype), torch.tensor(True)
    return result.contiguous(), torch.tensor(False)


def _are_equal(copies: Sequence[torch.Tensor], tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether copies still hold what they are copies of, bit for bit.

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


effects.declare(HOST_FUNCTION, EffectFacts(is_random=True, draws_on_host=True))

# Which functions


def take_over_where_stopped(stops: Iterable[Stop]) -> bool:
    """Have the innermost function that can be called by the operator be called so from now on."""
    return any(map(_take_over, stops))


def _take_over(stop: Stop) -> bool:
    function = stop.function
    if not isinstance(function, FunctionType) or not is_host_only(
        function, SESSION.patcher.as_written
    ):
        return False
    if not dispatch.take_over(function, Substitute(_name(function), "host function")):
        return False
    site_table.forget_unplanned(of=[*code_objects(function.__code__)])  # no trace comes there
    weaken(Finding(Claim.TRACEABLE, state_of(function.__code__)))
    return True


@answers_to("host function")
def _call(call: ReplacedCall) -> Answer:
    tx = call.tx
    dispatch.require_its_place(tx)
    if not deferred_exceptions.can_exit(tx, call.site):
        raise unequal("the call could not be made again in plain Python")
    tensors: list[compat.TensorVariable] = []
    args = [_argument(each, tensors) for each in call.args]
    kwargs = {name: _argument(each, tensors) for name, each in call.kwargs.items()}
    made = _Made(call.function, args, kwargs)
    example = _tried(made, tensors)
    key = _registered(tx, made)
    host_calls.note_drawn_inside(tx)
    given = [each.as_proxy() for each in tensors]
    operands = (key, given, list(example.shape), example.dtype)
    results: Any = compat.wrap_fx_proxy(
        tx, tx.output.create_proxy("call_function", HOST_FUNCTION, operands, {})
    )
    array, is_other = results.items
    deferred_exceptions.make_side_exit(tx, call.site, is_other)
    same = tx.output.create_proxy("call_method", "detach", (array.as_proxy(),), {})
    shown: Answer = compat.NumpyNdarrayVariable.create(tx, same)
    return shown


def _argument(value: Value, tensors: list[compat.TensorVariable]) -> Any:
    """Return a constant, or a place for a tensor, which is added to ``tensors``."""
    value = value.realize()
    if not isinstance(value, compat.TensorVariable):
        return _constant(value)
    if not is_plain(value) or example_of(value).requires_grad:
        raise unequal("a tensor of a subclass, or one that requires gradients")
    if compat.free_unbacked_symbols(example_of(value)):
        raise unequal("a tensor of a data-dependent size")
    tensors.append(value)
    return _Place()


def _constant(value: Value) -> Any:
    """Return an immutable value; a size that varies from call to call has a graph for each."""
    value = value.realize()
    if isinstance(value, compat.TupleVariable):
        return tuple(map(_constant, value.items))
    if isinstance(value, compat.SymNodeVariable) and not is_unbacked(value):
        return value.evaluate_expr()
    known = value.as_python_constant() if value.is_python_constant() else value
    if not _is_immutable(known):
        raise unequal("an argument that is no tensor and no constant")
    return known


def _is_immutable(value: Any) -> bool:
    if type(value) is tuple:
        return all(map(_is_immutable, value))
    return type(value) in _PLAIN


#: What to fill tensors with, to see which shape a call gives: as a mask, a length, an index.
_FILLS: Final = (1, 64, 0)


def _tried(made: _Made, tensors: Sequence[compat.TensorVariable]) -> torch.Tensor:
    """Return what the call gives, in the form that the graph has it in.

    It is tried with the arguments of the call being traced, if these are what it gets, else with
    tensors of one number.
    """
    failed: Exception | None = None
    with host_calls.generators_restored():
        for examples in _examples(tensors):
            before_call = [each.clone() for each in examples]
            try:
                result = torch.from_numpy(made(examples)).clone()
            except Exception as error:
                # The function of the program fails on these numbers, or gives no array. The next
                # ones are tried; where all fail, the call is not substituted.
                strict.require_foreign(error, _tried, _Made.__call__)
                failed = failed or error
                continue
            if not _are_equal(examples, before_call):
                raise unequal("it changes an argument")
            return result
    raise unequal(f"it raises {type(failed).__name__} when it is tried")


def _examples(tensors: Sequence[compat.TensorVariable]) -> Iterator[list[torch.Tensor]]:
    nodes = [each.as_proxy().node for each in tensors]
    given = [each.meta["grapharg"] for each in nodes if "grapharg" in each.meta]
    values = [each.example for each in given if isinstance(each.example, torch.Tensor)]
    if len(values) == len(tensors):
        yield [each.detach().clone() for each in values]
    forms = [example_of(each) for each in tensors]
    sizes = [[int(size) for size in each.shape] for each in forms]
    for fill in _FILLS:
        pairs = zip(sizes, forms, strict=True)
        yield [torch.full(size, fill, dtype=form.dtype) for size, form in pairs]
