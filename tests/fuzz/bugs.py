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


@_plant("where chooses the other side", "runtime.lower.by_where")
def _where(right: Any) -> Wrong:
    from bcmend.runtime import lower

    return lambda tx, predicate, *more: right(tx, lower.negated(tx, predicate), *more)


@_plant("cond runs the other side", "runtime.lower.by_cond")
def _cond(right: Any) -> Wrong:
    from bcmend.runtime import lower

    return lambda tx, predicate, *more: right(tx, lower.negated(tx, predicate), *more)


@_plant("no gate keeps the gradients of the untaken side back", "runtime.lower._Gate.__call__")
def _gate(right: Any) -> Wrong:
    return lambda self, outer: outer


@_plant("an arm changes the tensor itself, not a copy", "runtime.lower._own_copy")
def _no_copy(right: Any) -> Wrong:
    def wrong(tx: Any, outer: Any, gate: Any) -> Any:
        entered = gate(outer)
        entered.node.meta["example_value"] = outer.node.meta["example_value"]
        return entered

    return wrong


_plant_result(
    "what an arm changed in place is not written back", "runtime.in_place.write_back", None
)


@_plant("constants that differ become the first", "runtime.merge._merge_constants")
def _constants(right: Any) -> Wrong:
    return lambda one, other: lambda merged: one


@_plant("an int and a float that are equal become one", "runtime.merge._merge_constants")
def _kinds(right: Any) -> Wrong:
    def wrong(one: Any, other: Any) -> Any:
        same = one.as_python_constant() == other.as_python_constant()
        return (lambda merged: one) if same else right(one, other)

    return wrong


@_plant("tensors of different dtypes are merged", "runtime.merge.difference")
def _dtypes(right: Any) -> Wrong:
    return lambda one, other: right(one, other.to(one.dtype))


_plant_result("a merged alias that is changed later is not noticed", "runtime.watches.add", None)


@_plant("an operation that may fail is speculated", "runtime.ladder.weigh")
def _speculated(right: Any) -> Wrong:
    return lambda policy, hazards, *more: right(
        policy, [dataclasses.replace(each, partial="") for each in hazards], *more
    )


@_plant("random numbers of both sides are drawn", "runtime.ladder.weigh")
def _drawn(right: Any) -> Wrong:
    return lambda policy, hazards, *more: right(
        policy, [dataclasses.replace(each, random="") for each in hazards], *more
    )


# --- effects -------------------------------------------------------------------------------------

_plant_result("stores of arms are lost", "runtime.ladder.apply_changes", None)


@_plant("the predicate is not applied to a store", "runtime.attributes.Storing.apply")
def _unconditional(right: Any) -> Wrong:
    from bcmend.runtime import lower

    def wrong(self: Any, tx: Any, site: Any, predicate: Any, merged: Any) -> None:
        always = lower.either(tx, predicate, lower.negated(tx, predicate))
        right(self, tx, site, always, merged)

    return wrong


_plant_result(
    "what an arm did to lists stays while the other is traced",
    "runtime.snapshots.Remembered.restore",
    None,
)


@_plant("a side that is kept for later is the other", "runtime.choices._resolved")
def _resolved(right: Any) -> Wrong:
    from bcmend.runtime import choices

    def wrong(value: Any, seen: Any) -> Any:
        if choices.is_choice(value):
            mark, condition, one, other = value
            value = (mark, condition, other, one)
        return right(value, seen)

    return wrong


# --- output and exceptions -----------------------------------------------------------------------


@_plant("an arm's output appears under the other side", "runtime.ladder._append_under")
def _other_side(right: Any) -> Wrong:
    return lambda tx, predicate, draft, taken, values: right(
        tx, predicate, draft, not taken, values
    )


@_plant("records are delivered twice", "runtime.boundary.deliver")
def _twice(right: Any) -> Wrong:
    def wrong(buffer: Any) -> None:
        buffer[:] = [*buffer, *buffer]
        right(buffer)

    return wrong


@_plant("records are delivered in reverse", "runtime.boundary.deliver")
def _reverse(right: Any) -> Wrong:
    def wrong(buffer: Any) -> None:
        buffer.reverse()
        right(buffer)

    return wrong


@_plant("printed tensors are not kept as they were", "runtime.sinks._snapshot_tensor")
def _late(right: Any) -> Wrong:
    return lambda tx, site, value: value


@_plant("an exception comes before the output in front of it", "runtime.guards.make_guard")
def _raised_first(right: Any) -> Wrong:
    from bcmend.runtime import guards, sinks

    def wrong(tx: Any, *more: Any) -> bool:
        made = guards.make_record(tx, *more)
        if made and not sinks._stack(tx):
            records = sinks._buffer(tx).items
            records.insert(0, records.pop())
        return made

    return wrong


@_plant("a check fails where it holds", "runtime.guards.make_side_exit")
def _check(right: Any) -> Wrong:
    from bcmend.runtime import lower

    return lambda tx, site, predicate, **more: right(tx, site, lower.negated(tx, predicate), **more)


_plant_result("a check is left out", "runtime.side_exits.add", None)


@_plant("an exception passes its handler by", "runtime.guards.make_guard")
def _past_the_handler(right: Any) -> Wrong:
    from bcmend.runtime import guards

    return guards.make_record


# --- truths and loops ----------------------------------------------------------------------------


@_plant("torch.equal says the contrary", "runtime.truths._answered")
def _contrary(right: Any) -> Wrong:
    from bcmend.runtime import truths

    def wrong(answer: Any, *more: Any) -> Any:
        if answer is not truths._equal:
            return right(answer, *more)

        def contrary(tx: Any, input: Any, other: Any) -> Any:
            found = truths._equal(tx, input, other)
            return truths.lower.negated(tx, found) if hasattr(found, "as_proxy") else found

        return right(contrary, *more)

    return wrong


@_plant("a number is tested as an integer", "runtime.scalars._python_like")
def _narrow(right: Any) -> Wrong:
    import torch

    return lambda example: torch.int64


@_plant("a condition of a loop is the last turn's", "runtime.while_operator._unless_no_turn")
def _no_turn(right: Any) -> Wrong:
    return lambda tx, first, before, after, stays_if: right(tx, first, before, after, not stays_if)


@_plant("in a half, the condition has the other truth", "runtime.splits._decided")
def _halves(right: Any) -> Wrong:
    return lambda tx, value, condition, truth: right(tx, value, condition, not truth)


# --- rewriting -----------------------------------------------------------------------------------


@_plant("a live-in is forgotten", "rewrite.branch._inputs")
def _live_in(right: Any) -> Wrong:
    def wrong(*arguments: Any, **keywords: Any) -> Any:
        found = right(*arguments, **keywords)
        return found[:-1] if isinstance(found, tuple) else found

    return wrong


@_plant("live-outs come back in another order", "rewrite.write._pack_results")
def _live_out(right: Any) -> Wrong:
    return lambda outputs, extra: right(tuple(reversed(outputs)), extra)


@_plant("else is lost: both sides go to the first arm", "rewrite.write.CodeWriter._write_entry")
def _else(right: Any) -> Wrong:
    def wrong(self: Any, stretch: Any, number: int, member: Any, *, taken: bool) -> None:
        right(self, stretch, number, member, taken=True)

    return wrong


@_plant("operands of a larger expression change places", "rewrite.write._keep_operands")
def _operand(right: Any) -> Wrong:
    return lambda names, at: right(names[::-1], at)


@_plant("a keyword of a call is dropped", "codeobj.assemble.lower")
def _keyword(right: Any) -> Wrong:
    from bcmend.codeobj.decode import Instruction

    def wrong(instructions: Any, *more: Any) -> Any:
        units = [
            Instruction("NOP", None, None, each.location) if each.op == "KW_NAMES" else each
            for each in instructions
        ]
        return right(units, *more)

    return wrong


@_plant("handlers do not cover what was moved", "rewrite.write.CodeWriter._with_tries")
def _tries(right: Any) -> Wrong:
    return lambda self, stretch: (right(self, stretch)[0], [])


@_plant("lines are wrong", "codeobj.line_table.encode")
def _lines(right: Any) -> Wrong:
    return lambda runs, previous_line: right(runs, previous_line + 1)


@_plant("reading a mark is not noticed", "rewrite.unbound._fail_if_marked")
def _marks(right: Any) -> Wrong:
    return lambda shape, name, location: iter(())


@_plant("a check holds the other way round", "pipeline.propose_guard")
def _contrary_guard(right: Any) -> Wrong:
    def wrong(*arguments: Any) -> Any:
        found = right(*arguments)
        if not hasattr(found, "raises_if"):
            return found
        return dataclasses.replace(found, raises_if=not found.raises_if)

    return wrong


@_plant("exits are taken for one another", "rewrite.exits._Sharing._kind")
def _exits(right: Any) -> Wrong:
    return lambda self, leaving: "same"


@_plant("too small a stack", "codeobj.assemble.check_depths")
def _depth(right: Any) -> Wrong:
    return lambda *arguments: max(right(*arguments) // 4, 1)


_plant_result("unpatch leaves the code", "install._remove_one", False)
