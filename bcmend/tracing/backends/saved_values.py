"""A choice whose backward computes nothing again: its forward returns what the backward reads.

Each side is traced with its backward and cut in two where torch would cut it. What the backward of
one side reads the other leaves as memory that nobody fills.

Works round ``CondAutogradOp`` (torch/_higher_order_ops/cond.py): it saves the operands alone, and
its ``backward`` traces each side's forward once more. Reproduced on torch 2.13.0;
``tests/tracing/backends/test_faults_of_torch.py`` fails when it is gone. And ``cond_func`` beside
it, which makes two graphs of each side to see that it is pure, of one in another four, and so on.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import GraphModule, Node

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.tracing.backends.backward_sides import apart, in_rows, laid_out, with_gradients

_GRADIENT: Final = "tangents_"  # by this the inputs of a backward are known to torch
_BY_STRIDES: Final = (
    torch.ops.aten.as_strided.default,
    torch.ops.aten.as_strided_scatter.default,
)


def is_pure(side: Any) -> bool:
    """Return whether a side is known to write to nothing, and to return nothing that it reads."""
    return getattr(side, meta_keys.PURE, False) is True


def _pure(function: Callable[..., Any]) -> Callable[..., Any]:
    setattr(function, meta_keys.PURE, True)
    return function


class Impure(Exception):
    """A side writes to what it reads, or returns memory of that."""


def seen_pure(side: Callable[..., Any], functional: Any) -> Callable[..., Any]:
    """Return a side that is traced with functional tensors, and raises if that finds it impure.

    Torch makes two graphs of each side before it traces it so, to see whether it is pure.

    Args:
        functional: torch's interface to functional tensors.

    Raises:
        Impure: by what is returned.
    """

    def run(*operands: Any) -> Any:
        before = functional.unwrap_tensors(operands)
        results = side(*operands)
        after, found = functional.unwrap_tensors((operands, tuple(results)))
        if any(map(operator.is_not, (*before, *found), (*after, *apart(after, found)))):
            raise Impure  # what is written to has another value, what is shared was copied
        return results

    return run


@dataclass(frozen=True, slots=True)
class _Half:
    """A side, cut in two.

    Attributes:
        forward: returns what the side does, then the values that the backward reads.
        inputs: for each input of the backward what it is: the kind, and its place there.
        saved: of each value that is handed on, its place in what ``forward`` returns.
        examples: of those values.
        numbers: the sizes that the backward reads.
    """

    forward: GraphModule
    backward: GraphModule
    inputs: Sequence[tuple[str, int]]
    saved: Sequence[int]
    examples: Sequence[torch.Tensor]
    numbers: Sequence[Any]


@dataclass(frozen=True, slots=True)
class Cut:
    """Both sides of a choice, cut in two.

    Attributes:
        results: examples of what it returns.
        read: the operands that its backward reads.
    """

    halves: Sequence[_Half]
    results: Sequence[torch.Tensor]
    read: Sequence[int]

    @property
    def count(self) -> int:
        return len(self.results)

    @property
    def numbers(self) -> Sequence[Any]:
        return [each for half in self.halves for each in half.numbers]

    def forward(self, at: int) -> Callable[..., Any]:
        """Return a side: over the operands, of the results and all that is saved."""

        @_pure
        def run(*operands: Any) -> tuple[Any, ...]:
            found = self.halves[at].forward.forward(*operands)
            returned = list(found[: self.count])
            for half in self.halves:
                if half is self.halves[at]:
                    pairs = zip(half.saved, half.examples, strict=True)
                    returned += [laid_out(found[place], example) for place, example in pairs]
                else:
                    returned += [in_rows(torch.empty, example) for example in half.examples]
            return apart(operands, returned)

        return run

    def backward(self, at: int) -> Callable[..., Any]:
        """Return the backward of a side: over ``read``, what is saved, sizes and gradients."""
        half, before = self.halves[at], self.halves[:at]
        places = {
            "operand": {each: place for place, each in enumerate(self.read)},
            "saved": self._range(len(self.read), before, self.halves, lambda each: each.saved),
        }
        first = len(self.read) + sum(len(each.saved) for each in self.halves)
        places["number"] = self._range(first, before, self.halves, lambda each: each.numbers)
        first += len(self.numbers)

        @_pure
        def run(*given: Any) -> tuple[Any, ...]:
            inputs = [
                laid_out(given[first + place], self.results[place])
                if kind == "gradient"
                else given[places[kind][place]]
                for kind, place in half.inputs
            ]
            return apart(given, half.backward.forward(*inputs))

        return run

    @staticmethod
    def _range(
        first: int, before: Sequence[_Half], halves: Sequence[_Half], part: Callable[..., Any]
    ) -> dict[int, int]:
        first += sum(len(part(each)) for each in before)
        return {at: first + at for at in range(max(len(part(each)) for each in halves))}


def sides_cut_in_two(
    sides: Sequence[Callable[..., Any]],
    operands: Sequence[Any],
    results: Sequence[torch.Tensor],
    wanted: Sequence[bool],
    dispatch: tuple[Any, Any],
) -> Cut | None:
    """Return the sides of a choice, cut in two; ``None`` if they cannot be.

    Args:
        results: examples of what the choice returns.
        wanted: for each operand, whether its gradient is.
        dispatch: the dispatch keys that were included and excluded when the sides were traced.
    """
    halves = [_halved(each, operands, results, wanted, dispatch) for each in sides]
    known = compat.free_symbols(tuple(operands))
    if any(not _can_be_made(half, known) for half in halves):
        return None
    read = {place for each in halves for kind, place in each.inputs if kind == "operand"}
    return Cut(halves, results, sorted(read))


def _can_be_made(half: _Half, known: Any) -> bool:
    """Return whether what a half hands on is plain memory whose sizes are those of operands."""
    plain = all(
        isinstance(each, torch.Tensor) and each.layout is torch.strided and not each.is_conj()
        for each in half.examples
    )
    if any(node.target in _BY_STRIDES for node in half.backward.graph.nodes):
        return False  # they ask for the memory of what was saved, of which there is a copy
    return plain and compat.free_symbols((*half.examples, *half.numbers)) <= known


def _halved(
    side: Callable[..., Any],
    operands: Sequence[Any],
    results: Sequence[torch.Tensor],
    wanted: Sequence[bool],
    dispatch: tuple[Any, Any],
) -> _Half:
    joint = with_gradients(side, wanted)

    def flat(*arguments: Any) -> tuple[Any, ...]:
        found, gradients = joint(*arguments)
        return *found, *gradients

    module: GraphModule = compat.materialize_as_graph(
        compat.dispatch_functionalize(flat, compat.FunctionalTensorMode()),
        (*operands, *results),
        *dispatch,
        force_enable_grad=True,
    )
    given = module.graph.find_nodes(op="placeholder")
    for at, node in enumerate(given[len(operands) :]):
        node.name = node.target = f"{_GRADIENT}{at}"
    module.recompile()
    names = {node.name: ("operand", at) for at, node in enumerate(given[: len(operands)])}
    with compat._disable_current_modes():  # sizes that it multiplies are none of the graph's
        forward, backward = compat.min_cut_rematerialization_partition(
            module, (), num_fwd_outputs=len(results)
        )
    return _described(forward, backward, names, len(results))


def _described(
    forward: GraphModule, backward: GraphModule, names: dict[str, tuple[str, int]], count: int
) -> _Half:
    handed_on: Sequence[Node] = forward.graph.output_node().args[0][count:]  # type: ignore
    saved: list[int] = []
    examples: list[torch.Tensor] = []
    numbers: list[Any] = []
    for at, node in enumerate(handed_on, start=count):
        if node.name in names:
            continue
        if isinstance(node.meta["val"], torch.Tensor):
            names[node.name] = "saved", len(saved)
            saved.append(at)
            examples.append(node.meta["val"])
        else:
            names[node.name] = "number", len(numbers)
            numbers.append(node.meta["val"])
    inputs = [
        ("gradient", int(node.name.removeprefix(_GRADIENT)))
        if node.name.startswith(_GRADIENT)
        else names[node.name]
        for node in backward.graph.find_nodes(op="placeholder")
    ]
    return _Half(forward, backward, inputs, saved, examples, numbers)
