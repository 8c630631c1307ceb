"""Remembers the state of Dynamo's models of objects before an arm is traced, and restores it.

Containers are restored in place, since others may hold the very list or dictionary: an iterator has
what it goes over. Some iterators hold one of Python's, a generator holds the frame in which Dynamo
traces it, and a ``random.Random`` is drawn from while it is traced: all are set back to where they
stood.
"""

from __future__ import annotations

import copy
import gc
import random
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Any

from bcmend.dynamo import compat
from bcmend.dynamo.models import containers, exceptions
from bcmend.dynamo.values import EXCEPTIONS

_CONTAINERS = (list, dict, set, OrderedDict, deque)
_CONSUMABLE = (compat.IteratorVariable, compat.LocalGeneratorObjectVariable)
_ITERABLES: tuple[Any, ...] = ([], (), set(), {}, {}.values(), {}.items())
_PYTHON_ITERATORS = tuple({type(iter(each)) for each in _ITERABLES})
#: How a dictionary is gone over, by the type of the iterator.
_VIEWS: dict[type, Callable[[dict[Any, Any]], Iterable[Any]]] = {
    type(iter({})): dict.keys,
    type(iter({}.values())): dict.values,
    type(iter({}.items())): dict.items,
}

#: Attributes of a generator and of its frame that are objects of the program: the variables of its
#: module, where Dynamo installs names as well. All others are restored.
_OF_THE_PROGRAM = frozenset({"f_globals", "f_builtins"})


@dataclass(frozen=True, slots=True)
class _Rest:
    """The items that an iterator of Python has left."""

    items: tuple[Any, ...]


@dataclass(slots=True, eq=False)
class _OfDictionary:
    """An iterator over a dictionary, which fails as Python's does once that has another size.

    Unlike Python's it can be set back: ``size`` is that of the dictionary where it began, and
    ``position`` counts the items that it has given.
    """

    owner: dict[Any, Any]
    view: Callable[[dict[Any, Any]], Iterable[Any]]
    size: int
    position: int

    def __iter__(self) -> _OfDictionary:
        return self

    def __next__(self) -> Any:
        if len(self.owner) != self.size:
            self.size = -1
            raise RuntimeError("dictionary changed size during iteration")
        found = next(islice(self.view(self.owner), self.position, None), _END)
        if found is _END:
            self.owner, self.size, self.position = {}, 0, 0  # which stays at its end
            raise StopIteration
        self.position += 1
        return found

    def __length_hint__(self) -> int:
        return self.size - self.position if len(self.owner) == self.size else 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _OfDictionary) or self.owner is not other.owner:
            return False
        return (self.view, self.size, self.position) == (other.view, other.size, other.position)

    __hash__ = None  # type: ignore[assignment]


_END = object()


def goes_over(variable: compat.VariableTracker, owner: dict[Any, Any], *, keys_alone: bool) -> bool:
    """Return whether ``variable`` is an iterator over a dictionary that has not come to its end.

    With ``keys_alone`` one over its keys does not count.
    """
    for each in vars(variable).values():
        if _dictionary_under(each) is owner:
            view = each.view if isinstance(each, _OfDictionary) else _VIEWS[type(each)]
            return not (keys_alone and view is dict.keys)
    return False


def _dictionary_under(iterator: object) -> dict[Any, Any] | None:
    """Return the dictionary that an iterator goes over; ``None`` if there is none, or no more."""
    if isinstance(iterator, _OfDictionary):
        return iterator.owner
    if type(iterator) not in _VIEWS:
        return None
    return next((each for each in gc.get_referents(iterator) if type(each) is dict), None)


@dataclass(frozen=True, slots=True)
class _Drawing:
    """A generator of random numbers, and its state."""

    generator: random.Random
    state: tuple[Any, ...]

    def set_back(self) -> random.Random:
        """Give the generator this state again; return it."""
        self.generator.setstate(self.state)
        return self.generator


@dataclass(frozen=True, slots=True)
class Remembered:
    """The state of a variable at one time.

    Attributes:
        state: its fields, with copies of containers.
        containers: the containers themselves.
        kind: its class, which changes when it becomes a journaled container.
        frame: for a generator, the state of its frame, and the containers in that.
        handled: for a generator, the exceptions that it handles.
    """

    variable: compat.VariableTracker
    state: dict[str, Any]
    containers: dict[str, Any]
    kind: type[compat.VariableTracker]
    frame: tuple[dict[str, Any], dict[str, Any]] | None = None
    handled: tuple[compat.VariableTracker, ...] = ()

    def now(self) -> dict[str, Any]:
        """Return the present state of the variable."""
        return _state(self.variable)

    def has_changed(
        self, besides: Collection[str] = (), among: Collection[str] | None = None
    ) -> bool:
        """Return whether a field has changed: not one of ``besides``, and one of ``among``."""
        if among is not None:
            besides = {*besides, *({**self.state, **self.now()}.keys() - among)}
        if self.frame is not None:
            handled = exceptions.held_by_generator(vars(self.variable)["inline_tracer"])
            if _differs(self.frame[0], _state_of_frame(self.variable)) or not is_same(
                list(self.handled), handled
            ):
                return True
        return _differs(self.state, self.now(), besides)

    def restore(self) -> None:
        """Give the variable this state again."""
        is_modified = self.state["is_modified"]
        state = {name: value for name, value in self.state.items() if name != "is_modified"}
        _set_back(self.variable, state, self.containers)
        if self.frame is not None:
            frame: Any = self.variable
            of_the_program = {name: vars(frame.inline_tracer)[name] for name in _OF_THE_PROGRAM}
            state, containers = self.frame
            _set_back(frame.inline_tracer, {**state, **of_the_program}, containers)
            exceptions.held_by_generator(frame.inline_tracer)[:] = self.handled
        self.variable.__class__ = self.kind
        if is_modified is not None:
            self.variable.mutation_type.is_modified = is_modified  # type: ignore[union-attr]


def remember(variable: compat.VariableTracker) -> Remembered:
    """Return the present state of ``variable``."""
    frame = None
    handled: tuple[compat.VariableTracker, ...] = ()
    if isinstance(variable, compat.LocalGeneratorObjectVariable):
        state = _state_of_frame(variable)
        frame = state, _containers(variable.inline_tracer, state)
        handled = tuple(exceptions.held_by_generator(variable.inline_tracer))
    containers = _containers(variable, vars(variable).keys() - _OF_THE_PROGRAM)
    return Remembered(variable, _state(variable), containers, type(variable), frame, handled)


def holds_items(variable: compat.VariableTracker) -> bool:
    """Return whether ``variable`` stands for a container."""
    return type(variable.__dict__.get("items")) in _CONTAINERS and not is_consumable(variable)


def containers_of(variable: compat.VariableTracker) -> list[compat.VariableTracker]:
    """Return ``variable`` if it stands for a container, and the container of one of a subclass."""
    fields = variable.__dict__
    base = containers.contents_of(variable)
    if base is not None:
        return [each for each in dict.fromkeys((variable, base)) if holds_items(each)]
    return [variable] if "items" in fields and holds_items(variable) else []


def is_consumable(variable: compat.VariableTracker) -> bool:
    """Return whether ``variable`` stands for an iterator or a generator."""
    kind = type(variable)
    if kind is compat.LazyVariableTracker:
        return isinstance(variable, _CONSUMABLE)  # which looks at what is behind it
    return issubclass(kind, _CONSUMABLE)


def holds_state(variable: compat.VariableTracker) -> bool:
    """Return whether ``variable`` stands for a container or an exception."""
    return holds_items(variable) or is_exception(variable)


def is_exception(variable: compat.VariableTracker) -> bool:
    """Return whether ``variable`` stands for an exception; what it is made of is not looked at."""
    return issubclass(type(variable), EXCEPTIONS)


def visit(
    found: Callable[[compat.VariableTracker], object],
    values: Iterable[Any],
    effects: Any = None,
    *,
    lazily: bool = False,
) -> None:
    """Call ``found`` for all that ``values`` hold, also in frames of generators.

    What nothing has looked at yet is left out: to ask such a value for its class looks at it, and
    adds guards and inputs. With ``lazily`` it is found as well.
    """
    cache: dict[int, Any] = {}

    def each(variable: compat.VariableTracker) -> None:
        if lazily or variable.is_realized():
            found(variable)
        if variable.is_realized() and isinstance(variable, compat.LocalGeneratorObjectVariable):
            frame: Any = variable.inline_tracer
            inner = [*frame.symbolic_locals.values(), *frame.stack]
            compat.VariableTracker.visit(each, inner, cache, side_effects=effects)

    compat.VariableTracker.visit(each, list(values), cache, side_effects=effects)


def _state(variable: compat.VariableTracker) -> dict[str, Any]:
    fields = vars(variable)
    state = {n: v if n in _OF_THE_PROGRAM else _copied(v) for n, v in fields.items()}
    state["is_modified"] = getattr(variable.mutation_type, "is_modified", None)
    return state


def _state_of_frame(generator: Any) -> dict[str, Any]:
    fields = vars(generator.inline_tracer)
    return {name: _copied(value) for name, value in fields.items() if name not in _OF_THE_PROGRAM}


def _containers(owner: object, names: Collection[str]) -> dict[str, Any]:
    return {
        name: value
        for name, value in vars(owner).items()
        if name in names and type(value) in _CONTAINERS
    }


def _differs(one: dict[str, Any], other: dict[str, Any], besides: Collection[str] = ()) -> bool:
    names = [name for name in {**one, **other} if name not in besides]
    return any(
        name not in one or name not in other or not is_same(one[name], other[name])
        for name in names
    )


def _set_back(owner: object, state: dict[str, Any], containers: dict[str, Any]) -> None:
    """Give an object the fields of ``state`` alone, with its own containers."""
    values = {name: _set_back_alone(value) for name, value in state.items()}
    for name, container in containers.items():
        _refill(container, values[name])
        values[name] = container
    vars(owner).clear()
    vars(owner).update(values)


def _set_back_alone(value: Any) -> Any:
    """Return what ``_copied`` was given, as it was then; the contents of containers apart."""
    if isinstance(value, _Drawing):
        return value.set_back()
    if isinstance(value, _OfDictionary):
        return copy.copy(value)
    return iter(value.items) if isinstance(value, _Rest) else value


def _copied(value: Any) -> Any:
    if type(value) in _CONTAINERS:
        return copy.copy(value)
    if isinstance(value, _OfDictionary):
        return copy.copy(value)
    owner = _dictionary_under(value)
    if owner is not None:
        return _as_it_is_now(value, owner)
    if isinstance(value, _PYTHON_ITERATORS):
        return _Rest(tuple(copy.copy(value)))
    if type(value) is random.Random:
        return _Drawing(value, value.getstate())
    return value


def _as_it_is_now(iterator: Any, owner: dict[Any, Any]) -> _OfDictionary:
    view = _VIEWS[type(iterator)]
    try:
        left = len(tuple(copy.copy(iterator)))
    except RuntimeError:  # the dictionary has had another size
        return _OfDictionary(owner, view, -1, 0)
    return _OfDictionary(owner, view, len(owner), len(owner) - left)


def _refill(container: Any, contents: Any) -> None:
    if _identities(container) == _identities(contents):
        return
    container.clear()
    if isinstance(container, (list, deque)):
        container.extend(contents)
    else:
        container.update(contents)


def is_same(one: Any, other: Any) -> bool:
    """Return whether two states of a field are equal, with their items in the same order."""
    if one is other:
        return True
    if isinstance(other, exceptions.MergedArguments) and is_same(one, other.in_arm):
        return True
    if isinstance(one, dict) and isinstance(other, dict):
        return one == other and containers.have_same_keys(one, other)
    if isinstance(one, set) and isinstance(other, set):
        return one == other and len(containers.keys_of_both(one, other)) == len(one)
    return bool(one == other)


def _identities(container: Any) -> list[int]:
    values = container.values() if isinstance(container, dict) else ()
    return [*map(id, container), *map(id, values)]
