"""Planted bugs: each a monkeypatch of one function of bcmend, and what goes wrong by it.

The functions are replaced where they are looked up. `tests.fuzz.planted` tries them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

Wrong = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Planted:
    """A bug.

    Attributes:
        name: what goes wrong.
        place: dotted path of the function that is replaced.
        wrap: makes the wrong function of the right one.
    """

    name: str
    place: str
    wrap: Callable[[Any], Wrong]


PLANTED: list[Planted] = []


def _plant(name: str, place: str) -> Callable[[Wrong], Wrong]:
    def keep(wrap: Wrong) -> Wrong:
        PLANTED.append(Planted(name, f"bcmend.{place}", wrap))
        return wrap

    return keep


def _plant_result(name: str, place: str, result: object) -> None:
    """Plant a function that does nothing and returns `result`."""
    PLANTED.append(Planted(name, f"bcmend.{place}", lambda right: lambda *a, **k: result))


# --- merging and lowering ------------------------------------------------------------------------


@_plant("where chooses the other side", "tracing.lowering.where.by_where")
def _where(right: Any) -> Wrong:
    from bcmend.tracing.numbers import predicates

    return lambda tx, predicate, *more: right(tx, predicates.negated(tx, predicate), *more)


@_plant("cond runs the other side", "tracing.lowering.cond.by_cond")
def _cond(right: Any) -> Wrong:
    from bcmend.tracing.numbers import predicates

    return lambda tx, predicate, *more: right(tx, predicates.negated(tx, predicate), *more)


@_plant(
    "no gate keeps the gradients of the untaken side back", "tracing.lowering.where._Gate.__call__"
)
def _gate(right: Any) -> Wrong:
    return lambda self, outer: outer


@_plant("an arm changes the tensor itself, not a copy", "tracing.lowering.where._own_copy")
def _no_copy(right: Any) -> Wrong:
    def wrong(tx: Any, outer: Any, gate: Any) -> Any:
        entered = gate(outer)
        entered.node.meta["example_value"] = outer.node.meta["example_value"]
        return entered

    return wrong


_plant_result(
    "what an arm changed in place is not written back", "tracing.merging.in_place.write_back", None
)


@_plant("constants that differ become the first", "tracing.merging.merge._merge_constants")
def _constants(right: Any) -> Wrong:
    return lambda one, other: lambda merged: one


@_plant("an int and a float that are equal become one", "tracing.merging.merge._merge_constants")
def _kinds(right: Any) -> Wrong:
    def wrong(one: Any, other: Any) -> Any:
        same = one.as_python_constant() == other.as_python_constant()
        return (lambda merged: one) if same else right(one, other)

    return wrong


@_plant("tensors of different dtypes are merged", "tracing.merging.merge.difference")
def _dtypes(right: Any) -> Wrong:
    return lambda one, other: right(one, other.to(one.dtype))


_plant_result(
    "a merged alias that is changed later is not noticed", "tracing.effects.watches.add", None
)


@_plant("an operation that may fail is speculated", "tracing.lowering.choose_lowering.weigh")
def _speculated(right: Any) -> Wrong:
    return lambda policy, hazards, *more: right(
        policy, [dataclasses.replace(each, partial="") for each in hazards], *more
    )


@_plant("random numbers of both sides are drawn", "tracing.lowering.choose_lowering.weigh")
def _drawn(right: Any) -> Wrong:
    return lambda policy, hazards, *more: right(
        policy, [dataclasses.replace(each, random="") for each in hazards], *more
    )


# --- effects -------------------------------------------------------------------------------------

_plant_result(
    "stores of arms are lost", "tracing.merging.location_phi.LocationPhi.materialise", None
)


@_plant("the predicate is not applied to a store", "tracing.merging.location_phi.BothSides.read")
def _unconditional(right: Any) -> Wrong:
    from bcmend.tracing.numbers import predicates

    def wrong(self: Any, join: Any, merged: Any) -> Any:
        untaken = predicates.negated(join.tx, join.predicate)
        always = predicates.either(join.tx, join.predicate, untaken)
        return right(self, dataclasses.replace(join, predicate=always), merged)

    return wrong


_plant_result(
    "what an arm did to lists stays while the other is traced",
    "dynamo.snapshots.Remembered.restore",
    None,
)


@_plant("a side that is kept for later is the other", "delivery.codec._decoded")
def _resolved(right: Any) -> Wrong:
    from bcmend.delivery import codec

    def wrong(value: Any, seen: Any) -> Any:
        if codec.kind_of(value) == codec.CHOICE:
            mark, kind, condition, one, other = value
            value = (mark, kind, condition, other, one)
        return right(value, seen)

    return wrong


# --- output and exceptions -----------------------------------------------------------------------


@_plant("an arm's output appears under the other side", "tracing.merging.location_phi.append_under")
def _other_side(right: Any) -> Wrong:
    return lambda tx, predicate, draft, *, taken: right(tx, predicate, draft, taken=not taken)


@_plant("records are delivered twice", "tracing.entry.boundary.deliver")
def _twice(right: Any) -> Wrong:
    def wrong(buffer: Any) -> None:
        buffer[:] = [*buffer, *buffer]
        right(buffer)

    return wrong


@_plant("records are delivered in reverse", "tracing.entry.boundary.deliver")
def _reverse(right: Any) -> Wrong:
    def wrong(buffer: Any) -> None:
        buffer.reverse()
        right(buffer)

    return wrong


@_plant(
    "printed tensors are not kept as they were", "tracing.output.record_builder._snapshot_tensor"
)
def _late(right: Any) -> Wrong:
    return lambda tx, site, value: value


@_plant(
    "an exception comes before the output in front of it",
    "tracing.output.deferred_exceptions.make_guard",
)
def _raised_first(right: Any) -> Wrong:
    from bcmend.tracing.output import deferred_exceptions, record_builder

    def wrong(tx: Any, *more: Any) -> bool:
        made = deferred_exceptions.make_record(tx, *more)
        if made and not record_builder._stack(tx):
            records = record_builder._buffer(tx).items
            records.insert(0, records.pop())
        return made

    return wrong


@_plant("a check fails where it holds", "tracing.output.deferred_exceptions.make_side_exit")
def _check(right: Any) -> Wrong:
    from bcmend.tracing.numbers import predicates

    return lambda tx, site, predicate, **more: right(
        tx, site, predicates.negated(tx, predicate), **more
    )


_plant_result("a check is left out", "tracing.deopt.side_exits.add_side_exit", None)


@_plant("an exception passes its handler by", "tracing.output.deferred_exceptions.make_guard")
def _past_the_handler(right: Any) -> Wrong:
    from bcmend.tracing.output import deferred_exceptions

    return deferred_exceptions.make_record


# --- truths and loops ----------------------------------------------------------------------------


@_plant("torch.equal says the contrary", "tracing.handlers.tensor_bool._answered")
def _contrary(right: Any) -> Wrong:
    from bcmend.tracing.handlers import tensor_bool

    def wrong(answer: Any, *more: Any) -> Any:
        if answer is not tensor_bool._equal:
            return right(answer, *more)

        def contrary(tx: Any, input: Any, other: Any) -> Any:
            found = tensor_bool._equal(tx, input, other)
            return (
                tensor_bool.predicates.negated(tx, found) if hasattr(found, "as_proxy") else found
            )

        return right(contrary, *more)

    return wrong


@_plant("a number is tested as an integer", "tracing.numbers.scalars._python_like")
def _narrow(right: Any) -> Wrong:
    import torch

    return lambda example: torch.int64


@_plant(
    "a condition of a loop is the last iteration's",
    "tracing.loops.while_operator._unless_no_iteration",
)
def _no_iteration(right: Any) -> Wrong:
    return lambda tx, first, before, after, stays_if: right(tx, first, before, after, not stays_if)


@_plant("in a half, the condition has the other truth", "tracing.two_forms.sides.on_side")
def _halves(right: Any) -> Wrong:
    return lambda tx, value, condition, truth: right(tx, value, condition, not truth)


# --- rewriting -----------------------------------------------------------------------------------


@_plant("a live-in is forgotten", "rewrite.sites.branch._inputs")
def _live_in(right: Any) -> Wrong:
    def wrong(*arguments: Any, **keywords: Any) -> Any:
        found = right(*arguments, **keywords)
        return found[:-1] if isinstance(found, tuple) else found

    return wrong


@_plant("live-outs come back in another order", "rewrite.writer.branch_writer.pack_results")
def _live_out(right: Any) -> Wrong:
    return lambda outputs, extra: right(tuple(reversed(outputs)), extra)


@_plant(
    "else is lost: both sides go to the first arm",
    "rewrite.writer.branch_writer.BranchWriter._write_entry",
)
def _else(right: Any) -> Wrong:
    def wrong(self: Any, stretch: Any, number: int, member: Any, *, taken: bool) -> None:
        right(self, stretch, number, member, taken=True)

    return wrong


@_plant(
    "operands of a larger expression change places", "rewrite.writer.branch_writer.copy_operands"
)
def _operand(right: Any) -> Wrong:
    return lambda names: right(names[::-1])


@_plant("a keyword of a call is dropped", "bytecode.assemble.lower")
def _keyword(right: Any) -> Wrong:
    from bcmend.bytecode.instructions import Instruction

    def wrong(instructions: Any, *more: Any) -> Any:
        units = [
            Instruction("NOP", None, None, each.location) if each.op == "KW_NAMES" else each
            for each in instructions
        ]
        return right(units, *more)

    return wrong


@_plant("handlers do not cover what was moved", "rewrite.writer.code_writer.with_tries")
def _tries(right: Any) -> Wrong:
    return lambda facts, stretch: (right(facts, stretch)[0], [])


@_plant("lines are wrong", "bytecode.line_table.encode")
def _lines(right: Any) -> Wrong:
    return lambda runs, previous_line: right(runs, previous_line + 1)


@_plant("reading a mark is not noticed", "rewrite.passes.unbound_marks._fail_if_marked")
def _marks(right: Any) -> Wrong:
    return lambda shape, name, location: iter(())


@_plant("a check holds the other way round", "rewrite.decisions.propose_guard")
def _contrary_guard(right: Any) -> Wrong:
    def wrong(*arguments: Any) -> Any:
        found = right(*arguments)
        if not hasattr(found, "raises_if"):
            return found
        return dataclasses.replace(found, raises_if=not found.raises_if)

    return wrong


@_plant("exits are taken for one another", "rewrite.passes.shared_exits._Sharing._kind")
def _exits(right: Any) -> Wrong:
    return lambda self, leaving: "same"


@_plant("too small a stack", "bytecode.assemble.check_depths")
def _depth(right: Any) -> Wrong:
    return lambda *arguments: max(right(*arguments) // 4, 1)


_plant_result("unpatch leaves the code", "patching.installer._remove_one", False)
