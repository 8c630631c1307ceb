"""Instructions that pass values into a region function and out of it.

Operands that a region takes are stored in locals, since a call consumes what lies on top of the
stack only.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain

from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.names import NAMESPACE, OPERAND, RESULT
from bcmend.rewrite.sites.plan import BranchLowering, GuardLowering
from bcmend.rewrite.writer.stretch import Emitted


def operand_names(lowering: BranchLowering | GuardLowering) -> list[str]:
    """Return the locals for the operands that an arm is given, from the top down."""
    return [OPERAND.format(number) for number in range(lowering.operands)]


def names_or_nulls(lowering: BranchLowering) -> list[str | None]:
    """Return the locals for the operands of a region, the lowest first; ``None`` for NULLs."""
    return [
        None if number in lowering.nulls else OPERAND.format(number)
        for number in range(lowering.operands)
    ]


def copy_operands(names: Sequence[str]) -> Emitted:
    """Store the topmost operands in locals, and leave them on the stack."""
    return [
        each
        for number, name in enumerate(names, 1)
        for each in (*emit.copy(number), *emit.store_local(name))
    ]


def tuple_of(names: Sequence[str]) -> Emitted:
    """Push a tuple of locals."""
    loads = [each for name in names for each in emit.load_local(name, may_be_unbound=True)]
    return [*loads, *emit.build_tuple(len(names))]


def push_all(names: Sequence[str | None]) -> Emitted:
    """Push variables, the first deepest; ``None`` stands for a NULL."""
    pushes = (emit.push_null() if name is None else emit.load_local(name) for name in names)
    return [*chain.from_iterable(pushes)]


def pop_all(names: Sequence[str | None]) -> Emitted:
    """Bind the topmost operands to variables, the last one's to the top; drop NULLs."""
    # Nothing but a call may take a NULL.
    drop_null = (*emit.call_over_null((NAMESPACE, "nothing")), *emit.pop_top())
    pops = (drop_null if name is None else emit.store_local(name) for name in reversed(names))
    return [*chain.from_iterable(pops)]


def insert_nulls(member: BranchLowering) -> Emitted:
    """Put the NULLs of a region among the operands that it is given, which lie on the stack."""
    names = names_or_nulls(member)
    return [*pop_all([name for name in names if name is not None]), *push_all(names)]


def pack_results(outputs: Sequence[str], extra: int) -> Emitted:
    """Return the results of an arm: its outputs, then its operands from the top down."""
    operands = [OPERAND.format(number) for number in range(extra)]
    stores = [each for name in operands for each in emit.store_local(name)]
    return [*stores, *tuple_of([*outputs, *operands]), *emit.return_value()]


def unpack_results(lowering: BranchLowering, operands: int) -> Emitted:
    """Bind the outputs, and replace the ``operands`` that are left by those that the arm left.

    The stack never gets lower than it is before or behind, since a handler may count on it.
    """
    count = len(lowering.outputs) + lowering.extra
    if count == 0:
        return emit.pop_top() * operands
    new = [OPERAND.format(number) for number in range(lowering.extra)]
    code: list[Item] = [*emit.load_local(RESULT), *emit.unpack_sequence(count)]
    code += [each for name in lowering.outputs for each in emit.store_local(name)]
    if not operands:
        return code
    code += [each for name in new for each in emit.store_local(name)]
    code += emit.pop_top() * (operands - lowering.extra)
    above = max(lowering.extra - operands, 0)
    for depth, name in enumerate(new[above:], 2):
        code += [*emit.load_local(name), *emit.swap(depth), *emit.pop_top()]
    return [*code, *push_all(new[:above][::-1])]
