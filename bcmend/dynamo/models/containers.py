"""Models of containers: their contents, keys and constructors.

An object of a subclass of a container has a model of its contents beside that of its attributes
before torch 2.15; from then on it is one model, of both, and so is an ``OrderedDict`` from 2.14 on.
The keys of dictionaries and the members of sets are wrapped models.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, defaultdict, deque
from collections.abc import Iterable, Sequence
from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import constants, exceptions, methods

#: Whether an object of a subclass of a container is itself the model of its contents.
ARE_ONE: Final = issubclass(compat.UserDefinedDictVariable, compat.ConstDictVariable)
_OF_SUBCLASSES: Final = (compat.OrderedDictVariable, compat.DefaultDictVariable)
_OWNERS: Final = (compat.UserDefinedObjectVariable, *_OF_SUBCLASSES)
#: Models of containers of Python's own classes.
_PLAIN: Final = (
    compat.ConstDictVariable,
    compat.ListVariable,
    compat.SetVariable,
    compat.DequeVariable,
)
#: Models of dictionaries of Python's own subclasses that are themselves the models of their items.
DICTIONARIES_BY_ITEMS: Final = tuple(
    each for each in _OF_SUBCLASSES if issubclass(each, compat.ConstDictVariable)
)
#: Models of containers that have nothing but their items, and are made by their items.
DICTIONARIES: Final[tuple[type, ...]] = (
    compat.ConstDictVariable,
    *(each for each in DICTIONARIES_BY_ITEMS if each is compat.OrderedDictVariable),
)

#: Models of dictionaries with attributes, beside ``UserDefinedDictVariable``.
WITH_ATTRIBUTES: Final[tuple[type, ...]] = (
    tuple(getattr(compat.user_defined, f"UserDefined{kind.__name__}") for kind in _OF_SUBCLASSES)
    if ARE_ONE
    else tuple(each for each in _OF_SUBCLASSES if each not in DICTIONARIES_BY_ITEMS)
)
#: Models of objects of other subclasses that are themselves the models of their items.
OBJECTS_BY_ITEMS: Final[tuple[Any, ...]] = (
    (
        compat.UserDefinedDictVariable,
        *WITH_ATTRIBUTES,
        *(getattr(compat.user_defined, f"UserDefined{kind.__name__}") for kind in _PLAIN[1:]),
    )
    if ARE_ONE
    else ()
)
#: Fields of containers of which nothing that the program can see depends.
NOTES: Final = exceptions.NOTES | {"mutation_type", "source"}
#: Fields of containers that the program can change, beside their items.
SETTINGS: Final = frozenset(["default_factory"])
_OF_PYTHON: Final = (list, dict, set, deque, OrderedDict, defaultdict)


def has_plain_methods(container: compat.VariableTracker) -> bool:
    """Return whether the methods of a container are those of Python's own class."""
    return not ARE_ONE or container.python_type() in _OF_PYTHON


def object_with_contents(model: Any, contents: type, fields: dict[str, Any]) -> type:
    """Return a model of objects like ``model``, whose items are those of another model.

    A method of the container that the class of an object has not replaced is that of ``contents``.
    """

    def find(self: Any, name: str) -> Any:
        is_method = model.lookup_tp_method(self, name) is not None
        return made.call_base_method if is_method else None

    name = f"{contents.__name__}Of{model.__name__}"
    made: Any = type(name, (model, contents), {**fields, "lookup_tp_method": find})
    return made  # type: ignore[no-any-return]


def gone_over_by(view: Any) -> Any:
    """Return the dictionary of which ``view`` is one of keys, values or items, or that it is."""
    return getattr(view, "dv_dict", view)


def contents_of(variable: compat.VariableTracker) -> compat.VariableTracker | None:
    """Return the model of the contents of an object of a container's subclass; else ``None``.

    It may be the object itself.
    """
    if ARE_ONE or type(variable) in DICTIONARIES_BY_ITEMS:
        holds_items = "items" in vars(variable) and issubclass(type(variable), _OWNERS)
        return variable if holds_items else None
    return vars(variable).get("_base_vt")


def set_contents(variable: Any, contents: compat.VariableTracker) -> None:
    """Give an object of a container's subclass another model of its contents."""
    variable._base_vt = contents


def kind_of(kind: type) -> type:
    """Return the model of plain containers that have the same contents as those of a model."""
    if ARE_ONE or kind in DICTIONARIES_BY_ITEMS:
        return next((each for each in _PLAIN if issubclass(kind, each)), kind)
    return kind


def items_held(container: Any) -> list[compat.VariableTracker]:
    """Return the items of a container, the values of a dictionary."""
    items = container.items
    return list(items.values() if isinstance(items, dict) else items)


def fill(container: Any, items: Sequence[compat.VariableTracker]) -> None:
    """Give a container other items in the places of those it has."""
    held = container.items
    is_dictionary = isinstance(held, dict)
    container.items = type(held)(zip(held, items, strict=True) if is_dictionary else items)


def key_model(key: Any) -> Any:
    """Return the model of a key of a dictionary, or of a member of a set."""
    return key.vt


def is_same_key(one: Any, other: Any) -> bool:
    """Return whether two keys cannot be told apart; ``1`` and ``True`` are equal alone."""
    if not (isinstance(one, compat.HashableTracker) and isinstance(other, compat.HashableTracker)):
        return constants.are_one(one, other)  # the position of an item, or a name
    if one is other or one != other:
        return one is other
    first, second = (key_model(each).realize() for each in (one, other))
    if first is second or type(first) is not type(second):
        return first is second
    if first.is_python_constant() and second.is_python_constant():
        return constants.is_same(first, second)
    return first.source is not None and first.source == second.source


def have_same_keys(one: Any, other: Any) -> bool:
    """Return whether two dictionaries or sets, or sequences of keys, have the same, in order."""
    return len(one) == len(other) and all(map(is_same_key, one, other))


def keys_of_both(one: Any, other: Any) -> list[Any]:
    """Return the keys, in order, that a dictionary or a set has, and another one has as well."""
    known = {key: key for key in other}
    return [key for key in one if key in known and is_same_key(key, known[key])]


def replace_items(container: compat.VariableTracker, items: Any) -> None:
    """Give a container other items; ``items`` stays as it is."""
    vars(container)["items"] = copy.copy(items)


def write_all_back_if_keys_moved(container: Any) -> None:
    """Have all of a dictionary or a set be written back, if a key is gone or elsewhere.

    Dynamo adds what is new otherwise, and leaves what was there in its place.
    """
    before = [getattr(each, "vt", each) for each in vars(container).get("original_items", ())]
    now = [key_model(each) for each in container.items][: len(before)]
    is_kept = len(now) == len(before) and all(
        one.unwrap() is other.unwrap() for one, other in zip(now, before, strict=True)
    )
    if not is_kept:
        container.should_reconstruct_all = True


def guard_keys(dictionary: Any) -> None:
    """Have the compiled code require that a dictionary has the keys it has now, in this order."""
    getattr(contents_of(dictionary) or dictionary, methods.GUARD_KEYS)()


def is_plain_dictionary(value: Any) -> bool:
    """Return whether a value is a dictionary, and of no class of its own."""
    return type(value) is compat.ConstDictVariable and value.python_type() is dict


def item_of_dictionary(dictionary: Any, tx: compat.Tracer, key: Any) -> compat.VariableTracker:
    """Return ``dictionary[key]`` as the model of any dictionary answers it."""
    read = getattr(compat.ConstDictVariable, methods.SUBSCRIPT)
    found: compat.VariableTracker = read(dictionary, tx, key)
    return found


def has_key(dictionary: Any, tx: compat.Tracer, key: Any) -> compat.VariableTracker:
    """Return ``key in dictionary`` as the model of any dictionary answers it."""
    look = getattr(compat.ConstDictVariable, methods.CONTAINS)
    found: compat.VariableTracker = look(dictionary, tx, key)
    return found


def length_of(tx: compat.Tracer, value: Any) -> compat.VariableTracker:
    """Return ``len(value)``."""
    found: compat.VariableTracker = getattr(value, methods.LENGTH)(tx)
    return found


def dictionary_of(view: compat.DictViewVariable) -> compat.VariableTracker:
    """Return the dictionary that a view shows."""
    return view.dv_dict


def view_like(view: compat.DictViewVariable, dictionary: Any) -> compat.VariableTracker:
    """Return a view of another dictionary, of the same kind."""
    return type(view)(dictionary)


# Constructors. What is made in the trace may be changed in it.


def new_list(items: Iterable[compat.VariableTracker]) -> compat.ListVariable:
    """Return a list that the trace has made."""
    return compat.ListVariable(list(items), mutation_type=compat.ValueMutationNew())


def new_dictionary(items: dict[Any, compat.VariableTracker]) -> compat.ConstDictVariable:
    """Return a dictionary that the trace has made; ``items`` has its wrapped keys."""
    return compat.ConstDictVariable(items, mutation_type=compat.ValueMutationNew())


def new_dictionary_like(
    dictionary: Any, items: dict[Any, compat.VariableTracker]
) -> compat.ConstDictVariable:
    """Return a dictionary that the trace has made, of the class of another one."""
    return _like(dictionary, items, mutation_type=compat.ValueMutationNew())


def part_of_dictionary(
    dictionary: Any, items: dict[Any, compat.VariableTracker]
) -> compat.ConstDictVariable:
    """Return a dictionary that answers for some items of another one; it is never changed."""
    return _like(dictionary, items)


def _like(dictionary: Any, items: Any, **more: Any) -> compat.ConstDictVariable:
    if hasattr(dictionary, "user_cls"):  # torch 2.13
        return compat.ConstDictVariable(items, dictionary.user_cls, **more)
    kind = next(each for each in reversed(DICTIONARIES) if issubclass(type(dictionary), each))
    made: compat.ConstDictVariable = kind(items, **more)
    return made


def new_deque_like(
    deque: compat.DequeVariable, items: list[compat.VariableTracker]
) -> compat.DequeVariable:
    """Return a deque that the trace has made, of the same greatest length."""
    return compat.DequeVariable(items, deque.maxlen, mutation_type=compat.ValueMutationNew())


def limit(variable: compat.DequeVariable, held: deque[Any]) -> None:
    """Have the model of a deque hold at most what that deque may hold."""
    variable.maxlen = compat.ConstantVariable.create(held.maxlen)


def is_limited(deque: compat.DequeVariable) -> bool:
    """Return whether the model of a deque holds a limited number of items."""
    return not deque.maxlen.is_constant_none()


def named_tuple_like(value: Any, items: Sequence[compat.VariableTracker]) -> compat.VariableTracker:
    """Return a named tuple of the class of another one."""
    given = {"items": list(items)} if ARE_ONE else {"tuple_vt": compat.TupleVariable(list(items))}
    made: compat.VariableTracker = type(value)(value.value, **given)
    return made


def whole_slice(nothing: compat.VariableTracker) -> compat.SliceVariable:
    """Return ``slice(None)``; ``nothing`` is the model of ``None``."""
    return compat.SliceVariable([nothing])


def by_key(items: Any) -> dict[Any, compat.VariableTracker]:
    """Return the items of a dictionary, or those of a list by their positions."""
    return items if isinstance(items, dict) else dict(enumerate(items))


# Ranges


def items_left(iterator: Any) -> Any:
    """Return how many numbers the iterator over a range has left; no ``int`` if not known."""
    return iterator.len


def bounds_left(iterator: Any) -> tuple[int, int, int]:
    """Return start, stop and step of what the iterator over a range has left."""
    stop = iterator.start + iterator.step * iterator.len
    return iterator.start, stop, iterator.step


def exhausted_range(start: Any, stop: Any, step: Any) -> compat.RangeIteratorVariable:
    """Return an iterator over a range that has no more numbers."""
    return compat.RangeIteratorVariable(start, stop, step, 0)


class ExhaustedRange(compat.RangeIteratorVariable):
    """An iterator over a range of unknown bounds that has no more numbers."""

    def __init__(self, **more: Any) -> None:
        super().__init__(0, 0, 1, 0, **more)
