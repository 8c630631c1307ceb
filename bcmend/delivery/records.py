"""Delivers what one call recorded, in the order of the program.

A record is ``(site key, predicate, raises, action, inputs)``. The action of output makes the call
of the original statement; that of a guard raises the original exception. Delivery stops at the
first guard that failed, but not at output that fails (``failed_output``).
"""

from __future__ import annotations

import sys
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterator
from types import CellType, WrapperDescriptorType
from typing import Any, Final

import torch

from bcmend.delivery import codec, warning_blocks
from bcmend.delivery.failed_output import Failures, is_of_an_argument
from bcmend.delivery.read_predicates import truths

Record = tuple[str, "torch.Tensor | None", bool, Any, tuple[Any, ...]]
Buffer = list[Record]


def deliver(buffer: Buffer) -> None:
    """Run the records of ``buffer`` and leave it empty, whatever happens."""
    records = list(buffer)
    buffer.clear()
    found = truths([each[1] for each in records if each[1] is not None])
    if len(found) < len(records) or True in found:
        _deliver(records, iter(found))


def _deliver(records: list[Record], holds: Iterator[bool]) -> None:
    failures = Failures()
    with warning_blocks.Delivery():
        for position, record in enumerate(records):
            key, predicate, raises, action, inputs = record
            if predicate is not None and not next(holds):
                continue
            try:
                deliver_one(key, raises, action, inputs)
            except BaseException as error:
                failures.errors.append(error)
                is_the_end = raises or is_of_an_argument(error, action, inputs)
                if is_the_end or failures.is_interrupted_twice:
                    _take_back(records[position + 1 :])
                    break
    if failures.errors:
        try:
            raise failures.to_be_raised()
        finally:
            del failures, records, record, predicate, action, inputs  # its traceback has this frame


def deliver_one(key: str, raises: bool, action: Any, inputs: tuple[Any, ...]) -> None:
    """Run a record whose condition holds."""
    action(*(inputs if action in _CHANGES else codec.decode(inputs)))
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
            store_choice(owner, name, is_in_place, before, before)


def store_item(owner: dict[Any, Any], key: Any, value: Any, earlier: tuple[Any, ...]) -> None:
    """Store an item of the taken side in a dictionary, right behind the keys ``earlier``."""
    is_new = key not in owner
    owner[key] = value
    if is_new:
        for other in [each for each in owner if each != key and each not in earlier]:
            owner[other] = owner.pop(other)


#: Stands for the value of an attribute that does not exist.
MISSING: Final = object()


class _GlobalVariables:
    """Has the entries of a global scope as attributes."""


def global_variables() -> Any:
    """Return an object whose attributes are the global variables of the calling frame."""
    found = _GlobalVariables()
    found.__dict__ = sys._getframe(1).f_globals
    return found


def present(owner: Any, name: str) -> Any:
    """Return the value of an attribute of an object's own before the graph's changes are made."""
    return MISSING if is_inherited(owner, name) else _read(owner, name)


def _read(owner: Any, name: str) -> Any:
    """Return an attribute, or ``MISSING``, without asking code of the program for one."""
    read: Any = type(owner).__getattribute__
    if not isinstance(read, WrapperDescriptorType):
        methods = (vars(each).get("__getattribute__") for each in type(owner).__mro__)
        read = next(each for each in methods if isinstance(each, WrapperDescriptorType))
    try:
        return read(owner, name)
    except AttributeError:
        is_module = issubclass(type(owner), torch.nn.Module)
    except ValueError:
        if isinstance(owner, CellType):  # an empty one
            return MISSING
        raise
    for table in ("_parameters", "_buffers", "_modules") if is_module else ():
        held = vars(owner).get(table, {})
        if name in held:
            return held[name]
    return MISSING


def is_inherited(owner: Any, name: str) -> bool:
    """Return whether an object has an attribute only since its class, or a base class, has it."""
    if name in getattr(owner, "__dict__", ()):
        return False
    kinds = owner.__mro__[1:] if isinstance(owner, type) else type(owner).__mro__
    found = next((vars(kind)[name] for kind in kinds if name in vars(kind)), MISSING)
    return found is not MISSING and not hasattr(type(found), "__set__")


def store_choice(owner: Any, name: str, is_in_place: bool, choice: Any, before: Any) -> None:
    """Store the side taken; ``before`` is the value before the branch.

    ``is_in_place`` is whether the attribute still has the choice.
    """
    if is_in_place:
        store(owner, name, codec.decode(choice))


#: Methods that do no more than store.
_STORING: Final[tuple[Any, ...]] = (object.__setattr__, torch.nn.Module.__setattr__)


def store(owner: Any, name: str, value: Any) -> None:
    """Store an attribute without any other effect of storing it."""
    if value is MISSING:
        delattr(owner, name)
    elif type(owner).__setattr__ in _STORING:
        setattr(owner, name, value)
    else:  # the graph has had the other effects of the user's method
        _plain_setattr(type(owner))(owner, name, value)


def _plain_setattr(kind: type) -> Any:
    """Return the method of a built-in type that stores: classes and thread-local data have one."""
    methods = (vars(each).get("__setattr__") for each in kind.__mro__)
    return next(each for each in methods if isinstance(each, WrapperDescriptorType))


def add_member(owner: set[Any], key: Any, value: Any) -> None:
    """Add a member of the taken side to a set."""
    owner.add(key)


def show_as_of(action: Any, stored: tuple[tuple[Any, str, bool, Any], ...], *inputs: Any) -> None:
    """Write output with objects as they were: rows of object, attribute, whether it was, value."""
    now = [(vars(owner), name, vars(owner).get(name, MISSING)) for owner, name, _, _ in stored]
    try:
        for owner, name, exists, value in stored:
            _put(vars(owner), name, value if exists else MISSING)
        action(*map(codec.formatted, inputs))
    finally:
        for attributes, name, value in now:
            _put(attributes, name, value)


def _put(attributes: dict[str, Any], name: str, value: Any) -> None:
    if value is MISSING:
        attributes.pop(name, None)
    else:
        attributes[name] = value


def write_back_attribute(
    owner: Any, name: str, merged: Any, predicate: torch.Tensor, one: Any, other: Any
) -> None:
    """Replace a merged value of an attribute by the very object that eager would have stored."""
    if _read(owner, name) is merged:
        setattr(owner, name, one if predicate else other)


def write_back_item(
    owner: Any, key: Any, merged: Any, predicate: torch.Tensor, one: Any, other: Any
) -> None:
    """Replace a merged value of a container by the very object that eager would have stored."""
    very = one if predicate else other
    if isinstance(owner, list):
        for at, each in enumerate(owner):  # it may have another place by now
            if each is merged:
                list.__setitem__(owner, at, very)
    elif owner.get(key) is merged:
        owner[key] = very


def alter(owner: Any, method: str, *arguments: Any) -> None:
    """Call a method of a container with arguments that are known only now."""
    getattr(_kind_of(owner), method)(owner, *map(codec.decode, arguments))


def refill(owner: Any, removed: Any, added: tuple[Any, ...]) -> None:
    """Give a container the contents of the side taken.

    ``removed`` is the position from which on a sequence is replaced; else the keys to be removed.
    """
    kind, added = _kind_of(owner), codec.decode(added)
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
    """Return the type of Python whose methods do no more than change a container."""
    return next(kind for kind in _KINDS if isinstance(owner, kind))


#: Actions on objects of the program, which may be large and hold nothing encoded.
_CHANGES: Final[frozenset[Any]] = frozenset([alter, refill, store_choice])
