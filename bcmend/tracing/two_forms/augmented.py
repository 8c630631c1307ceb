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
from bcmend.dynamo import compat
from bcmend.dynamo.values import Value, example_of
from bcmend.names import CONDITION, INPUTS, RESULT
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.heap import roots
from bcmend.tracing.heap.roots import Root
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
    own = roots.frames_of_the_function(tx)
    for edge in roots.edges(tx):
        is_it = edge.key == name and edge.is_of(own)
        if edge.root is not Root.LOCAL or not (is_it or edge.key in _PASSED_ON):
            yield edge.value


def _hold(values: Iterable[Any], memory: set[int]) -> bool:
    def is_in_it(variable: Value) -> bool:
        if not isinstance(variable, compat.TensorVariable):
            return False
        return storage_of(example_of(variable)) in memory

    return roots.reach(values, is_in_it, lazily=True)  # what nothing has looked at, too


def is_of_the_same_form(before: Any, after: Value) -> bool:
    """Return whether the result of an operator could have been written to an operand."""
    one, other = example_of(before), type(after) is compat.TensorVariable and example_of(after)
    return other is not False and all(
        getattr(one, each) == getattr(other, each) for each in ("dtype", "shape", "device")
    )
