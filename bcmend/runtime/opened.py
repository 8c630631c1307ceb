"""Containers whose contents only the data tell.

A list that one side of a branch appends to has two contents, and no single model of Dynamo's. Such
a container is opened: records under the condition and its contrary give it the contents of the
side taken when the graph has run, and what is done to it later becomes a record too, so that a
loop with ``if p: found.append(x)`` makes as many records as turns. The object itself stays what it
is, so its identity and who else holds it need no care. Whatever looks at its contents while the
call is traced makes Dynamo trace the frame again, with the branch told not to open anything.

Reads the contents of a container before a branch and on both sides; produces the records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from torch._dynamo.utils import unpack_iterable
from torch._dynamo.variables import ConstDictVariable, ListVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.hashable import is_hashable
from torch._dynamo.variables.lists import DequeVariable, ListIteratorVariable
from torch._dynamo.variables.sets import SetVariable

from bcmend.runtime import lower, sinks, snapshots
from bcmend.runtime.merge import Build, CannotMerge, Merger, constant, is_made_inside
from bcmend.runtime.sinks import Draft
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.untouched import READING, untouched
from bcmend.runtime.watches import SiteChanged

__all__ = ["Opened", "PlannedOpening", "plan_opening"]

#: The field of a variable that says which branch has opened it.
_FIELD: Final = "bcmend_opening"


@dataclass(frozen=True, slots=True, eq=False)
class _Opening:
    """Which branch opened a container, in which form, and the trace that it happened in."""

    site: LiveSite
    form: int
    output: Any


#: Methods that return nothing and never fail, and how many arguments they take.
_RECORDED: Final[Mapping[type, Mapping[str, int]]] = {
    ListVariable: {"append": 1, "extend": 1, "clear": 0, "reverse": 0},
    DequeVariable: {"append": 1, "appendleft": 1, "extend": 1, "extendleft": 1, "clear": 0},
    ConstDictVariable: {"__setitem__": 2, "update": 1, "clear": 0},
    SetVariable: {"add": 1, "discard": 1, "update": 1, "clear": 0},
}


class Opened:
    """What an opened container does differently from Dynamo's model of its type."""

    closed: type[VariableTracker]

    @property
    def opening(self) -> _Opening:
        found: _Opening = vars(self)[_FIELD]
        return found

    @property
    def items(self) -> Any:
        """The contents, as far as they are known.

        Asked for while Dynamo writes code they are what the container holds when the graph has
        run, before the records of the call are delivered.
        """
        if self.opening.output.should_exit:
            return vars(self)["items"]
        frame = self.opening.output.current_tx
        if _is_appended_to(frame, self):
            return _Appender(frame, self)
        return self.ask()

    @items.setter
    def items(self, value: Any) -> None:
        vars(self)["items"] = value

    def ask(self) -> None:
        """Have the frame traced again without opening this container."""
        opening = self.opening
        opening.site.note_read(opening.form)
        raise SiteChanged(restart_reason=f"bcmend: {opening.site.key} has to merge a container")

    def __repr__(self) -> str:
        return type(self).__name__

    __str__ = __repr__

    def debug_repr(self) -> str:
        return repr(self)

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotImplementedError

    def call_method(
        self, tx: Any, name: str, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> VariableTracker:
        if keywords or _RECORDED[self.closed].get(name) != len(arguments):
            self.ask()
        self.record(tx, name, arguments)
        return constant(None)

    def mp_ass_subscript_impl(self, tx: Any, key: Any, value: Any) -> VariableTracker:
        """Model ``self[key] = value``, or the deletion of an item where there is no value."""
        if value is None:
            self.ask()
        return self.call_method(tx, "__setitem__", [key, value], {})

    def nb_inplace_or_impl(self, tx: Any, other: Any) -> VariableTracker:
        self.call_method(tx, "update", [other], {})
        assert isinstance(self, VariableTracker)
        return self

    def record(self, tx: Any, method: str, arguments: Sequence[VariableTracker]) -> None:
        """Have a method called when the graph has run."""
        if method in ("extend", "extendleft", "update"):
            arguments = [self._as_it_is_now(tx, arguments[0])]
        elif method in ("__setitem__", "add", "discard") and not is_hashable(arguments[0]):
            self.ask()
        site = self.opening.site
        values = [_as_recorded(each, site) for each in arguments]
        action = sinks.function_of_records(tx, "alter")
        inputs = TupleVariable([_owner(tx, self), constant(method), *values])
        sinks.append(tx, Draft(site, action, None, inputs))

    def _as_it_is_now(self, tx: Any, argument: VariableTracker) -> VariableTracker:
        """Return what a container is extended by, whatever is changed later."""
        argument = argument.realize()
        if isinstance(argument, Opened):  # its contents are right when the record is delivered
            return _owner(tx, argument)
        if isinstance(argument, ConstDictVariable) and self.closed is ConstDictVariable:
            argument.install_dict_keys_match_guard()
            return _pairs(list(argument.items.items()))
        if self.closed is ConstDictVariable:
            self.ask()
        return TupleVariable(unpack_iterable(tx, argument))

    def as_recorded(
        self, reader: LiveSite, keep: Callable[[VariableTracker], VariableTracker]
    ) -> VariableTracker:
        """Return what a record holds: the container, whose later changes are later records."""
        assert isinstance(self, VariableTracker)
        return self

    def adopt_into(self, merger: Merger, then_side: bool | None) -> Build:
        """Plan to bring the container into the main trace."""
        assert isinstance(self, VariableTracker)
        variable: Any = self
        if not is_made_inside(variable):
            return lambda merged: variable
        plan = merger.adopt(_copy(self.closed, variable), then_side=then_side)

        def build(merged: Sequence[VariableTracker]) -> VariableTracker:
            built = plan(merged)
            _open(built, self.opening)
            return built

        return build


class _OpenedList(Opened, ListVariable):
    closed = ListVariable


class _OpenedDeque(Opened, DequeVariable):
    closed = DequeVariable


class _OpenedDict(Opened, ConstDictVariable):
    closed = ConstDictVariable

    def _known(self, tx: Any, key: VariableTracker) -> ConstDictVariable:
        """Return a dictionary that knows of ``key`` what this one does; itself, if that is all."""
        return untouched(tx, self, _owner(tx, self), key) or self

    def call_method(
        self, tx: Any, name: str, arguments: Sequence[Any], keywords: dict[str, Any]
    ) -> VariableTracker:
        if name in READING and arguments and not keywords:
            known = self._known(tx, arguments[0])
            if known is not self:
                return known.call_method(tx, name, list(arguments), keywords)
        return super().call_method(tx, name, arguments, keywords)

    def mp_subscript_impl(self, tx: Any, key: VariableTracker) -> VariableTracker:
        """Model ``self[key]``."""
        return ConstDictVariable.mp_subscript_impl(self._known(tx, key), tx, key)

    def sq_contains(self, tx: Any, item: VariableTracker) -> VariableTracker:
        """Model ``item in self``."""
        return ConstDictVariable.sq_contains(self._known(tx, item), tx, item)


class _OpenedSet(Opened, SetVariable):
    closed = SetVariable


_KINDS: Final[dict[type, type]] = {
    kind.closed: kind for kind in (_OpenedList, _OpenedDeque, _OpenedDict, _OpenedSet)
}


class _Appender:
    """Stands in for the list behind an opened one, for the instruction of a comprehension."""

    def __init__(self, tx: Any, owner: Opened) -> None:
        self.tx, self.owner = tx, owner

    def append(self, item: VariableTracker) -> None:
        self.owner.record(self.tx, "append", [item])


def _as_recorded(value: Any, site: LiveSite) -> VariableTracker:
    """Return a value for a record, which may hold both sides of a branch."""
    if type(value) is TupleVariable:
        return TupleVariable([_as_recorded(each, site) for each in value.items])
    if not hasattr(value, "as_recorded"):
        assert isinstance(value, VariableTracker)
        return value
    kept: VariableTracker = value.as_recorded(site, lambda side: side)
    return kept


def _is_appended_to(frame: Any, value: Any) -> bool:
    instruction = frame.current_instruction
    return instruction.opname == "LIST_APPEND" and frame.stack[-instruction.arg] is value


def _open(variable: VariableTracker, opening: _Opening) -> None:
    """Open a container that Dynamo models by ``variable``."""
    if isinstance(variable, Opened):
        return
    vars(variable)[_FIELD] = opening
    variable.__class__ = _KINDS[type(variable)]


def _copy(kind: type[VariableTracker], variable: VariableTracker) -> VariableTracker:
    """Return a closed container with the contents that are known of an opened one."""
    closed = kind.__new__(kind)
    vars(closed).update(vars(variable))
    del vars(closed)[_FIELD]
    return closed


def _owner(tx: Any, container: Any) -> VariableTracker:
    """Return the object whose contents a container models, where it is not that object itself."""
    for variable in tx.output.side_effects.id_to_variable.values():
        if vars(variable).get("_base_vt") is container:
            owner: VariableTracker = variable
            return owner
    assert isinstance(container, VariableTracker)
    return container


def _pairs(items: Sequence[tuple[Any, VariableTracker]]) -> TupleVariable:
    return TupleVariable([TupleVariable([key.vt, value]) for key, value in items])


@dataclass(frozen=True, slots=True)
class _Refill:
    """A record that turns the contents from before a branch into those of one side."""

    taken: bool
    removed: VariableTracker
    added: Build


@dataclass(frozen=True, slots=True)
class PlannedOpening:
    """A container that is opened by a branch."""

    variable: VariableTracker
    form: int
    refills: tuple[_Refill, ...]

    def apply(
        self, tx: Any, site: LiveSite, predicate: Any, merged: Sequence[VariableTracker]
    ) -> None:
        """Write the records, and open the container for what follows."""
        tx.output.side_effects.check_allowed_side_effect(self.variable)
        owner = _owner(tx, self.variable)
        action = sinks.function_of_records(tx, "refill")
        for refill in self.refills:
            condition = predicate if refill.taken else lower.negated(tx, predicate)
            added = _as_recorded(refill.added(merged), site)
            inputs = TupleVariable([owner, refill.removed, added])
            sinks.append(tx, Draft(site, action, condition, inputs))
        _open(self.variable, _Opening(site, self.form, tx.output))


def plan_opening(
    tx: Any,
    site: LiveSite,
    merger: Merger,
    form: int,
    variable: VariableTracker,
    before: Any,
    contents: Sequence[Any],
) -> PlannedOpening:
    """Plan to open a container. Raises ``CannotMerge`` where it must not be."""
    if type(variable) not in _KINDS:
        raise CannotMerge(f"an arm changes a {type(variable).__name__}")
    if form in site.reads:
        raise CannotMerge(f"{_name(variable)} differs and is read later")
    if not sinks.is_open(tx):
        raise CannotMerge(f"{_name(variable)} differs, outside a boundary")
    if _is_gone_over(tx, variable):
        raise CannotMerge(f"{_name(variable)} differs while a loop goes over it")
    refills = []
    for taken, side in ((True, contents[0]), (False, contents[1])):
        if _is_same(side, before):
            continue
        removed, added = _difference(variable, before, side)
        refills.append(_Refill(taken, removed, merger.adopt(added, then_side=taken)))
    return PlannedOpening(variable, form, tuple(refills))


def _name(variable: VariableTracker) -> str:
    return f"a {variable.python_type_name()} that the sides of a branch change"


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, dict):
        return _is_same([*one, *one.values()], [*other, *other.values()])
    return len(one) == len(other) and all(
        left is right for left, right in zip(one, other, strict=True)
    )


def _difference(
    variable: VariableTracker, before: Any, after: Any
) -> tuple[VariableTracker, VariableTracker]:
    """Return what has to be removed from ``before``, and what is then added to get ``after``.

    What is removed from a sequence is all from a position on; from the others, keys.
    """
    if isinstance(variable, (ListVariable, DequeVariable)):
        kept = _common_prefix(before, after)
        return constant(kept), TupleVariable(list(after)[kept:])
    removed = TupleVariable([key.vt for key in before if key not in after])
    if isinstance(variable, SetVariable):
        return removed, TupleVariable([key.vt for key in after if key not in before])
    in_order = [key for key in before if key in after]
    if in_order != list(after)[: len(in_order)]:
        raise CannotMerge("a key is deleted from a dictionary and added again")
    changed = [(key, value) for key, value in after.items() if before.get(key) is not value]
    return removed, _pairs(changed)


def _common_prefix(one: Sequence[Any], other: Sequence[Any]) -> int:
    both = zip(one, other, strict=False)
    return next(
        (position for position, (left, right) in enumerate(both) if left is not right),
        min(len(one), len(other)),
    )


def _is_gone_over(tx: Any, variable: VariableTracker) -> bool:
    """Whether an iterator that is still in use has the contents of ``variable``."""
    items, found = vars(variable)["items"], []

    def note(value: VariableTracker) -> None:
        if isinstance(value, ListIteratorVariable) and value.items is items:
            found.append(value)

    snapshots.visit(note, list(_held(tx)), tx.output.side_effects)
    return bool(found)


def _held(tx: Any) -> Iterator[VariableTracker]:
    frame = tx
    while frame is not None:
        yield from frame.symbolic_locals.values()
        yield from frame.stack
        frame = getattr(frame, "parent", None)
