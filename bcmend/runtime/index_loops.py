"""A loop over the numbers that a mask has, as one over all that it may have.

``for expert in hit.nonzero(as_tuple=True)[0].tolist()`` makes as many turns as the data say, and
its body may take a module by the number. Where the mask has a known length (``index_sets``), the
loop makes a turn for every number below that, which is then known, and a branch around the body
asks whether the mask has the number. The turns come in the order of the program, and what a turn
does that is not made is undone like any arm that is not taken.

The branch is no part of the program: the code is written anew with it (``rewrite.turns``) once such
an iterator has met the loop.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._dynamo import graph_break_hints
from torch._dynamo.bytecode_transformation import create_call_function
from torch._dynamo.exc import raise_observed_exception, unimplemented
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import BuiltinVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builder import wrap_fx_proxy

from bcmend.names import TURN_IS_MADE
from bcmend.runtime import backoff, calls, frames, scalars, sizes
from bcmend.runtime.held import has_a_name
from bcmend.runtime.index_sets import IndexSet, index_set
from bcmend.runtime.merge import constant, example_of

__all__ = ["install", "turn_is_made"]

#: Loops that may make more turns are left alone: each of them is a branch.
TURNS_AT_MOST: Final = 64

_ITERATOR: Final[type] = type(iter([]))


class IndexList(VariableTracker):
    """The list of the numbers in a tensor that is as long as the data say."""

    def __init__(self, tensor: TensorVariable, numbers: IndexSet, **more: Any) -> None:
        super().__init__(**more)
        self.tensor, self.numbers = tensor, numbers

    def python_type(self) -> type:
        return list

    def tp_iter_impl(self, tx: Any) -> VariableTracker:
        return IndexIterator(self.numbers)

    def sq_length(self, tx: Any) -> VariableTracker:
        return self.tensor.sq_length(tx)

    def method___len__(self, tx: Any) -> VariableTracker:
        return self.sq_length(tx)

    def reconstruct(self, codegen: Any) -> None:
        codegen(self.tensor)
        codegen.load_method("tolist")
        codegen.extend_output(create_call_function(0, False))


class IndexIterator(VariableTracker):
    """An iterator over the numbers of a mask that asks for each number below the bound.

    Never changed: the frame gets another one for each number. ``turn`` is the number that it came
    from; ``shape`` that of the tensors that the program is given, ``None`` where that is numbers.
    """

    def __init__(
        self,
        numbers: IndexSet,
        following: int = 0,
        shape: tuple[int, ...] | None = None,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.numbers, self.following, self.shape = numbers, following, shape

    def python_type(self) -> type:
        return _ITERATOR

    def tp_iter_impl(self, tx: Any) -> VariableTracker:
        return self

    def tp_iternext_impl(self, tx: Any) -> VariableTracker:
        if not (tx.stack and tx.stack[-1] is self) or has_a_name(tx, self):
            _stop("its iterator is not that of a loop alone")
        if self.following == self.numbers.bound:
            raise_observed_exception(StopIteration, tx)
        if not _asks_for_turns(tx):
            if frames.ends_at_a_boundary(tx):
                backoff.leave_turns_out(tx)
            _stop("the loop over it cannot be written anew")
        tx.stack[-1] = IndexIterator(self.numbers, self.following + 1, self.shape)
        if self.shape is None:
            return constant(self.following)
        return _known_tensor(tx, self.following, self.shape, self.numbers)

    def turn_is_made(self, tx: Any) -> VariableTracker:
        """Return whether the mask has the number that was given out last."""
        every: Any = self.numbers.is_there.as_proxy()
        proxy = every[self.following - 1]
        made: VariableTracker = wrap_fx_proxy(tx, proxy)
        return made


def turn_is_made(tx: Any) -> VariableTracker:
    """Return whether the turn whose item lies on the stack is one that the program makes."""
    iterator = tx.stack[-2] if len(tx.stack) > 1 else None
    return iterator.turn_is_made(tx) if isinstance(iterator, IndexIterator) else constant(True)


def _asks_for_turns(tx: Any) -> bool:
    """Whether the loop that asks for the next number asks next whether its turn is made."""
    following = tx.instructions[tx.instruction_pointer : tx.instruction_pointer + 4]
    return any(each.argval == TURN_IS_MADE for each in following)


def _known_tensor(
    tx: Any, number: int, shape: tuple[int, ...], numbers: IndexSet
) -> VariableTracker:
    """Return a tensor of which Dynamo knows that it holds ``number``."""
    device = example_of(numbers.is_there).device
    result = calls.function(tx, torch.full, shape, number, dtype=torch.int64, device=device)
    example: Any = example_of(result)
    example.constant = torch.full(shape, number, device=device)
    tx.fake_mode.fake_tensor_converter.add_constant_storage_mapping(example)
    return result


def _stop(why: str) -> None:
    unimplemented(
        gb_type="bcmend: loop over the numbers of a mask",
        context=why,
        explanation=f"The turns of a loop depend on the data, and {why}.",
        hints=[*graph_break_hints.FUNDAMENTAL],
    )


_DYNAMOS_ITERATOR: Final = TensorVariable.tp_iter_impl


def _with_index_list(before: Any) -> Any:
    """Return what answers ``x.tolist()``."""

    def tolist(variable: TensorVariable, tx: Any) -> Any:
        numbers = _numbers_in(tx, variable, most_dimensions=1)
        return before(variable, tx) if numbers is None else IndexList(variable, numbers)

    return tolist


def _iterator(variable: TensorVariable, tx: Any) -> VariableTracker:
    numbers = _numbers_in(tx, variable, most_dimensions=2)
    if numbers is None:
        return _DYNAMOS_ITERATOR(variable, tx)
    return IndexIterator(numbers, shape=tuple(example_of(variable).shape[1:]))


def _numbers_in(tx: Any, variable: TensorVariable, *, most_dimensions: int) -> IndexSet | None:
    if type(variable) is not TensorVariable:
        return None
    example = example_of(variable)
    if not 1 <= example.dim() <= most_dimensions or not sizes.symbols_in(example.shape[0]):
        return None
    if not scalars.may_take(tx):
        return None
    found = index_set(tx, variable)
    return found if found is not None and found.bound <= TURNS_AT_MOST else None


def _with_known_index(before: Any) -> Any:
    """Return what inserts operators into the graph, such as ``x[row]``."""

    def insert(variable: BuiltinVariable, tx: Any, arguments: Any, keywords: Any) -> Any:
        is_index = variable.fn in (operator.getitem, operator.setitem) and len(arguments) > 1
        if is_index and scalars.may_take(tx):
            first, key, *rest = arguments
            arguments = [first, _with_numbers(key.realize()), *rest]
        return before(variable, tx, arguments, keywords)

    return insert


def _with_known_key(before: Any) -> Any:
    """Return what answers ``x[row] = value``."""

    def store(
        variable: TensorVariable, tx: Any, key: VariableTracker, value: VariableTracker
    ) -> VariableTracker:
        if scalars.may_take(tx):
            key = _with_numbers(key)
        found: VariableTracker = before(variable, tx, key, value)
        return found

    return store


def _with_numbers(key: VariableTracker) -> VariableTracker:
    """Return an index with known numbers in place of tensors of them, which Python reads too."""
    if type(key) is TupleVariable:
        items = [_with_numbers(each.realize()) for each in key.items]
        is_same = all(one is other for one, other in zip(items, key.items, strict=True))
        return key if is_same else TupleVariable(items)
    known = _known_number(key)
    return key if type(known) is not int else constant(known)


def _with_known_text(before: Callable[..., None]) -> Callable[..., None]:
    """Return what answers ``f"expert_{row[0]}"``: one known number is written like the number."""

    def write(self: Any, spec: VariableTracker, flags: int) -> None:
        known = _known_number(self.stack[-1]) if not flags & 3 and scalars.may_take(self) else None
        if known is not None:
            self.stack[-1] = constant(known)
        before(self, spec, flags)

    return write


def _known_number(value: VariableTracker) -> Any:
    if type(value) is not TensorVariable or example_of(value).dim():
        return None
    known = getattr(example_of(value), "constant", None)
    return None if known is None else known.item()


def install() -> None:
    """Let Dynamo ask here before all others that answer for tensors."""
    BuiltinVariable._handle_insert_op_in_graph = _with_known_index(  # type: ignore[method-assign]
        BuiltinVariable._handle_insert_op_in_graph
    )
    TensorVariable.method___setitem__ = _with_known_key(  # type: ignore[method-assign]
        TensorVariable.method___setitem__
    )
    InstructionTranslatorBase._format_value = _with_known_text(  # type: ignore[method-assign]
        InstructionTranslatorBase._format_value
    )
    TensorVariable.method_tolist = _with_index_list(  # type: ignore[method-assign]
        TensorVariable.method_tolist
    )
    TensorVariable.tp_iter_impl = _iterator  # type: ignore[assignment, method-assign]
