"""Changes that arms make to objects of the main trace, made by the main trace instead.

Plans one store for each attribute, item or cell that either arm stores to, of a value merged from
both sides (the present value where a side stores nothing).
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, Final

from bcmend.delivery import records
from bcmend.dynamo import compat, values
from bcmend.dynamo.models import containers
from bcmend.dynamo.values import Value, constant
from bcmend.tracing.merging.attribute_effects import Storing, attribute_changes, require_creatable
from bcmend.tracing.merging.journaled_container import PlannedJournal, plan_journal
from bcmend.tracing.merging.lazy_phi import owner_in_a_record
from bcmend.tracing.merging.merge import Merger
from bcmend.tracing.merging.planned import Change, Contents, Creation, Join
from bcmend.tracing.numbers import predicates
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft, Kind
from bcmend.tracing.sites.phi import Merged
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.speculation import iterators
from bcmend.tracing.speculation.arms import ArmTrace, ContainerChange

AnyChange = Change | Creation | Contents | PlannedJournal | Storing


def plan_changes(join: Join, arms: tuple[ArmTrace, ArmTrace]) -> list[AnyChange]:
    """Plan the stores of both arms. Raises ``Refusal``."""
    return [*attribute_changes(join, arms), *_item_changes(join, arms)]


def _item_changes(join: Join, arms: tuple[ArmTrace, ArmTrace]) -> list[AnyChange]:
    by_variable: dict[int, list[ContainerChange | None]] = {}
    for side, arm in enumerate(arms):
        for change in arm.effects.containers:
            by_variable.setdefault(id(change.variable), [None, None])[side] = change
    changes: list[AnyChange] = []
    results, pairs = [arm.result for arm in arms], join.merger.pairs
    for sides in by_variable.values():
        known = next(side for side in sides if side is not None)
        if join.site.form(join.form).returns and iterators.end_here(
            join.tx, [known.variable], results, returns=True
        ):
            continue  # the frame ends, and the container with it
        contents = [(known.before if side is None else side.after)["items"] for side in sides]
        if _is_table_of_names(known.variable):
            changes += _table_changes(join, known, contents)
            continue
        count = len(pairs)
        if not any(side is not None and side.is_open for side in sides):
            found = attempt(partial(_same_form_changes, join.merger, known, contents))
            if not isinstance(found, Refusal):
                changes += found
                continue
        join.merger.take_back(count)
        changes.append(plan_journal(join, known.variable, known.before["items"], contents))
    return changes


def _table_changes(join: Join, known: ContainerChange, contents: Sequence[Any]) -> list[AnyChange]:
    """Plan the changes of a table of a module."""
    added = _added_by_one_side(contents)
    changes: list[AnyChange] = []
    for key, taken in added.items():
        for name in (key, *_READING_TABLES):
            require_creatable(join, known.variable, name)
        changes.append(_created_entry(join.merger, known.variable, key, contents, taken))
    others = [
        {key: value for key, value in content.items() if _name_in(key) not in added}
        for content in contents
    ]
    return [*changes, *_same_form_changes(join.merger, known, others)]


def _same_form_changes(
    merger: Merger, known: ContainerChange, contents: Sequence[Any]
) -> Sequence[AnyChange]:
    """Plan the changes of a container that has the same form after both sides."""
    kind = containers.kind_of(type(known.variable))
    if kind is compat.ConstDictVariable:
        return _dict_changes(merger, known, contents)
    if kind is compat.ListVariable:
        return _list_changes(merger, known, contents)
    if kind is compat.SetVariable and list(contents[0]) == list(contents[1]):
        return [Contents(known.variable, contents[0])]
    raise Refusal("arms-differ", f"an arm changes a {type(known.variable).__name__}")


#: Tables of a module in which an entry is a name that code would have to spell to find it.
_TABLES_OF_NAMES: Final = ("_buffers", "_parameters", "_modules", "_non_persistent_buffers_set")
#: Names by which a program reads a table of a module, or asks for all that is in it.
_READING_TABLES: Final = (
    *_TABLES_OF_NAMES,
    "__dict__", "vars", "dir", "state_dict", "apply", "buffers", "named_buffers", "parameters",
    "named_parameters", "children", "named_children", "modules", "named_modules",
)  # fmt: skip


def _is_table_of_names(variable: Value) -> bool:
    source = variable.source
    if type(variable) not in (compat.ConstDictVariable, compat.SetVariable) or source is None:
        return False
    return source.name.rstrip("']").endswith(_TABLES_OF_NAMES)


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
    merger: Merger, variable: Value, name: str, contents: Sequence[Any], taken: bool
) -> Creation:
    if type(variable) is compat.SetVariable:
        nothing = constant(None)
        return Creation(variable, name, lambda merged: nothing, nothing, taken)
    content = contents[0 if taken else 1]
    names = [_name_in(key) for key in content]
    position = names.index(name)
    value = list(content.values())[position]
    build = merger.adopt(value, then_side=taken)
    return Creation(variable, name, build, value, taken, tuple(names[:position]))


def _dict_changes(
    merger: Merger, known: ContainerChange, contents: Sequence[dict[Any, Value]]
) -> list[Change]:
    one, other = contents
    before = known.before["items"]
    if list(one) != list(other):
        raise Refusal("arms-differ", "a dictionary gets or loses a key on one side only")
    if list(one)[: len(before)] != list(before):
        raise Refusal("arms-differ", "a key is deleted from a dictionary")
    return [
        Change(known.variable, key, merger.merge(one[key], other[key]), (one[key], other[key]))
        for key in one
        if not (one[key] is other[key] is before.get(key))
    ]


def _list_changes(
    merger: Merger, known: ContainerChange, contents: Sequence[list[Value]]
) -> list[Change]:
    one, other = contents
    before = known.before["items"]
    if len(one) != len(other) or len(one) < len(before):
        raise Refusal("arms-differ", "a list grows or shrinks on one side only")
    return [
        Change(known.variable, position, merger.merge(left, right), (left, right))
        for position, (left, right) in enumerate(zip(one, other, strict=True))
        if position >= len(before) or not (left is right is before[position])
    ]


def apply_changes(join: Join, changes: Sequence[AnyChange], merged: Merged) -> None:
    """Make the planned stores in the main trace."""
    exact: dict[Value, Value] = {}
    for change in changes:
        if isinstance(change, (PlannedJournal, Storing)):
            change.apply(join, merged)
            continue
        if isinstance(change, Contents):
            _have_contents(join.tx, change)
            continue
        value = change.build(merged)
        if isinstance(change, Creation):
            exact[change.value] = value
            _create_later(join, change, value)
            continue
        _store(join.tx, change, value)
        if value not in change.sides:
            sides = [
                exact.get(side, value)
                if not isinstance(side, compat.TensorVariable) or join.merger.belongs(side)
                else side
                for side in change.sides
            ]
            _write_back_later(join, change, value, sides)


def _have_contents(tx: compat.Tracer, change: Contents) -> None:
    tx.output.side_effects.mutation(change.variable)
    containers.replace_items(change.variable, change.items)


def _store(tx: compat.Tracer, change: Change, value: Value) -> None:
    effects = tx.output.side_effects
    if change.kind is not None:
        effects.store_attr(change.variable, change.key, value, change.kind)
        return
    effects.mutation(change.variable)
    items = change.variable.items  # type: ignore[attr-defined]
    if isinstance(items, list) and change.key == len(items):
        items.append(value)
    else:
        items[change.key] = value


def _write_back_later(join: Join, change: Change, value: Value, sides: Sequence[Value]) -> None:
    """Record the store of a tensor that was there before, where a side stores that very tensor."""
    # The merged one only has its values: who compares objects, or changes one later, can tell.
    is_list = isinstance(getattr(change.variable, "items", None), list)
    if all(side is value for side in sides) or change.variable.source is None or is_list:
        return
    if not record_builder.is_open(join.tx):
        return
    write_back = records.write_back_item if change.kind is None else records.write_back_attribute
    key = containers.key_model(change.key) if change.kind is None else constant(change.key)
    owner = owner_in_a_record(change.variable)
    inputs = compat.TupleVariable([owner, key, value, join.predicate, *sides])
    action = values.function_of(join.tx, write_back)
    record_builder.append(join.tx, Draft(join.site, action, None, inputs, Kind.STORE))


def _create_later(join: Join, creation: Creation, value: Value) -> None:
    """Record the store of an entry that exists only if its side was taken."""
    tx, condition = join.tx, join.predicate
    if not creation.taken:
        condition = predicates.negated(tx, condition)
    given = [creation.variable, constant(creation.name), value]
    if creation.earlier is not None:
        given.append(constant(creation.earlier))
    add = records.add_member if creation.earlier is None else records.store_item
    inputs = compat.TupleVariable(given)
    action = values.function_of(tx, add)
    record_builder.append(tx, Draft(join.site, action, condition, inputs, Kind.STORE))
