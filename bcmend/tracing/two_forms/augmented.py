"""Assignments such as ``loss += x`` to a variable that alone has the tensor.

In place a tensor keeps what it is, and a merged one is then an older one that is written. Where no
other variable, attribute or container can show the change, ``loss + x`` is the same.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator
from typing import Any, Final

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import LOCAL_STORES
from bcmend.dynamo import compat, frames
from bcmend.dynamo.values import Value, example_of
from bcmend.names import CONDITION, ENTRY, INPUTS, RESULT
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.two_forms import sides

_NAMES: Final = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow")
#: Operators in place, and what they are beside that.
PLAIN: Final = {getattr(operator, f"i{each}"): getattr(operator, each) for each in _NAMES}
#: Locals that have had what they hold handed on.
_PASSED_ON: Final = (CONDITION, INPUTS, RESULT)


def is_of_one_variable(tx: Any, value: Value) -> bool:
    """Return whether a phi goes back to the only variable from which its tensors can be seen."""
    position = tx.instruction_pointer
    following = tx.instructions[position] if position < len(tx.instructions) else None
    if following is None or operation(following) not in LOCAL_STORES:
        return False
    if tx.symbolic_locals.get(following.argval) is not value:
        return False
    memory = {
        storage_of(example_of(each))
        for each in sides.leaves(value)
        if isinstance(each, compat.TensorVariable)
    }
    return not memory or not _hold(_others(tx, following.argval), memory)


def _others(tx: compat.Tracer, name: str) -> Iterator[Any]:
    """Yield what the frames being traced hold, but for a variable of the function."""
    effects = tx.output.side_effects
    for stores in effects.store_attr_mutations.values():
        yield from stores.values()
    for each in effects.id_to_variable.values():
        if not (isinstance(each, compat.TensorVariable) and each.source is None):
            yield each
    is_same_function = True
    for frame in frames.being_traced(tx):
        yield from frame.stack
        for each, value in frame.symbolic_locals.items():
            if each not in _PASSED_ON and not (is_same_function and each == name):
                yield value
        is_same_function = is_same_function and ENTRY in frame.f_code.co_varnames


def _hold(values: Iterable[Any], memory: set[int]) -> bool:
    found = []

    def note(variable: Value) -> None:
        if isinstance(variable, compat.TensorVariable):
            found.append(storage_of(example_of(variable)))

    compat.VariableTracker.visit(note, list(values))
    return not memory.isdisjoint(found)


def is_of_the_same_form(before: Any, after: Value) -> bool:
    """Return whether the result of an operator could have been written to an operand."""
    one, other = example_of(before), type(after) is compat.TensorVariable and example_of(after)
    return other is not False and all(
        getattr(one, each) == getattr(other, each) for each in ("dtype", "shape", "device")
    )
