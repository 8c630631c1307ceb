"""Lists to which the sides of a branch append unlike, and of which nobody looks at single items.

``if mask.any(): losses.append(...)`` leaves a list as long as the data say. All items that it may
have are in the graph, each beside the truth of whether it is there; those of one side are not where
those of the other are, so that they may stand behind one another. How many there are, and what is
computed of all of them, needs no list (``indexing.joined_items``). Whatever else looks at one makes
Dynamo trace the frame again, with the branch told that its sides have to append alike.
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final, NoReturn

import torch

from bcmend import meta_keys
from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import TRUTH_JUMPS
from bcmend.dynamo import compat, fx_graph, handlers, shape_env
from bcmend.dynamo.models import containers, methods, objects
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import TensorValue, Value, constant
from bcmend.tracing.merging.journaled_container import look_at_contents
from bcmend.tracing.merging.location_phi import LocationPhi
from bcmend.tracing.merging.merge import Join, Merger, is_made_inside
from bcmend.tracing.numbers import predicates, scalars, size_questions
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import body_states
from bcmend.tracing.sites.phi import Build, Keep, Merged, OpenContents, Phi
from bcmend.tracing.sites.site_table import LiveSite

#: How many items a list has, by the items and the graph in which they were counted.
_COUNTS: Final[Slot[dict[Any, Value]]] = Slot(dict, rolls_back=True)


class OptionalItem(Phi, compat.VariableTracker):
    """An item of a list that is there where a predicate holds.

    Attributes:
        predicate: a 0-d boolean tensor.
        value: what it is if it is there; else any tensor of that form.
        absent: numbers that data-dependent symbols have where it is not there.
        finding: what is falsified if anything looks at it.
    """

    def __init__(
        self,
        predicate: TensorValue,
        value: Value,
        absent: Mapping[Any, int],
        finding: Finding,
        **more: Any,
    ) -> None:
        super().__init__(**more)
        self.predicate, self.value, self.absent, self.finding = predicate, value, absent, finding

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        predicate, value = (
            merger.adopt(each, then_side=then_side) for each in (self.predicate, self.value)
        )

        def build(merged: Merged) -> Value:
            known: Any = predicate(merged)
            return OptionalItem(known, value(merged), self.absent, self.finding)

        return build

    def reconstruct(self, codegen: Any) -> None:
        falsify(self.finding)

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        falsify(self.finding)


class OptionalList(OpenContents, Phi, compat.ListVariable):
    """A list some of whose items may not be there."""

    @property
    def all_items(self) -> list[Any]:
        """Return the items, those that may not be there among them."""
        return list(vars(self)["items"])

    @property
    def output(self) -> compat.OutputGraph:
        found: compat.OutputGraph = vars(self)[meta_keys.OPTIONAL]
        return found

    def appended_to(self, tx: compat.Tracer) -> Any:
        return vars(self)["items"]

    @property
    def items(self) -> Any:
        if objects.looks_for_subclasses(sys._getframe(1).f_code):
            return vars(self)["items"]
        return super().items

    @items.setter
    def items(self, value: Any) -> None:
        vars(self)["items"] = value

    @property
    def optional(self) -> list[OptionalItem]:
        return [each for each in self.all_items if isinstance(each, OptionalItem)]

    def ask(self) -> NoReturn:
        """Have the frame traced again without optional items in this list, for it is looked at.

        Nor would it be journaled then: whatever looks at it now would look at it in that trace.
        """
        looked_at = self._assumed()
        branches = {(each.subject, each.of) for each in looked_at}
        if len(branches) == 1:
            is_read = Finding(Claim.READ_APART, *branches.pop())
            look_at_contents(self.output, is_read, *looked_at)
        falsify(*looked_at)

    def _leave(self) -> NoReturn:
        """Have the frame traced again without optional items in this list, which leaves it."""
        falsify(*self._assumed())

    def _assumed(self) -> list[Finding]:
        return list(dict.fromkeys(each.finding for each in self.optional))

    def call_method(
        self, tx: compat.Tracer, name: str, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> Value:
        if name != "append" or keywords or len(arguments) != 1:
            self._leave()  # a record may do it
        tx.output.side_effects.mutation(self)
        vars(self)["items"].append(arguments[0])
        return constant(None)

    @methods.implements(methods.LENGTH, methods.LENGTH_METHOD)
    def length(self, tx: compat.Tracer) -> Value:
        """Return how many items there are."""
        if not self.is_sure and _is_a_jump(tx):
            # Dynamo would jump by the model of the truth, which is always true.
            what = "How long it is depends on data."
            handlers.break_graph(body_states.LIST_DECIDES, repr(self), what)
        items, known = self.all_items, _COUNTS.of(tx.output)
        around = [(id(each.graph), *map(id, items)) for each in fx_graph.tracers(tx)]
        found = next((known[key] for key in around if key in known), None)
        if found is None:
            found = known[around[0]] = _counted(tx, len(items), self.optional)
        return found

    @property
    def is_sure(self) -> bool:
        """Return whether an item is there whatever the data are."""
        return len(self.all_items) > len(self.optional)

    def truth(self, tx: compat.Tracer) -> Value:
        """Return whether there is any item."""
        if self.is_sure:
            return constant(True)
        return compat.BuiltinVariable(operator.gt).call_function(
            tx, [self.length(tx), constant(0)], {}
        )

    def is_filled(self, tx: compat.Tracer) -> bool:
        """Return whether there surely is an item, be it that the graph asserts it."""
        count: Any = self.length(tx)
        if not isinstance(count, compat.SymNodeVariable):
            return bool(count.as_python_constant())
        return size_questions.rule_out(tx, count.sym_num, 0)

    def reconstruct(self, codegen: Any) -> None:
        self._leave()

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        self._leave()

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        known: Any = self
        if not is_made_inside(known):
            return lambda merged: known
        parts = [merger.adopt(each, then_side=then_side) for each in self.all_items]

        def build(merged: Merged) -> Value:
            items = containers.new_list([each(merged) for each in parts])
            return _with_optional(items, self.output)

        return build


def _is_a_jump(tx: compat.Tracer) -> bool:
    """Return whether a trace is at an instruction that jumps by the truth of a value."""
    return operation(tx.current_instruction) in TRUTH_JUMPS


def _with_optional(variable: Any, output: compat.OutputGraph) -> Value:
    """Have the model of a list know that some of its items may not be there."""
    vars(variable)[meta_keys.OPTIONAL] = output
    variable.__class__ = OptionalList
    model: Value = variable
    return model


def _counted(tx: compat.Tracer, most: int, optional: Sequence[OptionalItem]) -> Value:
    """Return the number of items that are there, which is at most ``most``."""
    truths = [fx_graph.method(tx, "to", each.predicate, torch.int64) for each in optional]
    sure = most - len(optional)
    total = reduce(lambda one, other: fx_graph.function(tx, operator.add, one, other), truths)
    number = scalars.take(tx, fx_graph.function(tx, operator.add, total, sure))
    if number is None:
        falsify(*dict.fromkeys(each.finding for each in optional))
    shape_env.limit(number, compat.ValueRanges(sure, most))
    return number


@dataclass(frozen=True, slots=True)
class Added:
    """What one side appends, and the numbers that symbols have on the other one."""

    taken: bool
    items: Sequence[Build]
    absent: Mapping[Any, int]


@dataclass(frozen=True, slots=True)
class Appended(LocationPhi):
    """A list to which one side alone appends, or both do, but not alike."""

    before: Sequence[Value]
    sides: Sequence[Added]
    finding: Finding

    def read(self, join: Join, merged: Merged) -> Any:
        items = list(self.before)
        for side in self.sides:
            condition = join.predicate
            predicate = condition if side.taken else predicates.negated(join.tx, condition)
            items += [self._item(join, predicate, plan(merged), side.absent) for plan in side.items]
        return items

    def _item(
        self, join: Join, predicate: TensorValue, value: Value, absent: Mapping[Any, int]
    ) -> OptionalItem:
        if isinstance(value, OptionalItem):
            predicate, absent = predicates.both(join.tx, predicate, value.predicate), {}
            value = value.value
        return OptionalItem(predicate, value, absent, self.finding)

    def materialise(self, join: Join, value: Any) -> None:
        LocationPhi.materialise(self, join, value)
        if not join.merger.has_appended:  # lists that grow by one branch have as many lengths
            body_states.state_of(join.tx.output.root_tx.f_code).noted_open.append(self.finding)
            join.merger.has_appended = True
        _with_optional(self.location.owner, join.tx.output)


def may_be_optional(value: Value) -> bool:
    return isinstance(value, OptionalItem) or type(value) is compat.TensorVariable
