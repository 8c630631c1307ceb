"""A loop over the indices of a mask's true items, as a loop over all indices with a branch.

``for expert in hit.nonzero(as_tuple=True)[0].tolist()`` makes a data-dependent number of
iterations. Where the mask has a known length (``index_sets``), the loop goes over every index below
that, a constant, and a branch around the body asks whether the mask is true there. The code is
rewritten with that branch (``rewrite.passes.iteration_tests``) once such an iterator has met the
loop.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, fx_graph, handlers, hooks, shape_env
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    fake_mode_of,
    with_items,
)
from bcmend.names import RUNS_ITERATION
from bcmend.tracing.loops.index_sets import IndexSet, index_set
from bcmend.tracing.loops.open_ranges import LoopIterator
from bcmend.tracing.numbers import ahead
from bcmend.tracing.sites import body_states, capture_mode

#: Loops that may make more iterations are left unchanged: each of them is a branch. To compile 64
#: takes 4 times as long as four (2 s), and 128 take 8 times as long.
ITERATIONS_AT_MOST: Final = 64


class IndexList(compat.VariableTracker):
    """The list of the numbers in a tensor of unbacked length."""

    def __init__(self, tensor: TensorValue, numbers: IndexSet, **more: Any) -> None:
        super().__init__(**more)
        self.tensor, self.numbers = tensor, numbers

    def python_type(self) -> type:
        return list

    @methods.implements(methods.ITER)
    def _iterator(self, tx: compat.Tracer) -> Value:
        return IndexIterator(self.numbers)

    @methods.implements(methods.LENGTH, methods.LENGTH_METHOD)
    def _length(self, tx: compat.Tracer) -> Value:
        return containers.length_of(tx, self.tensor)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.tensor)
        codegen.load_method("tolist")
        codegen.extend_output(compat.create_call_function(0, False))


class IndexIterator(LoopIterator):
    """An iterator over the numbers of a mask that gives each number below the bound.

    ``shape`` is that of the tensors that it gives, ``None`` where it gives numbers.
    """

    kind: type = type(iter([]))
    subject = "loop over the numbers of a mask"
    explanation = "The turns of a loop depend on the data"

    def __init__(
        self,
        numbers: IndexSet,
        following: int = 0,
        shape: tuple[int, ...] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.numbers, self.following, self.shape = numbers, following, shape

    @methods.implements(methods.ITERNEXT)
    def _next(self, tx: compat.Tracer) -> Value:
        self.require_alone(tx)
        if self.following == self.numbers.bound:
            compat.raise_observed_exception(StopIteration, tx)
        if not _asks_for_iterations(tx):
            if frames.is_captured_whole(tx):
                body_states.mask_loop(tx)
            self.stop(tx, "the loop over it cannot be written anew")
        tx.stack[-1] = IndexIterator(self.numbers, self.following + 1, self.shape)
        if self.shape is None:
            return constant(self.following)
        return _known_tensor(tx, self.following, self.shape, self.numbers)

    def runs_iteration(self, tx: compat.Tracer) -> Value:
        """Return whether the mask has the number that was given out last."""
        return fx_graph.function(tx, operator.getitem, self.numbers.is_there, self.following - 1)


def runs_iteration(tx: compat.Tracer) -> Value:
    """Return whether the program makes the iteration whose item lies on the stack."""
    iterator = tx.stack[-2] if len(tx.stack) > 1 else None
    return iterator.runs_iteration(tx) if isinstance(iterator, IndexIterator) else constant(True)


def _asks_for_iterations(tx: compat.Tracer) -> bool:
    """Return whether the loop asks, after the next number, whether its iteration is made."""
    pointer: Any = tx.instruction_pointer
    following = tx.instructions[pointer : pointer + 4]
    return any(each.argval == RUNS_ITERATION for each in following)


def _known_tensor(
    tx: compat.Tracer, number: int, shape: tuple[int, ...], numbers: IndexSet
) -> Value:
    """Return a tensor that Dynamo knows to hold ``number``."""
    device = example_of(numbers.is_there).device
    result = fx_graph.function(tx, torch.full, shape, number, dtype=torch.int64, device=device)
    example: Any = example_of(result)
    example.constant = torch.full(shape, number, device=device)
    fake_mode_of(tx).fake_tensor_converter.add_constant_storage_mapping(example)
    return result


@handlers.tensor_method("tolist", place=1)
def _index_list(call: Call) -> Answer:
    """Answer ``x.tolist()``."""
    numbers = _numbers_in(call.tx, call.owner, most_dimensions=1)
    return PASS if numbers is None else IndexList(call.owner, numbers)


@handlers.method(compat.TensorVariable, methods.ITER, "loops over the numbers of a mask")
def _iterator(call: Call) -> Answer:
    """Answer ``iter(x)``."""
    numbers = _numbers_in(call.tx, call.owner, most_dimensions=2)
    if numbers is None:
        ahead.know_length(call.tx, call.owner)
        return PASS
    return IndexIterator(numbers, shape=tuple(example_of(call.owner).shape[1:]))


def _numbers_in(
    tx: compat.Tracer, variable: TensorValue, *, most_dimensions: int
) -> IndexSet | None:
    if type(variable) is not compat.TensorVariable:
        return None
    example = example_of(variable)
    if not 1 <= example.dim() <= most_dimensions or not shape_env.symbols_in(example.shape[0]):
        return None
    if not capture_mode.may_be_mended(tx):
        return None
    found = index_set(tx, variable)
    return found if found is not None and found.bound <= ITERATIONS_AT_MOST else None


@hooks.around(
    compat.BuiltinVariable,
    methods.INSERT_OPERATION,
    "`x[row]` by a known number in a tensor",
    place=2,
)
def _insert_with_known_index(
    inner: Any, variable: compat.BuiltinVariable, tx: compat.Tracer, arguments: Any, keywords: Any
) -> Any:
    is_index = variable.fn in (operator.getitem, operator.setitem) and len(arguments) > 1
    if is_index and capture_mode.in_mended_code(tx):
        first, key, *rest = arguments
        arguments = [first, _with_numbers(key.realize()), *rest]
    return inner(variable, tx, arguments, keywords)


@hooks.around(
    compat.TensorVariable,
    methods.CALL_METHOD,
    "`x[row] = value` by a known number in a tensor",
    place=2,
)
def _store_at_known_key(
    inner: Any, tensor: TensorValue, tx: compat.Tracer, name: str, args: Any, kwargs: Any
) -> Any:
    if name == "__setitem__" and len(args) == 2 and capture_mode.in_mended_code(tx):
        args = [_with_numbers(args[0].realize()), args[1]]
    return inner(tensor, tx, name, args, kwargs)


def _with_numbers(key: Value) -> Value:
    """Return an index with constants in place of tensors that are known to hold a number."""
    if type(key) is compat.TupleVariable:
        return with_items(key, [_with_numbers(each.realize()) for each in key.items])
    known = _known_number(key)
    return constant(known) if type(known) is int else key


@hooks.around(
    compat.InstructionTranslatorBase,
    methods.FORMAT_VALUE,
    "a known number in a tensor, in a text",
    gate=hooks.first,
    place=1,
)
def _write_known_number(inner: Any, self: Any, spec: Value, flags: int) -> None:
    """Model ``f"expert_{row[0]}"``: a tensor of one number is written like the number."""
    if not flags & 3 and capture_mode.in_mended_code(self):
        known = _known_number(self.stack[-1])
        if known is not None:
            self.stack[-1] = constant(known)
    inner(self, spec, flags)


def _known_number(value: Value) -> Any:
    if type(value) is not compat.TensorVariable or example_of(value).dim():
        return None
    known = getattr(example_of(value), "constant", None)
    return None if known is None else known.item()
