"""Random numbers of Python or numpy, and seeds: calls that are made before the graph runs.

Dynamo makes some draws from Python's generator before the graph, in the order of the program, and
passes what they give as inputs, so that every call has its own (``OutputGraph.random_calls``). Here
the same is done for all draws that give numbers or arrays of numbers, for numpy's global generator,
and for seeds. The streams of Python, numpy and torch are independent of each other, and each is
drawn from in its order. What is drawn is a data-dependent number, so that a branch on it is mended
like any other.

What a draw is given, and the conditions of the arms that it is in, may depend on what was drawn
before, and on what the call is given (``programs/host_draws``). A draw under another condition has
no place before the graph; nor has a seed of torch's generator behind a random operator.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Proxy

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import DISCARDS
from bcmend.dynamo import compat, frames, handlers, shape_env
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import containers, graph_inputs, methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant, fake_mode_of, is_unbacked
from bcmend.knowledge.interruptions import is_interruption
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.effects import random_draws
from bcmend.tracing.numbers import ahead, predicates, scalars, slices
from bcmend.tracing.programs import arm_conditions, host_draws
from bcmend.tracing.programs.host_draws import Condition, HostDraw, Later
from bcmend.tracing.sites import body_states, nesting_limits
from bcmend.tracing.sites.live_state import LiveSite
from bcmend.tracing.sites.refusal import NotThisWay, Refusal, attempt
from bcmend.tracing.substitutes import dispatch
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal

_SCALARS: Final = (bool, int, float)


@answers_to("draw")
def _draw(call: ReplacedCall) -> Answer:
    """Answer with a number, a list of numbers or an array, drawn before the graph."""
    conditions = attempt(lambda: _conditions(call))
    if isinstance(conditions, Refusal):
        _require_no_arm(call, conditions)
        raise conditions
    made = _drawn(call, conditions, may_be_later=True)
    if made.are_later and made.draw.given is not _number:
        made = _drawn(call, conditions, may_be_later=False)
    given = made.draw.given
    if given is not _array:
        dispatch.require_one_graph(call.tx)
    for each in made.arguments:
        if isinstance(each, (list, tuple)) and len(set(map(type, each))) > 1:
            raise unequal("what it chooses from is of several types")
    found: Answer = given(call.tx, _input(call.tx, made.entry, made.example))
    return found


@dataclass(frozen=True, slots=True)
class _Drawn:
    """A draw as it is tried: what is called, its place before the graph, and what it gives.

    ``are_later`` says whether arguments are computed where it is drawn.
    """

    draw: _Draw
    entry: HostDraw
    arguments: tuple[Any, ...]
    example: torch.Tensor
    are_later: bool


def _drawn(call: ReplacedCall, conditions: Sequence[Condition], *, may_be_later: bool) -> _Drawn:
    made = attempt(lambda: _made_of_known(call, may_be_later))
    if isinstance(made, Refusal):
        _require_no_arm(call, made)
        raise made
    function, arguments, named = made
    are_later = _are_later([arguments, named])
    given = (*arguments, *named.values())
    _require_short(call.row.name, given)
    draw = _Draw(function)
    entry = HostDraw(call.tx.output, call.site.key, draw, (arguments, named), conditions)
    example = _tried(call, draw, entry, are_later=are_later)
    return _Drawn(draw, entry, given, example, are_later)


#: Draws that fail where there is nothing between their bounds, and what they give.
_BETWEEN_BOUNDS: Final[dict[str, type]] = {
    "random.randrange": int,
    "random.randint": int,
    "numpy.random.randint": int,
}


def _tried(call: ReplacedCall, draw: _Draw, entry: HostDraw, *, are_later: bool) -> torch.Tensor:
    """Return what a draw gives in the call being traced, or like it."""
    with generators_restored(), ahead.without_modes():
        try:
            if are_later:
                host_draws.drawn_so_far(call.tx.output)
            entry.example = entry.made()
        except Refusal:
            raise
        except Exception as error:
            # The function of Python or numpy fails on these numbers, as it does in eager. The
            # call is not substituted, unless it will not fail on others. Nothing of bcmend's runs
            # in it.
            if is_interruption(error):
                raise
            if are_later and (kind := _BETWEEN_BOUNDS.get(call.row.name)) and len(call.args) == 2:
                entry.example = draw.gives(kind())
                return entry.example
            raise unequal(f"it raises {type(error).__name__}") from error
    return entry.example


class _Draw:
    """A function of Python or numpy, of which a tensor is made of what it gives.

    ``given`` is how the traced code sees that; it is known once the function was called.
    """

    def __init__(self, function: Any) -> None:
        self._function = function
        self._convert: Convert | None = None
        self.given: Any = None

    def __call__(self, arguments: Sequence[Any], named: Mapping[str, Any]) -> torch.Tensor:
        return self.gives(self._function(*arguments, **named))

    def gives(self, made: Any) -> torch.Tensor:
        """Return the tensor of what the function gives."""
        if self._convert is None:
            self._convert, self.given = _conversion(made)
        return self._convert(made)


def _are_later(given: Any) -> bool:
    return any(isinstance(each, Later) for each in compat.tree_leaves(given))


def _conditions(call: ReplacedCall) -> list[Condition]:
    """Return the conditions of the arms that a draw is in, as they are computed in front.

    Raises:
        Refusal: they cannot be.
        Rewritten: the next trace has one of them computed in front of the graph.
    """
    tx, found = call.tx, list[Condition]()
    around = arm_conditions.around(tx)
    if around is None:
        raise unequal("it is called inside another operator")
    for each in around:
        number = attempt(partial(_truth, tx, each.condition))
        if isinstance(number, Refusal):
            ahead.take_condition(tx, each.condition, each.site)
            raise unequal("it is called under a condition")
        found.append(Condition(number, each.truth))
    return found


def _truth(tx: compat.Tracer, value: Value) -> Later:
    """Return the truth of a condition, which is the same in the graph and in front of it.

    Raises:
        Refusal: it cannot be computed in front.
    """
    if not isinstance(value, compat.SymNodeVariable) and not predicates.is_of_data(value):
        raise NotThisWay()
    node = value.as_proxy().node
    if not (frames.ends_at_a_boundary(tx) and slices.are_whole(tx, node)):
        raise NotThisWay()
    return Later(slices.slice_of_draws(tx, node).truth())


def computed_of_draws(
    tx: compat.Tracer, site: LiveSite, function: Callable[[Any], Any], value: compat.SymNodeVariable
) -> Value | None:
    """Return what a function gives for a number, before the graph; ``None`` if not for draws."""
    made = attempt(lambda: _computed_of_draws(tx, site, function, value))
    return None if isinstance(made, Refusal) else made


def _computed_of_draws(
    tx: compat.Tracer, site: LiveSite, function: Callable[[Any], Any], value: compat.SymNodeVariable
) -> Value:
    around = arm_conditions.around(tx)
    if tx.export or around is None or not slices.are_whole(tx, value.as_proxy().node):
        raise NotThisWay()
    conditions = [Condition(_truth(tx, each.condition), each.truth) for each in around]
    later = _later(tx, value)
    if later is None:
        raise NotThisWay()
    draw = _Draw(function)
    entry = HostDraw(tx.output, site.key, draw, ((later,), {}), conditions)
    with generators_restored(), ahead.without_modes():
        try:
            host_draws.drawn_so_far(tx.output)
            entry.example = entry.made()
        except (ArithmeticError, ValueError, host_draws.NotComputed):
            raise NotThisWay() from None  # as `int` of what is infinite
    found: Value = draw.given(tx, _input(tx, entry, entry.example))
    return found


def _later(tx: compat.Tracer, value: compat.SymNodeVariable) -> Later | None:
    """Return a number that is computed where it is drawn; ``None`` if it cannot be."""
    if not frames.ends_at_a_boundary(tx):
        return None
    found = attempt(lambda: slices.slice_of_draws(tx, value.as_proxy().node))
    return None if isinstance(found, Refusal) else Later(found)


def _require_short(name: str, arguments: Sequence[Any]) -> None:
    """Raise ``Refusal`` for what may give an integer that a tensor has no place for.

    Draws give numbers that they are given, or numbers between these.
    """
    given = [each for each in compat.tree_leaves(list(arguments)) if isinstance(each, (int, range))]
    ends = [
        end
        for each in given
        for end in ((each.start, each.stop) if isinstance(each, range) else (each,))
    ]
    most = _BITS if name == "random.getrandbits" else 2**_BITS - 1
    if any(abs(each) > most for each in ends):
        raise unequal("it may give an integer of more than 63 bits")


#: Bits of an integer in a tensor, but for its sign.
_BITS: Final = 63


def _require_no_arm(call: ReplacedCall, reason: Refusal) -> None:
    """Break the graph in an arm that draws from the generator of Python or numpy.

    Dynamo would draw before the graph, whether the arm is taken or not, and those of numpy from
    torch's generator.
    """
    if nesting_limits.is_in_an_arm(call.tx):
        call.site.refuse("no-equal-substitute", f"{call.row.name}: {reason}")
        handlers.break_graph(
            "a draw of Python's or numpy's in an arm",
            call.row.name,
            "The numbers would be drawn whether the arm is taken or not.",
        )


@answers_to("seed")
def _seed(call: ReplacedCall) -> Answer:
    """Answer a seed, or a state, that is set before the graph."""
    tx: Any = call.tx
    function, arguments, named = _made_of_constants(call)
    dispatch.require_one_graph(tx)
    if call.row.name.startswith("torch."):
        if any(map(random_draws.may_draw, random_draws.nodes_of(tx.output))):
            raise unequal("an operation before it draws from torch's generator")
        if operation(tx.instructions[tx.instruction_pointer]) not in DISCARDS:
            raise unequal("the generator that it returns is used")
    tx.output.random_calls.append((function, arguments, named))
    rerun_policy.note(tx)
    return constant(None)


def _made_of_constants(call: ReplacedCall) -> Made:
    """Return what is to be called, with the Python values of all arguments."""
    dispatch.require_always(call.tx, "called")
    return _made_of_known(call, may_be_later=False)


#: What is to be called, and with what.
Made = tuple[Any, tuple[Any, ...], dict[str, Any]]


def _made_of_known(call: ReplacedCall, may_be_later: bool) -> Made:
    """Return what is to be called, with values of the arguments that are known before the graph."""
    if call.tx.export:
        raise unequal("an exported program has no Python in front of its graph")
    if _DRAWS_INSIDE.of(call.tx.output):
        raise unequal("a function that is called inside the graph comes before it")
    known = partial(_known, call.tx, may_be_later=may_be_later)
    try:
        arguments = tuple(map(known, call.args))
        named = {name: known(each) for name, each in call.kwargs.items()}
    except NotImplementedError:
        raise unequal("an argument is no constant") from None
    return call.function, arguments, named


def _known(tx: compat.Tracer, value: Value, *, may_be_later: bool) -> Any:
    """Return the Python value of an argument; a number that varies has a graph for each.

    With ``may_be_later`` one that is computed where it is drawn has not.

    Raises:
        NotImplementedError: it has none while the call is traced.
        Rewritten: the next trace has it computed in front of the graph.
    """
    value = value.realize()
    if isinstance(value, compat.SymNodeVariable):
        later = _later(tx, value) if may_be_later else None
        if later is not None:
            return later
        if not is_unbacked(value):
            return value.evaluate_expr()
        body_states.take_ahead(tx, shape_env.symbols_in(value.sym_num))
    kind = _CONTAINERS.get(type(value))
    if kind is None:
        return value.as_python_constant()
    given = value.items  # type: ignore[attr-defined]
    items = [_known(tx, each, may_be_later=may_be_later and kind is not range) for each in given]
    return kind(*items) if kind is range else kind(items)


_CONTAINERS: Final[dict[type, Any]] = {
    compat.ListVariable: list,
    compat.TupleVariable: tuple,
    compat.RangeVariable: range,
}


_DRAWS_INSIDE: Final = Slot(bool, rolls_back=True)


def note_drawn_inside(tx: compat.Tracer) -> None:
    """Note that the graph itself draws from the generators of Python or numpy, from here on."""
    _DRAWS_INSIDE.put(tx.output, True)


@contextmanager
def generators_restored() -> Iterator[None]:
    """Put Python's and numpy's generators back, from which an example is drawn."""
    before = random_draws.states_of_python()
    try:
        yield
    finally:
        random_draws.put_back_python(before)


# What comes of a draw

Convert = Callable[[Any], torch.Tensor]
Given = Callable[[compat.Tracer, Proxy], Value]


def _conversion(example: Any) -> tuple[Convert, Given]:
    """Return how a value becomes a tensor, and how the traced code sees that."""
    kind = type(example)
    if kind in _SCALARS:
        return _tensor_of, _number
    if kind is list and set(map(type, example)) in [{one} for one in _SCALARS]:
        return _tensor_of, _numbers
    if "numpy" in sys.modules and _is_numeric(example):
        return torch.as_tensor, _array
    raise unequal(f"it gives a {kind.__qualname__}")


def _is_numeric(example: Any) -> bool:
    """Return whether a value is an array or scalar of numpy's that torch has a type for."""
    numpy = sys.modules["numpy"]
    is_of_numpy = isinstance(example, (numpy.ndarray, numpy.generic))
    return is_of_numpy and example.dtype.kind in "biuf"


_DTYPES: Final = {bool: torch.bool, int: torch.int64, float: torch.float64}


def _tensor_of(value: Any) -> torch.Tensor:
    kind = type(value[0]) if isinstance(value, list) else type(value)
    return torch.tensor(value, dtype=_DTYPES[kind], device="cpu")


def _tensor(tx: compat.Tracer, proxy: Proxy, kind: Any = compat.TensorVariable) -> Any:
    fake = proxy.node.meta["example_value"]
    return compat.wrap_fx_proxy_cls(kind, tx=tx, proxy=proxy, example_value=fake)


def _number(tx: compat.Tracer, proxy: Proxy) -> Value:
    return _taken(tx, _tensor(tx, proxy))


def _taken(tx: compat.Tracer, tensor: compat.TensorVariable) -> Value:
    number = scalars.take(tx, tensor)
    if number is None:
        raise unequal("no number can be taken out of a tensor here")
    return number


def _numbers(tx: compat.Tracer, proxy: Proxy) -> Value:
    tensor, count = _tensor(tx, proxy), proxy.node.meta["example_value"].shape[0]
    places = [[constant(0), constant(place)] for place in range(count)]
    items = [_taken(tx, tensor.call_method(tx, "select", place, {})) for place in places]
    return containers.new_list(items)


def _array(tx: compat.Tracer, proxy: Proxy) -> Value:
    array: Value = _tensor(tx, proxy, compat.NumpyNdarrayVariable)
    return array


def _input(tx: compat.Tracer, draw: HostDraw, example: torch.Tensor) -> Proxy:
    """Return a new input of the graph, which is drawn before each call."""
    output = tx.output
    source = compat.RandomValueSource(len(output.random_calls))
    host_draws.add(output, draw)
    rerun_policy.note(tx)
    fake = fake_mode_of(tx).from_tensor(example, static_shapes=True)
    name = f"drawn_{source.random_call_index}"
    return graph_inputs.new_input(output, name, source, example, fake)


def _made_while_tracing(call: handlers.Call) -> Answer:
    """Break the graph at a draw that Dynamo makes once, while it traces, for all calls.

    Where one graph is asked for, it stays as stock torch has it.
    """
    if call.owner.source is None or call.tx.one_graph:
        return PASS
    return handlers.break_graph("draw while tracing", call.name, "Each call draws anew.")


for _name in methods.DRAWN_WHILE_TRACING:
    handlers.method(compat.RandomVariable, _name, "draws that are made while tracing")(
        _made_while_tracing
    )
