"""Numbers that Python or numpy draws, and seeds: calls that are made before the graph runs.

Dynamo makes some draws of Python's generator before the graph, in the order of the program, and
passes what they give as inputs, so that every call has its own (``OutputGraph.random_calls``). Here
the same is done for all draws that give numbers or arrays of numbers, for numpy's global generator,
and for seeds. The streams of Python, numpy and torch are independent of each other, and each is
drawn from in its order. What is drawn is a number that only the data tell
(``bcmend.runtime.scalars``), so that a branch on it is mended like any other.

A draw that is made under a condition which only the data tell has no place before the graph; nor
has a seed of torch's generator behind an operation that draws from it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

import torch
from torch._dynamo import graph_break_hints
from torch._dynamo.exc import unimplemented
from torch._dynamo.source import RandomValueSource
from torch._dynamo.variables import ListVariable, NumpyNdarrayVariable, TensorVariable
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.builder import GraphArg, wrap_fx_proxy_cls
from torch.fx import Proxy

from bcmend.runtime import depth, random_numbers, repeats, scalars
from bcmend.runtime.merge import constant
from bcmend.runtime.per_trace import kept
from bcmend.runtime.substitution import Call, Refused, answers_to, require_always

__all__ = ["note_drawn_inside"]

_SCALARS: Final = (bool, int, float)


@answers_to("draw")
def _draw(call: Call) -> VariableTracker:
    """A number, a list of numbers or an array, drawn before the graph."""
    tx: Any = call.tx
    try:
        function, arguments, named = _made_of_constants(call)
    except Refused as reason:
        _require_no_arm(call, reason)
        raise
    with _streams_kept():
        try:
            example = function(*arguments, **named)
        except Exception as error:
            raise Refused(f"it raises {type(error).__name__}") from error
    convert, given = _conversion(example)
    if given is not _array:
        _require_one_graph(tx)
    _require_equal_kinds(call, example, arguments)
    proxy = _input(tx, _Converted(function, convert), arguments, named, convert(example))
    return given(tx, proxy)


def _require_no_arm(call: Call, reason: Refused) -> None:
    """Have an arm fail that draws from the generator of Python or numpy.

    Dynamo would draw before the graph, whether the arm is taken or not, and those of numpy from
    torch's generator.
    """
    if depth.is_in_an_arm(call.tx):
        call.site.refuse("no-equal-substitute", f"{call.row.name}: {reason}")
        unimplemented(
            gb_type="bcmend: a draw of Python's or numpy's in an arm",
            context=call.row.name,
            explanation="The numbers would be drawn whether the arm is taken or not.",
            hints=[*graph_break_hints.FUNDAMENTAL],
        )


@answers_to("seed")
def _seed(call: Call) -> VariableTracker:
    """A seed, or a state, that is set before the graph."""
    tx: Any = call.tx
    function, arguments, named = _made_of_constants(call)
    _require_one_graph(tx)
    if call.row.name.startswith("torch.") and _has_drawn(tx.output):
        raise Refused("an operation before it draws from torch's generator")
    if call.row.name.startswith("torch.") and not _is_dropped(tx):
        raise Refused("the generator that it returns is used")
    tx.output.random_calls.append((function, arguments, named))
    repeats.note(tx)
    return constant(None)


def _require_one_graph(tx: Any) -> None:
    if not scalars.may_take(tx):
        raise Refused("the graph may break")


def _is_dropped(tx: Any) -> bool:
    """Whether nobody sees what the call being traced returns."""
    following = tx.instructions[tx.instruction_pointer]
    return bool(following.opname == "POP_TOP")


def _has_drawn(output: Any) -> bool:
    return any(map(random_numbers.may_draw, random_numbers.nodes_of(output)))


def _made_of_constants(call: Call) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return what is to be called, with the Python values of all arguments."""
    tx: Any = call.tx
    if tx.export:
        raise Refused("an exported program has no Python in front of its graph")
    require_always(tx, "called")
    if _drawn_inside(tx):
        raise Refused("a function that is called inside the graph comes before it")
    try:
        arguments = tuple(each.as_python_constant() for each in call.args)
        named = {name: each.as_python_constant() for name, each in call.kwargs.items()}
    except NotImplementedError:
        raise Refused("an argument is no constant") from None
    return call.function, arguments, named


def note_drawn_inside(tx: Any) -> None:
    """Note that the graph itself draws from the generators of Python or numpy, from here on."""
    _drawn_inside(tx).append(tx)


def _drawn_inside(tx: Any) -> list[Any]:
    return kept(tx.output, "drawn_inside", list)


@contextmanager
def _streams_kept() -> Iterator[None]:
    """Put Python's and numpy's generators back, from which an example is drawn."""
    before = random_numbers.states_of_python()
    try:
        yield
    finally:
        random_numbers.put_back_python(before)


# What comes of a draw

Convert = Callable[[Any], torch.Tensor]
Given = Callable[[Any, Proxy], VariableTracker]


class _Converted:
    """Calls a function and makes a tensor of what it gives."""

    def __init__(self, function: Any, convert: Convert) -> None:
        self.function, self.convert = function, convert

    def __call__(self, *arguments: Any, **named: Any) -> torch.Tensor:
        return self.convert(self.function(*arguments, **named))


def _conversion(example: Any) -> tuple[Convert, Given]:
    """Return how a value becomes a tensor, and how the traced code sees that."""
    kind = type(example)
    if kind in _SCALARS:
        return _tensor_of, _number
    if kind is list and {type(each) for each in example} in [{one} for one in _SCALARS]:
        return _tensor_of, _numbers
    if "numpy" in sys.modules and _is_numeric(example):
        return torch.as_tensor, _array
    raise Refused(f"it gives a {kind.__qualname__}")


def _is_numeric(example: Any) -> bool:
    """Whether a value is an array, or a scalar, of numpy's that torch has a type for."""
    numpy = sys.modules["numpy"]
    is_of_numpy = isinstance(example, (numpy.ndarray, numpy.generic))
    return is_of_numpy and example.dtype.kind in "biuf"


_DTYPES: Final = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _tensor_of(value: Any) -> torch.Tensor:
    kind = type(value[0]) if isinstance(value, list) else type(value)
    return torch.tensor(value, dtype=_DTYPES[kind], device="cpu")


def _tensor(tx: Any, proxy: Proxy, kind: Any = TensorVariable) -> Any:
    fake = proxy.node.meta["example_value"]
    return wrap_fx_proxy_cls(kind, tx=tx, proxy=proxy, example_value=fake)


def _number(tx: Any, proxy: Proxy) -> VariableTracker:
    return _taken(tx, _tensor(tx, proxy))


def _taken(tx: Any, tensor: TensorVariable) -> VariableTracker:
    number = scalars.take(tx, tensor)
    if number is None:
        raise Refused("no number can be taken out of a tensor here")
    return number


def _numbers(tx: Any, proxy: Proxy) -> VariableTracker:
    tensor = _tensor(tx, proxy)
    count = proxy.node.meta["example_value"].shape[0]
    items = [
        _taken(tx, tensor.call_method(tx, "select", [constant(0), constant(place)], {}))
        for place in range(count)
    ]
    return ListVariable(items, mutation_type=ValueMutationNew())


def _array(tx: Any, proxy: Proxy) -> VariableTracker:
    array: VariableTracker = _tensor(tx, proxy, NumpyNdarrayVariable)
    return array


def _require_equal_kinds(call: Call, example: Any, arguments: Sequence[Any]) -> None:
    """Refuse a choice among things of several types, of which the example is but one."""
    for given in (*arguments, *call.kwargs.values()):
        if isinstance(given, (list, tuple)) and len({type(each) for each in given}) > 1:
            raise Refused("what it chooses from is of several types")


def _input(
    tx: Any,
    function: Any,
    arguments: tuple[Any, ...],
    named: Mapping[str, Any],
    example: torch.Tensor,
) -> Proxy:
    """Return a new input of the graph, which ``function`` makes before each call."""
    output = tx.output
    source = RandomValueSource(len(output.random_calls))
    output.random_calls.append((function, arguments, dict(named)))
    repeats.note(tx)
    fake = tx.fake_mode.from_tensor(example, static_shapes=True)
    proxy: Proxy = output.root_tracer.create_graph_input(
        f"drawn_{source.random_call_index}", torch.Tensor, fake, source=source
    )
    proxy.node.meta["grapharg"] = GraphArg(
        source,
        example,
        pass_arg_as_tensor=False,
        fake_tensor=fake,
        is_tensor=True,
        example_strong_ref=example,
    )
    return proxy
