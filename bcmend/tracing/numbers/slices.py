"""The operations behind a tensor, as a program of its own.

While a frame is traced the graph holds how each tensor is computed. What is behind one of them is
cut out as a ``Slice``: it can be run on its own, in another call too, where its inputs are found
by what Dynamo calls them. Two slices are equal if they make the same calls of the same inputs.
"""

from __future__ import annotations

import builtins
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType
from typing import Any, Final

import torch
from torch.fx import Node, Proxy
from torch.fx.node import map_aggregate

from bcmend.dynamo import compat
from bcmend.dynamo.models import graph_inputs
from bcmend.tracing.sites.lifted_inputs import before_arms
from bcmend.tracing.sites.refusal import Refusal

_PLAIN: Final = (torch.Tensor, torch.nn.Parameter, int)
_SYMBOLIC: Final = (torch.SymInt, torch.SymFloat, torch.SymBool)


def outside(tx: compat.Tracer, node: Node) -> Node:
    """Return what a node is outside of all arms that its value was lifted into."""
    return before_arms(tx, Proxy(node)).node


def behind(
    tx: compat.Tracer, node: Node, may_be_run: Callable[[Node], bool], most: int
) -> list[Node]:
    """Return a node and those that it is computed from, inputs first.

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
                raise Refusal("constant-value")
            waiting.append((each, True))
            inputs = each.all_input_nodes if outer is each else [outer]
            waiting.extend((before, False) for before in inputs)
    return found


@dataclass(frozen=True, slots=True)
class _Result:
    """In the arguments of a call: the result of an earlier one."""

    place: int


@dataclass(frozen=True, slots=True)
class _Input:
    """A value of the call, by an expression over its locals ``L`` and globals ``G``."""

    expression: str
    kind: type

    def value(self, scope: Scope, results: list[Any]) -> Any:
        found = scope.value(self.expression)
        if type(found) is not self.kind:  # what is done to a subclass may have effects
            raise TypeError(f"{type(found)} in place of {self.kind}")
        return found


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

        arguments = _mapped(self.arguments, value)
        keywords = _mapped(self.keywords, value)
        if isinstance(self.target, str):
            receiver, *rest = arguments
            return getattr(receiver, self.target)(*rest, **keywords)
        return self.target(*arguments, **keywords)


@dataclass(frozen=True, slots=True)
class Slice:
    """The calls behind a tensor; each has a place among their results, as the tensor has."""

    steps: tuple[_Input | _Operation, ...]
    place: int

    def value(self, scope: Scope) -> Any:
        """Return the tensor, in a call of the program with these variables."""
        results: list[Any] = []
        for each in self.steps:
            results.append(each.value(scope, results))
        return results[self.place]

    def length(self) -> Slice:
        """Return the slice that gives the number of items of the tensor."""
        return Slice((*self.steps, _Operation(len, (_Result(self.place),), {})), len(self.steps))


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


def cut(tx: compat.Tracer, nodes: list[Node], wanted: Node) -> Slice:
    """Return the calls of nodes, inputs first, one of which is what is wanted.

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
        places[node] = len(steps)
        steps.append(_input(node) if node.op == "placeholder" else _operation(node, places))
    return Slice(tuple(steps), places[wanted])


def _input(node: Node) -> _Input:
    found = graph_inputs.source_of(node)
    kind = None if found is None else type(found[1])
    if found is None or not (kind in _PLAIN or kind in _SYMBOLIC):
        raise Refusal("constant-value")
    return _Input(graph_inputs.expression_of(found[0]), kind if kind in _PLAIN else int)


def _operation(node: Node, places: Mapping[Node, int]) -> _Operation:
    def named(given: Any) -> Any:
        if isinstance(given, Node):
            return _Result(places[given])
        if isinstance(given, (torch.Tensor, *_SYMBOLIC)):
            raise Refusal("constant-value")
        return _Constant(type(given), repr(given), given)

    return _Operation(node.target, _mapped(node.args, named), _mapped(node.kwargs, named))


def _mapped(given: Any, change: Callable[[Any], Any]) -> Any:
    """Return arguments with each value in them changed."""
    return map_aggregate(given, change)


def numbers_in(value: Any) -> Any:
    """Return the numbers of a tensor as tuples in tuples, or the number of one without sizes."""
    return _fixed(value.tolist()) if isinstance(value, torch.Tensor) else value


def _fixed(listed: Any) -> Any:
    return tuple(map(_fixed, listed)) if isinstance(listed, list) else listed
