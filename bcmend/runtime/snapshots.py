"""How Dynamo's models of objects were before an arm was traced, and putting them back.

Reads variable trackers; produces ``Remembered`` records, which tell what has changed since and can
undo it. Containers are put back in place, since others may hold the very list or dictionary: an
iterator has what it goes over. Some iterators keep one of Python's own, and a generator keeps the
frame in which Dynamo traces it: both are set back to where they stood.
"""

from __future__ import annotations

import copy
from collections import OrderedDict, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.functions import LocalGeneratorObjectVariable
from torch._dynamo.variables.iter import IteratorVariable

__all__ = ["Remembered", "holds_items", "is_consumable", "remember", "visit"]

_CONTAINERS = (list, dict, set, OrderedDict, deque)
_ITERABLES: tuple[Any, ...] = ([], (), set(), {}, {}.values(), {}.items())
_PYTHON_ITERATORS = tuple({type(iter(each)) for each in _ITERABLES})

#: What changes in the frame of a generator from one value to the next.
_FRAME = (
    "accept_prefix_inst",
    "stack",
    "symbolic_locals",
    "block_stack",
    "generated_items",
    "instruction_pointer",
    "current_instruction",
    "generator_exhausted",
    "symbolic_result",
    "lineno",
)


@dataclass(frozen=True, slots=True)
class _Rest:
    """What one of Python's own iterators still has to give."""

    items: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Remembered:
    """How a variable was.

    Attributes:
        variable: the variable.
        state: its fields, with copies of containers; for a generator, those of its frame.
        containers: the containers themselves.
        kind: its class, which is another one once it is opened (``opened``).
    """

    variable: VariableTracker
    state: dict[str, Any]
    containers: dict[str, Any]
    kind: type[VariableTracker]

    def now(self) -> dict[str, Any]:
        return _state(self.variable)

    def has_changed(self, besides: str = "") -> bool:
        """Whether a field is another by now, other than ``besides``."""
        one, other = self.state, self.now()
        if one.keys() != other.keys():
            return True
        names = (name for name in one if name != besides)
        return any(one[name] is not other[name] and one[name] != other[name] for name in names)

    def restore(self) -> None:
        if isinstance(self.variable, LocalGeneratorObjectVariable):
            vars(self.variable.inline_tracer).update(
                (name, _copied(value)) for name, value in self.state.items()
            )
            return
        values = {
            name: iter(value.items) if isinstance(value, _Rest) else value
            for name, value in self.state.items()
        }
        is_modified = values.pop("is_modified")
        for name, container in self.containers.items():
            _refill(container, values[name])
            values[name] = container
        vars(self.variable).clear()
        vars(self.variable).update(values)
        self.variable.__class__ = self.kind
        if is_modified is not None:
            self.variable.mutation_type.is_modified = is_modified  # type: ignore[union-attr]


def remember(variable: VariableTracker) -> Remembered:
    """Return how ``variable`` is now."""
    containers = {
        name: value for name, value in vars(variable).items() if type(value) in _CONTAINERS
    }
    return Remembered(variable, _state(variable), containers, type(variable))


def holds_items(variable: VariableTracker) -> bool:
    """Whether ``variable`` stands for a container."""
    return type(vars(variable).get("items")) in _CONTAINERS and not is_consumable(variable)


def is_consumable(variable: VariableTracker) -> bool:
    """Whether ``variable`` stands for an iterator, a generator among them."""
    return isinstance(variable, (IteratorVariable, LocalGeneratorObjectVariable))


def visit(
    found: Callable[[VariableTracker], None], values: Iterable[VariableTracker], effects: Any
) -> None:
    """Call ``found`` for all that ``values`` hold, what lies in frames of generators included."""
    cache: dict[int, Any] = {}

    def each(variable: VariableTracker) -> None:
        found(variable)
        if isinstance(variable, LocalGeneratorObjectVariable):
            frame: Any = variable.inline_tracer
            inner = [*frame.symbolic_locals.values(), *frame.stack]
            VariableTracker.visit(each, inner, cache, side_effects=effects)

    VariableTracker.visit(each, list(values), cache, side_effects=effects)


def _state(variable: VariableTracker) -> dict[str, Any]:
    if isinstance(variable, LocalGeneratorObjectVariable):
        frame = vars(variable.inline_tracer)
        return {name: _copied(frame[name]) for name in _FRAME if name in frame}
    state = {name: _copied(value) for name, value in vars(variable).items()}
    state["is_modified"] = getattr(variable.mutation_type, "is_modified", None)
    return state


def _copied(value: Any) -> Any:
    if type(value) in _CONTAINERS:
        return copy.copy(value)
    if isinstance(value, _PYTHON_ITERATORS):
        return _Rest(tuple(copy.copy(value)))
    return value


def _refill(container: Any, contents: Any) -> None:
    if _is_filled_with(container, contents):
        return
    container.clear()
    if isinstance(container, (list, deque)):
        container.extend(contents)
    else:
        container.update(contents)


def _is_filled_with(container: Any, contents: Any) -> bool:
    if len(container) != len(contents):
        return False
    if isinstance(container, dict):
        pairs = zip(container.items(), contents.items(), strict=True)
        return all(a is c and b is d for (a, b), (c, d) in pairs)
    return all(one is other for one, other in zip(container, contents, strict=True))
