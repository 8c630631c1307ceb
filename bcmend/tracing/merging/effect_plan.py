"""Plan the changes that arms make to objects of the main trace, for the main trace to make.

There is one for each attribute, item or cell that either arm stores to, of a value merged from both
sides (the present value where a side stores nothing), or of what each side leaves there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import partial
from itertools import takewhile
from typing import Any, Final

from bcmend.delivery import records
from bcmend.dynamo import compat
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import Value, constant
from bcmend.tracing.heap import heap
from bcmend.tracing.heap.same import is_same
from bcmend.tracing.merging.attribute_effects import attribute_changes, require_creatable
from bcmend.tracing.merging.journaled_container import can_be_journaled, pairs_of, refill
from bcmend.tracing.merging.location_phi import (
    Journaled,
    LocationPhi,
    OneSide,
    OneValue,
    may_outlive_its_graph,
    one_number,
    require_no_earlier_history,
)
from bcmend.tracing.merging.merge import Join
from bcmend.tracing.merging.optional_items import (
    Added,
    Appended,
    OptionalItem,
    OptionalList,
    may_be_optional,
)
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.phi import Merged
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import ArmTrace, ContainerChange


def plan_changes(join: Join, arms: tuple[ArmTrace, ArmTrace]) -> list[LocationPhi]:
    """Plan the stores of both arms. Raises ``Refusal``."""
    return [*attribute_changes(join, arms), *_item_changes(join, arms)]


def _item_changes(join: Join, arms: tuple[ArmTrace, ArmTrace]) -> list[LocationPhi]:
    by_variable: dict[int, list[ContainerChange | None]] = {}
    for side, arm in enumerate(arms):
        for change in arm.effects.containers:
            by_variable.setdefault(id(change.variable), [None, None])[side] = change
    changes: list[LocationPhi] = []
    results = [arm.result for arm in arms]
    is_last = bool(by_variable) and _returns(join)
    ending = ending_containers(join.tx, arms, results) if is_last else frozenset()
    for key, sides in by_variable.items():
        known = next(side for side in sides if side is not None)
        _require_no_failing_iterator(join, known.variable)
        if key in ending:
            continue
        contents = [(known.before if side is None else side.after)["items"] for side in sides]
        if heap.is_table_of_names(known.variable):
            changes += _table_changes(join, known, contents)
            continue
        is_open = any(side is not None and side.is_open for side in sides)
        if not (is_open or _is_better_journaled(join, known.variable, contents)):
            found = join.merger.attempt(partial(_same_form_changes, join, known, contents))
            if not isinstance(found, Refusal):
                changes += found
                continue
        before = known.before["items"]
        appended = _plan_appended(join, known.variable, before, contents)
        if appended is not None:
            changes.append(appended)
            continue
        changes += plan_journal(join, known.variable, before, contents)
    return changes


def _require_no_failing_iterator(join: Join, variable: Value) -> None:
    """Raise ``Refusal`` where an iterator fails in Python, and not in Dynamo's model of it."""
    if isinstance(variable, compat.DequeVariable) and iterators.go_over(join.tx, variable):
        raise Refusal("arms-differ", "an arm changes a deque while a loop goes over it")


def _returns(join: Join) -> bool:
    return join.site.form(join.form).returns


def ending_containers(
    tx: compat.Tracer,
    arms: tuple[ArmTrace, ArmTrace],
    results: Sequence[Value],
    handed_out: Collection[int] = (),
) -> frozenset[int]:
    """Return the changed containers, by identity, that end with the branch and its frame.

    ``results`` are what counts as handed out by it; ``handed_out`` says which containers among the
    changed ones are too, by identity, though nothing in ``results`` holds them.
    """
    changes = [each for arm in arms for each in arm.effects.containers]
    known = {id(each.variable): each.variable for each in changes}
    stored, ending = [arm.stored for arm in arms], frozenset(known)
    while True:
        ended = ending - frozenset(handed_out)
        after = [each.after["items"] for each in changes if id(each.variable) not in ended]
        left = [results, stored, after]
        held = {
            key for key in ending if not iterators.end_here(tx, [known[key]], left, returns=True)
        }
        if not held:
            return ending
        ending -= held


def _is_better_journaled(join: Join, variable: Value, contents: Sequence[Any]) -> bool:
    """Return whether merged items of a container would tie the backwards of two calls together."""
    pairs = _that_may_outlive(variable, contents)
    if not pairs or not can_be_journaled(variable):
        return False
    if _is_iterated_over(join, variable, contents):
        return False
    return join.site.holds(Claim.READ_APART, join.form) and record_builder.is_open(join.tx)


def _that_may_outlive(variable: Value, contents: Sequence[Any]) -> list[tuple[Value, Value]]:
    """Return the sides of items whose merged value may outlive its graph."""
    if variable.source is None:
        return []
    one, other = map(containers.by_key, contents)
    pairs = [(value, other[key]) for key, value in one.items() if key in other]
    return [pair for pair in pairs if pair[0] is not pair[1] and may_outlive_its_graph(pair)]


def _table_changes(
    join: Join, known: ContainerChange, contents: Sequence[Any]
) -> list[LocationPhi]:
    """Plan the changes of a table of a module."""
    added = _added_by_one_side(contents)
    changes: list[LocationPhi] = []
    for key, taken in added.items():
        for name in (key, *_READING_TABLES):
            require_creatable(join, known.variable, name)
        changes.append(_created_entry(join, known.variable, key, contents, taken))
    others = [
        {key: value for key, value in content.items() if _name_in(key) not in added}
        for content in contents
    ]
    return [*changes, *_same_form_changes(join, known, others)]


def _same_form_changes(
    join: Join, known: ContainerChange, contents: Sequence[Any]
) -> Sequence[LocationPhi]:
    """Plan the changes of a container that has the same form after both sides."""
    kind, owner = containers.kind_of(type(known.variable)), known.variable
    if kind is compat.SetVariable and containers.have_same_keys(*contents):
        location, items = Location(LocationKind.CONTENTS, owner), contents[0]
        return [OneValue(location, lambda merged: items, (items, items))]
    if kind not in (compat.ConstDictVariable, compat.ListVariable):
        raise Refusal("arms-differ", f"an arm changes a {type(owner).__name__}")
    before, one, other = map(containers.by_key, (known.before["items"], *contents))
    if not containers.have_same_keys(one, other):
        raise Refusal("arms-differ", "a container gets or loses an item on one side only")
    if not containers.have_same_keys(before, list(one)[: len(before)]):
        raise Refusal("arms-differ", "an item is deleted from a container")
    for pair in _that_may_outlive(owner, contents):
        require_no_earlier_history(pair, "an item of a container")
    return [
        _item_change(join, Location(LocationKind.ITEM, owner, key), left, right)
        for key, left, right in zip(one, one.values(), other.values(), strict=True)
        if not (left is right is before.get(key))
    ]


def _item_change(join: Join, location: Location, *sides: Value) -> LocationPhi:
    """Plan an item that is merged. Raises ``Refusal``."""
    merged = join.merger.attempt(lambda: join.merger.merge(*sides))
    if not isinstance(merged, Refusal):
        return OneValue(location, merged, sides)  # type: ignore[arg-type]
    number = one_number(join, location, sides)  # type: ignore[arg-type]
    if number is None:
        raise merged
    return number


#: Names by which a program reads a table of a module, or asks for all that is in it.
_READING_TABLES: Final = (
    *heap.TABLES_OF_NAMES,
    "__dict__", "vars", "dir", "state_dict", "apply", "buffers", "named_buffers", "parameters",
    "named_parameters", "children", "named_children", "modules", "named_modules",
)  # fmt: skip


def _name_in(key: Any) -> Any:
    """Return the constant that a key of a container is; ``None`` if it is none."""
    model = containers.key_model(key)
    return model.as_python_constant() if model.is_python_constant() else None


def _added_by_one_side(contents: Sequence[Any]) -> dict[str, bool]:
    """Return the names that one side alone adds to a table, and whether the first side does."""
    return {
        name: side == 0
        for side, content in enumerate(contents)
        for key in content
        if key not in contents[1 - side] and (name := _name_in(key)) is not None
    }


def _created_entry(
    join: Join, variable: Value, name: str, contents: Sequence[Any], taken: bool
) -> LocationPhi:
    """Plan an entry that is stored at the end, if the side that creates it was taken.

    Until then no other code may look for it (``require_creatable`` makes sure).
    """
    key, store = constant(name), partial(record_builder.store_by, join.tx, join.site)
    location = Location(LocationKind.ITEM, variable, name)
    if type(variable) is compat.SetVariable:
        member = [variable, key, constant(None)]
        return OneSide(location, taken, lambda merged: store(records.add_member, member))
    content, merger = contents[0 if taken else 1], join.merger
    names = [_name_in(each) for each in content]
    position = names.index(name)
    value, earlier = list(content.values())[position], constant(tuple(names[:position]))
    plan = merger.adopt(value, then_side=taken)

    def record(merged: Merged) -> Draft:
        merger.created[value] = plan(merged)
        return store(records.store_item, [variable, key, merger.created[value], earlier])

    return OneSide(location, taken, record)


def _plan_appended(
    join: Join, variable: Value, before: Any, contents: Sequence[Any]
) -> LocationPhi | None:
    """Plan what sides append to a list that the call has made; ``None`` where that is not all.

    ``contents`` are those after the first side and after the other one.
    """
    finding = Finding(Claim.ADDED_UP, join.site, join.form)
    is_own = isinstance(variable.mutation_type, compat.ValueMutationNew)
    if type(variable) not in (compat.ListVariable, OptionalList) or not is_own:
        return None
    if finding.known is not None or _is_iterated_over(join, variable, contents):
        return None
    one, other = (_appended(before, after) for after in contents)
    if one is None or other is None or _are_alike(one, other):
        return None
    absent = reversed(join.merger.fixed())
    sides = [
        Added(taken, [join.merger.adopt(each, then_side=taken) for each in items], numbers)
        for taken, items, numbers in zip((True, False), (one, other), absent, strict=True)
        if items
    ]
    return Appended(Location(LocationKind.CONTENTS, variable), before, sides, finding)


def _appended(before: Sequence[Value], after: Sequence[Value]) -> list[Value] | None:
    """Return what a side appends to a list; ``None`` if it does something else to it."""
    if not _hold_the_same(after[: len(before)], before):
        return None
    items = [each.realize() for each in after[len(before) :]]
    return items if all(map(may_be_optional, items)) else None


def _are_alike(one: Sequence[Value], other: Sequence[Value]) -> bool:
    """Return whether both sides append as many items, which are all there."""
    return len(one) == len(other) and not any(
        isinstance(each, OptionalItem) for each in (*one, *other)
    )


def plan_journal(
    join: Join, variable: Value, before: Any, contents: Sequence[Any]
) -> list[LocationPhi]:
    """Plan to journal a container. Raises ``Refusal`` where it must not be."""
    if not can_be_journaled(variable):
        raise Refusal("arms-differ", f"an arm changes a {type(variable).__name__}")
    name = f"a {variable.python_type_name()} that the sides of a branch change"
    if not join.site.holds(Claim.READ_APART, join.form):
        raise Refusal("arms-differ", f"{name} differs and is read later")
    if not record_builder.is_open(join.tx):
        raise Refusal("arms-differ", f"{name} differs, outside a boundary")
    if _is_iterated_over(join, variable, contents):
        raise Refusal("arms-differ", f"{name} differs while a loop goes over it")
    location = Location(LocationKind.LOG, variable)
    phis: list[LocationPhi] = [Journaled(location)]
    for taken, side in zip((True, False), contents, strict=True):
        if not _hold_the_same(side, before):
            removed, added = _difference(variable, before, side)
            plan = join.merger.adopt(added, then_side=taken)
            phis.append(OneSide(location, taken, refill(join, variable, removed, plan)))
    return phis


def _is_iterated_over(join: Join, variable: Value, contents: Sequence[Any]) -> bool:
    """Return whether an iterator that goes on behind the branch shows how its sides differ."""
    items = vars(variable)["items"]
    have_same_keys = isinstance(items, dict) and all(
        containers.have_same_keys(each, items) for each in contents
    )
    return iterators.go_over(join.tx, variable, but=join.consumed, keys_are_the_same=have_same_keys)


def _hold_the_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        are_keys_alike = containers.have_same_keys(one, other)
        return are_keys_alike and _hold_the_same([*one.values()], [*other.values()])
    return len(one) == len(other) and all(map(is_same, one, other))


def _difference(variable: Value, before: Any, after: Any) -> tuple[Value, Value]:
    """Return what has to be removed from ``before``, and what is then added to get ``after``."""
    # What is removed from a sequence is all from a position on; from the others, keys.
    if isinstance(variable, (compat.ListVariable, compat.DequeVariable)):
        same = sum(1 for _ in takewhile(bool, map(is_same, before, after)))
        return constant(same), compat.TupleVariable(list(after)[same:])
    if isinstance(variable, compat.SetVariable):
        kept = dict.fromkeys(containers.keys_of_both(before, after))
        removed = [containers.key_model(key) for key in before if key not in kept]
        added = [containers.key_model(key) for key in after if key not in kept]
        return compat.TupleVariable(removed), compat.TupleVariable(added)
    # From the first key on that has another place, all are removed and added in the new order.
    in_order = containers.keys_of_both(before, after)
    count = sum(1 for _ in takewhile(bool, map(containers.is_same_key, in_order, after)))
    kept = dict.fromkeys(in_order[:count])
    removed = [containers.key_model(key) for key in before if key not in kept]
    kept_values = {key for key in kept if is_same(before[key], after[key])}
    changed = (each for each in after.items() if each[0] not in kept_values)
    return compat.TupleVariable(removed), pairs_of(changed)
