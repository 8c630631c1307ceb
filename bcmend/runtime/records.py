"""Deliver what one call recorded, in the order of the program.

A record is ``(site key, predicate, raises, action, inputs)``. An output record's action makes the
call of the original statement; a guard's action raises the original exception, from the original
file and line. Delivery stops at the first guard that failed: eager would not have gone further. It
does not stop at output that fails (see ``failed_output``).
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from typing import Any, Final

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.eval_frame import skip_code

from bcmend.names import PREFIX
from bcmend.runtime import choices
from bcmend.runtime.conditions import truths
from bcmend.runtime.failed_output import Failures, is_of_an_argument

__all__ = [
    "MISSING",
    "OUTLET",
    "Buffer",
    "add_member",
    "alter",
    "deliver",
    "deliver_one",
    "refill",
    "reset_variable",
    "set_variable",
    "settle_attribute",
    "settle_item",
    "show_as_of",
    "store",
    "store_choice",
    "store_item",
]

Record = tuple[str, "torch.Tensor | None", bool, Any, tuple[Any, ...]]
Buffer = list[Record]


def deliver(buffer: Buffer) -> None:
    """Run the records of ``buffer`` and leave it empty, whatever happens."""
    records = list(buffer)
    buffer.clear()
    holds = iter(truths([each[1] for each in records if each[1] is not None]))
    failures = Failures()
    for position, record in enumerate(records):
        key, predicate, raises, action, inputs = record
        if predicate is not None and not next(holds):
            continue
        try:
            deliver_one(key, raises, action, inputs)
        except BaseException as error:
            failures.errors.append(error)
            if _is_the_end(record, error) or failures.is_interrupted_twice:
                _take_back(records[position + 1 :])
                break
    if failures.errors:
        try:
            raise failures.to_be_raised()
        finally:
            del failures, records, record, predicate, action, inputs  # its traceback has this frame


def _is_the_end(record: Record, error: BaseException) -> bool:
    """Whether what stands behind a record that has failed was never to happen."""
    _, _, raises, action, inputs = record
    return raises or is_of_an_argument(error, action, inputs)


def deliver_one(key: str, raises: bool, action: Any, inputs: tuple[Any, ...]) -> None:
    """Run a record whose condition holds."""
    action(*(inputs if action in _CHANGES else choices.resolve(inputs)))
    if raises:
        raise AssertionError(
            f"{key}: this code raised while it was traced and does not now, so the result "
            f'of the call is unknown; switch the site off with Policy(off=("{key}",))'
        )


def _take_back(records: list[Record]) -> None:
    """Undo the stores of choices that were not made, for a check before them has failed."""
    for _, _, _, action, inputs in records:
        if action is store_choice:
            owner, name, is_in_place, _, before = inputs
            if is_in_place:
                store(owner, name, choices.resolve(before))


class _Outlet:
    """Delivers what is assigned to ``records``.

    A frame that Dynamo enters without a boundary of ours (``nn.Sequential``, a function of the
    user's that calls a patched model) has nobody to deliver its records. Dynamo replays stores to
    attributes when the graph has run: such a frame's trace ends with one to this object.
    """

    @property
    def records(self) -> Buffer:
        return []

    @records.setter
    def records(self, buffer: Buffer) -> None:
        callback = set_eval_frame(None)  # what a record does is not compiled
        try:
            deliver(buffer)
        finally:
            set_eval_frame(callback)


OUTLET = _Outlet()
skip_code(_Outlet.records.fset.__code__)  # type: ignore[attr-defined]


def store_item(owner: dict[Any, Any], key: Any, value: Any, earlier: tuple[Any, ...]) -> None:
    """Store what only the taken side adds to a dictionary, right behind the keys ``earlier``."""
    is_new = key not in owner
    owner[key] = value
    if is_new:
        for other in [each for each in owner if each != key and each not in earlier]:
            owner[other] = owner.pop(other)


#: Stands for the value of an attribute that does not exist.
MISSING: Final = object()


def present(owner: Any, name: str) -> Any:
    """Return the value of an attribute before the graph's changes are made."""
    return getattr(owner, name, MISSING)


def store_choice(owner: Any, name: str, is_in_place: bool, choice: Any, before: Any) -> None:
    """Store the side taken where both have waited, unless something else was stored since.

    ``before`` is what was there before the branch.
    """
    if is_in_place:
        store(owner, name, choices.resolve(choice))


#: Methods that do no more than store.
_STORING: Final[tuple[Any, ...]] = (object.__setattr__, torch.nn.Module.__setattr__)


def store(owner: Any, name: str, value: Any) -> None:
    """Store an attribute without any other effect that storing it may have."""
    if value is MISSING:
        delattr(owner, name)
    elif type(owner).__setattr__ in _STORING:
        setattr(owner, name, value)
    else:  # what a method of the user's does beside storing has been done by the graph
        object.__setattr__(owner, name, value)


def add_member(owner: set[Any], key: Any, value: Any) -> None:
    """Add what only the taken side adds to a set."""
    owner.add(key)


#: The first item of (mark, format string, values, named values): a text to be formatted.
TEXT: Final = f"{PREFIX}text"


def show_as_of(action: Any, stored: tuple[tuple[Any, str, bool, Any], ...], *inputs: Any) -> None:
    """Write output with objects as they were: rows of object, attribute, whether it was, value."""
    now = [(vars(owner), name, vars(owner).get(name, MISSING)) for owner, name, _, _ in stored]
    try:
        for owner, name, exists, value in stored:
            _put(vars(owner), name, value if exists else MISSING)
        action(*map(_formatted, inputs))
    finally:
        for attributes, name, value in now:
            _put(attributes, name, value)


def _formatted(value: Any) -> Any:
    if type(value) is not tuple:
        return value
    if len(value) != 4 or type(value[0]) is not str or value[0] != TEXT:
        return tuple(map(_formatted, value))
    _, text, parts, named = value
    return text.format(*map(_formatted, parts), **{name: _formatted(part) for name, part in named})


def _put(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value is MISSING:
        attributes.pop(name, None)
    else:
        attributes[name] = value


def settle_attribute(
    owner: Any, name: str, merged: Any, predicate: torch.Tensor, one: Any, other: Any
) -> None:
    """Replace a merged value of an attribute by the very object that eager would have stored."""
    if getattr(owner, name, None) is merged:
        setattr(owner, name, one if predicate else other)


def settle_item(
    owner: dict[Any, Any], key: Any, merged: Any, predicate: torch.Tensor, one: Any, other: Any
) -> None:
    """Replace a merged value of a dictionary by the very object that eager would have stored."""
    if owner.get(key) is merged:
        owner[key] = one if predicate else other


def alter(owner: Any, method: str, *arguments: Any) -> None:
    """Do to a container what the program did when its contents were not known yet."""
    getattr(_kind_of(owner), method)(owner, *map(choices.resolve, arguments))


def refill(owner: Any, removed: Any, added: tuple[Any, ...]) -> None:
    """Turn what a container held before a branch into what it holds after the side taken.

    ``removed`` is the position from which on a sequence is replaced; else the keys to be removed.
    """
    kind, added = _kind_of(owner), choices.resolve(added)
    if kind is deque:
        while len(owner) > removed:
            kind.pop(owner)
        kind.extend(owner, added)
    elif kind is list:
        kind.__setitem__(owner, slice(removed, None), added)
    else:
        for key in removed:
            (kind.discard(owner, key) if kind is set else kind.pop(owner, key, None))
        kind.update(owner, added)


#: The types of containers, those that are made of others first.
_KINDS: Final = (OrderedDict, defaultdict, dict, list, set, deque)


def _kind_of(owner: Any) -> Any:
    """Return the type whose methods do no more than change a container.

    A class of the user's may have methods of its own, whose other effects the graph already had.
    """
    return next(kind for kind in _KINDS if isinstance(owner, kind))


def set_variable(place: list[Any], variable: Any, value: Any) -> None:
    """Set a context variable, and leave the token in ``place``."""
    place.append(variable.set(value))


def reset_variable(place: list[Any], variable: Any) -> None:
    """Reset a context variable with the token that is in ``place``."""
    variable.reset(place.pop())


#: Actions on an object of the program, which may be large and holds nothing to be chosen.
_CHANGES: Final[frozenset[Any]] = frozenset(
    [alter, refill, store_choice, set_variable, reset_variable]
)
