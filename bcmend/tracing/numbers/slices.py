"""The operations behind a tensor, as a program of its own.

While a frame is traced the graph holds how each tensor is computed. What is behind one of them is
cut out as a ``ProgramSlice``: it can be run on its own, in another call too, where its inputs are
found by what Dynamo calls them. Two slices are equal if they make the same calls of the same
inputs.
"""

from __future__ import annotations

import builtins
import math
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

import torch
from torch.fx import Node, Proxy
from torch.fx.node import map_aggregate

from bcmend.dynamo import compat, shape_env
from bcmend.dynamo.models import graph_inputs
from bcmend.names import NUMBERS
from bcmend.tracing.effects.operator_runs import called
from bcmend.tracing.numbers.written_memory import storages
from bcmend.tracing.sites.lifted_inputs import before_arms
from bcmend.tracing.sites.refusal import NotThisWay

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter, int)
_SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


def outside(tx: compat.Tracer, node: Node) -> Node:
    """Return what a node is outside of all arms that its value was lifted into."""
    return before_arms(tx, Proxy(node)).node


#: Functions that read the sizes, the type and the place of a tensor, and no number of it.
_LIKE: Final[dict[Any, int | None]] = {
    torch.zeros_like: 0,
    torch.ones_like: 1,
    torch.full_like: None,
}


def _sizes_alone(node: Node) -> tuple[int, ...] | None:
    """Return the sizes of what a node makes of the sizes of a tensor; ``None`` for other nodes."""
    example = node.meta.get("example_value")
    if node.op != "call_function" or node.target not in _LIKE or len(node.all_input_nodes) != 1:
        return None
    if not isinstance(example, torch.Tensor) or not node.kwargs.keys() <= {"dtype"}:
        return None
    if len(node.args) != (2 if node.target is torch.full_like else 1):
        return None
    sizes = tuple(example.shape)
    return sizes if all(type(each) is int for each in sizes) else None


def behind(
    tx: compat.Tracer,
    node: Node,
    may_be_run: Callable[[Node], bool],
    most: int,
    *,
    sizes_apart: bool = False,
) -> list[Node]:
    """Return a node and those that it is computed from, inputs first.

    With ``sizes_apart`` those are left out that nothing but sizes are read of.

    Raises:
        Refusal: there are more than ``most`` of them, or some may not be run.
    """
    found, begun, waiting = list[Node](), set[Node](), [(node, False)]
    while waiting:  # not by recursion: a chain of 200 would be too long for Python's stack
        each, is_complete = waiting.pop()
        if is_complete:
            found.append(each)
        elif each not in begun:
            begun.add(each)
            outer = outside(tx, each)
            if len(begun) > most or not (outer is not each or may_be_run(each)):
                raise NotThisWay()
            waiting.append((each, True))
            inputs = each.all_input_nodes if outer is each else [outer]
            if sizes_apart and _sizes_alone(each) is not None:
                inputs = []
            waiting.extend((before, False) for before in inputs)
    return found


@dataclass(frozen=True, slots=True)
class _Result:
    """In the arguments of a call: the result of an earlier one."""

    place: int


@dataclass(frozen=True, slots=True)
class _Input:
    """A value of the call, by an expression over its locals ``L`` and globals ``G``.

    ``holder`` is the place of what it is an item or an attribute of: nothing is read of an object
    of another class, which may do something then.
    """

    expression: str
    kind: type
    holder: int | None = None

    def value(self, scope: Scope, results: list[Any]) -> Any:
        if self.holder is not None and results[self.holder] is _FAILED:
            raise TypeError("of another class")
        found = scope.value(self.expression)
        if type(found) is not self.kind:  # what is done to a subclass may have effects
            raise TypeError(f"{type(found)} in place of {self.kind}")
        return found

    def moved(self, places: Sequence[int]) -> _Input:
        """Return the same value, of a holder that is at another place."""
        return self if self.holder is None else replace(self, holder=places[self.holder])


@dataclass(frozen=True, slots=True)
class _Constant:
    """Another argument; ``1``, ``1.0`` and ``True`` are not the same."""

    kind: type
    text: str
    value: Any = field(compare=False)


@dataclass(frozen=True, slots=True)
class _Operation:
    """A call of a function, or of the method of the first argument that has a name."""

    target: Any
    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]

    def value(self, scope: Scope, results: list[Any]) -> Any:
        def value(given: Any) -> Any:
            return results[given.place] if isinstance(given, _Result) else given.value

        arguments = map_aggregate(self.arguments, value)
        keywords = map_aggregate(self.keywords, value) if self.keywords else {}
        _require_small([each for each in arguments if isinstance(each, torch.Tensor)])
        return called(self.target, arguments, keywords)

    def moved(self, places: Sequence[int]) -> _Operation:
        """Return the same call, of results that are at other places."""

        def moved(given: Any) -> Any:
            return _Result(places[given.place]) if isinstance(given, _Result) else given

        return _Operation(
            self.target, map_aggregate(self.arguments, moved), map_aggregate(self.keywords, moved)
        )


@dataclass(frozen=True, slots=True)
class ProgramSlice:
    """The calls behind a tensor; each has a place among their results, as the tensor has.

    ``writes`` says whether some change the result of another. ``apart`` has the places of the
    inputs that are read, and of those that the call has changed before: no two may share memory.
    """

    steps: tuple[_Input | _Operation, ...]
    place: int
    writes: bool
    apart: tuple[tuple[int, ...], tuple[int, ...]]

    def length(self) -> ProgramSlice:
        """Return the slice that gives the number of items of the tensor."""
        return self._followed_by(len)

    def truth(self) -> ProgramSlice:
        """Return the slice that gives the truth of the number."""
        return self._followed_by(bool)

    def size(self, dimension: int) -> ProgramSlice:
        """Return the slice that gives a size of the tensor."""
        return self._followed_by("size", dimension)

    def sum(self) -> ProgramSlice:
        """Return the slice that gives the sum of the numbers of the tensor."""
        return self._followed_by(torch.sum)

    def count(self) -> ProgramSlice:
        """Return the slice that gives how many numbers of the tensor are not zero."""
        return self._followed_by(torch.count_nonzero)

    def _followed_by(self, target: Callable[[Any], Any] | str, *rest: int) -> ProgramSlice:
        given = (_Constant(int, repr(each), each) for each in rest)
        step = _Operation(target, (_Result(self.place), *given), {})
        return replace(self, steps=(*self.steps, step), place=len(self.steps))


class Joined:
    """Slices that are run one after the other; what is in several is computed once."""

    def __init__(self, slices: Sequence[ProgramSlice]) -> None:
        self._steps: list[_Input | _Operation] = []
        #: For each slice: how many steps are behind it, the place of its tensor, and the places
        #: of inputs that must not share memory with those of the second list.
        self._ends: list[tuple[int, int, list[list[int]]]] = []
        shared: dict[Any, list[int]] = {}
        for each in slices:
            places: list[int] = []
            for step in each.steps:
                places.append(self._place(step, places, {} if each.writes else shared))
            apart = [[places[given] for given in some] for some in each.apart]
            self._ends.append((len(self._steps), places[each.place], apart))

    def _place(
        self, step: _Input | _Operation, places: Sequence[int], shared: dict[Any, list[int]]
    ) -> int:
        """Return the place of a step among the steps of all slices."""
        step = step.moved(places)
        alike = shared.setdefault(step.target if isinstance(step, _Operation) else step, [])
        for place in alike:
            if self._steps[place] == step:
                return place
        alike.append(len(self._steps))
        self._steps.append(step)
        return len(self._steps) - 1

    def __len__(self) -> int:
        """Return the number of slices."""
        return len(self._ends)

    def numbers(self, scope: Scope, found: list[Any]) -> None:
        """Append to ``found`` the numbers of each slice; ``None`` for one of which a step fails."""
        results: list[Any] = []
        for end, place, apart in self._ends:
            for step in self._steps[len(results) : end]:
                results.append(_value_or_failure(step, scope, results))
            read, written = ([results[each] for each in some] for some in apart)
            is_found = results[place] is not _FAILED and _are_apart(read, written)
            found.append(_numbers_in(results[place]) if is_found else None)


#: Elements of a result. In a call that takes another path a slice may be given anything.
_ELEMENTS: Final = 2**22


def _require_small(tensors: Sequence[torch.Tensor]) -> None:
    """Require that what is computed of tensors, number by number, is not large.

    Raises:
        ValueError: it is.
    """
    counts = [each.numel() for each in tensors]
    if math.prod(counts) <= _ELEMENTS >= sum(counts):
        return
    if sum(counts) > _ELEMENTS:
        raise ValueError("large arguments")
    if len(tensors) > 1 and max(counts) > 2:
        most = max(each.dim() for each in tensors)
        sizes = [(1,) * (most - each.dim()) + tuple(each.shape) for each in tensors]
        if math.prod(max(each) for each in zip(*sizes, strict=True)) > _ELEMENTS:
            raise ValueError("a large result")


def _are_apart(some: Sequence[Any], others: Sequence[Any]) -> bool:
    """Return whether no tensor shares memory with one of others; not if one was not found."""
    if not (some and others):
        return True
    if not all(isinstance(each, torch.Tensor) for each in (*some, *others)):
        return False
    taken = list(map(_memory_of, others))
    return not any(
        start < other_end and other_start < end
        for start, end in map(_memory_of, some)
        for other_start, other_end in taken
    )


def _memory_of(tensor: torch.Tensor) -> tuple[int, int]:
    """Return where the memory of a tensor begins and ends; two storages may have the same."""
    storage = tensor.untyped_storage()
    return storage.data_ptr(), storage.data_ptr() + storage.nbytes()


#: In place of the result of a step that has failed; a step that is given it fails as well.
_FAILED: Final = object()


def _value_or_failure(step: _Input | _Operation, scope: Scope, results: list[Any]) -> Any:
    try:
        return step.value(scope, results)
    except Exception:  # whatever the operation raises, the program will raise in its turn
        return _FAILED


class Scope:
    """The variables of one call of a frame."""

    def __init__(self, local: dict[str, Any], space: dict[str, Any]) -> None:
        self._tables = {"L": local, "G": space, "__builtins__": builtins}

    def value(self, expression: str) -> Any:
        """Evaluate what Dynamo calls a value."""
        return eval(_compiled(expression), self._tables)


@lru_cache(1024)
def _compiled(expression: str) -> CodeType:
    return compile(expression, "<input>", "eval")


def cut_out(
    tx: compat.Tracer,
    nodes: list[Node],
    wanted: Node,
    scope: Scope,
    *,
    writes: bool,
    written: Sequence[Node],
) -> ProgramSlice:
    """Return the calls of nodes, inputs first, one of which is what is wanted.

    ``scope`` is that of the call being traced. ``writes`` says whether some change the result of
    another, ``written`` are the inputs of the graph that it has changed so far.

    Raises:
        Refusal: an input of the graph has no place where it is found at another call.
    """
    places: dict[Node, int] = {}
    steps: list[_Input | _Operation] = []
    for node in nodes:
        outer = outside(tx, node)
        if outer is not node:
            places[node] = places[outer]
            continue
        if node.op == "placeholder":
            steps.extend(_chain(node, scope, len(steps)))
        else:
            steps.append(_operation(node, places))
        places[node] = len(steps) - 1
    if not written:
        return ProgramSlice(tuple(steps), places[wanted], writes, ((), ()))
    given = [each for each in nodes if each.op == "placeholder" and outside(tx, each) is each]
    read = tuple(places[each] for each in given if storages([each]))
    changed: list[int] = []
    for each in written:
        steps.extend(_chain(each, scope, len(steps)))
        changed.append(len(steps) - 1)
    return ProgramSlice(tuple(steps), places[wanted], writes, (read, tuple(changed)))


def _chain(node: Node, scope: Scope, place: int) -> list[_Input]:
    """Return an input of the graph behind what it is read of, which begins at a place.

    Raises:
        Refusal: it is not found at another call, or reading it may do something.
    """
    given = graph_inputs.source_of(node)
    kind = None if given is None else type(given[1])
    if given is None or not (kind in _PLAIN or kind in _SYMBOLIC):
        raise NotThisWay()
    *holders, last = graph_inputs.expressions_of(given[0])
    if last.startswith(f"L[{NUMBERS!r}]"):  # of an earlier slice
        holders = []
    found: list[_Input] = []
    holder = None
    for each in holders:
        try:
            value = scope.value(each)
        except Exception as error:
            raise NotThisWay() from error
        if not _is_plain_holder(type(value)):
            raise NotThisWay()
        found.append(_Input(each, type(value), holder))
        holder = place + len(found) - 1
    return [*found, _Input(last, kind if kind in _PLAIN else int, holder)]


def _is_plain_holder(kind: type) -> bool:
    """Return whether nothing but reading is done where an object is asked for items, attributes.

    Properties are no matter: Dynamo inlines them, so that no input of a graph is named by one.
    """
    if kind in _CONTAINERS or issubclass(kind, torch.Tensor):
        return kind in (*_CONTAINERS, *_PLAIN)
    own = {name: getattr(kind, name, None) for name in ("__getattr__", "__getattribute__")}
    plain = (*_PLAIN_READS, torch.nn.Module.__getattr__)
    items = getattr(kind, "__getitem__", None)  # modules in a list are found by their numbers
    is_of_torch = getattr(items, "__module__", None) == torch.nn.ModuleList.__module__
    is_known = items is None or items is tuple.__getitem__ or is_of_torch
    return is_known and all(each in plain for each in own.values())


_PLAIN_READS: Final = (None, object.__getattribute__, tuple.__getattribute__)
_CONTAINERS: Final = (list, tuple, dict, OrderedDict, torch.Size, ModuleType, FunctionType)


def _operation(node: Node, places: Mapping[Node, int]) -> _Operation:
    def named(given: Any) -> Any:
        if isinstance(given, Node):
            return _Result(places[given])
        if isinstance(given, (torch.Tensor, *_SYMBOLIC)):
            raise NotThisWay()
        return _Constant(type(given), repr(given), given)

    if (sizes := _sizes_alone(node)) is not None:
        example = node.meta["example_value"]
        number = node.args[1] if node.target is torch.full_like else _LIKE[node.target]
        kind = {"dtype": named(example.dtype), "device": named(example.device)}
        return _Operation(torch.full, (named(sizes), named(number)), kind)
    return _Operation(
        node.target, map_aggregate(node.args, named), map_aggregate(node.kwargs, named)
    )


def _numbers_in(value: Any) -> Any:
    """Return the numbers of a tensor as tuples in tuples, or the number of one without sizes."""
    return _fixed(value.tolist()) if isinstance(value, torch.Tensor) else value


def _fixed(listed: Any) -> Any:
    return tuple(map(_fixed, listed)) if isinstance(listed, list) else listed


#: Elements of a tensor on the way to a number.
_SMALL: Final = 2**18

_WIDE: Final = (torch.float32, torch.float64)


def is_small(example: Any) -> bool:
    """Return whether a value is no weight, and as precise in front of the graph as in it."""
    if isinstance(example, (int, float, torch.SymInt, torch.SymBool, torch.SymFloat)):
        return True
    if not isinstance(example, torch.Tensor) or example.layout is not torch.strided:
        return False
    if example.requires_grad or example.is_complex() or example.is_quantized:
        return False
    is_precise = not example.is_floating_point() or example.dtype in _WIDE
    count = shape_env.hint_of(example.numel())  # none of a size that the data say
    return is_precise and (count is None or count <= _SMALL)
