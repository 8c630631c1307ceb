"""Attributes that code of the program answers for: it is asked as often as in eager execution.

Where ``hasattr`` or ``getattr`` with a default asks a ``__getattr__``, a property or another
descriptor, Dynamo traces that, and does more. It adds a guard that asks whether the attribute is
there, while the graph is compiled and before each call, and it traces the question and then the
read. And it has no guard on what is asked: an object that gets an attribute of its own, which a
``__getattr__`` has answered for, would go on with the answer.

Here the guard is on what is asked, which is found out without running any of it.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from types import FunctionType
from typing import Any, Final

from bcmend.dynamo import compat, handlers, hooks, object_guards
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value
from bcmend.knowledge.static_lookup import ancestors, dictionary, namespace
from bcmend.tracing.merging.attribute_effects import is_of_program

#: A class has no such attribute.
_MISSING: Final = object()
#: Descriptors that run what they were made of.
_COMPUTED: Final = (property, functools.cached_property)


@dataclass(frozen=True, slots=True, eq=False)
class _Answering:
    """What answers for an attribute of an object.

    Attributes:
        member: what the class has under the name; ``_MISSING`` for nothing.
        methods: ``__getattribute__`` and ``__getattr__`` of the class.
        is_own: whether the object itself has the attribute.
    """

    member: object
    methods: tuple[object, object]
    is_own: bool

    def is_the_same(self, other: _Answering) -> bool:
        mine, theirs = (self.member, *self.methods), (other.member, *other.methods)
        are_same = all(one is another for one, another in zip(mine, theirs, strict=True))
        return are_same and self.is_own is other.is_own


def _answering(value: object, name: str) -> _Answering:
    kinds = [namespace(kind) for kind in ancestors(type(value))]
    member, *asked = (
        next((kind[each] for kind in kinds if each in kind), _MISSING)
        for each in (name, "__getattribute__", "__getattr__")
    )
    return _Answering(member, (asked[0], asked[1]), name in dictionary(value))


@hooks.around(
    compat.UserDefinedObjectVariable,
    methods.HAS_ATTRIBUTE,
    "whether there are attributes that code of the program answers for",
)
def _has(inner: Any, owner: Any, tx: compat.Tracer, name: str) -> Any:
    guards = tx.output.guards.inner
    before = len(guards)
    found = inner(owner, tx, name)
    if owner.source is not None and asks_the_program(owner.value, name):
        for guard in [each for each in list(guards)[before:] if _asks(each, owner.source, name)]:
            guards.discard(guard)
        _guard(tx, owner, name)
    return found


def _asks(guard: compat.Guard, source: Any, name: str) -> bool:
    question = guard.create_fn
    return (
        isinstance(question, functools.partial)
        and question.func is compat.GuardBuilder.HASATTR
        and question.keywords == {"attr": name}
        and guard.originating_source == source
    )


def _guard(tx: compat.Tracer, owner: Any, name: str) -> None:
    """Have the frame traced again once something else answers for an attribute."""
    if owner.source is not None:
        answering = _answering(owner.value, name)

        def is_as_before(value: Any) -> bool:
            return answering.is_the_same(_answering(value, name))

        text = f"the same answers for {name}"
        object_guards.require(tx.output, owner.source, owner.value, is_as_before, text)


@handlers.attribute_read("attributes that code of the program answers for", place=3)
def _read(read: handlers.Read, tx: compat.Tracer, owner: Any, default: Value | None) -> Any:
    if default is not None and _is_asked(owner.realize(), read.name):
        try:
            return _read_with_guard(read.plain, read.name, tx, owner)
        except compat.observed_exception_map[AttributeError]:
            compat.handle_observed_exception(tx)
            return default
    return _read_with_guard(read, read.name, tx, owner)


def _read_with_guard(
    read: Callable[[Any], Any], name: str | None, tx: compat.Tracer, owner: Any
) -> Any:
    try:
        return read(owner)
    finally:  # the program may handle that there is no such attribute
        model = owner.realize()
        if name is not None and _is_asked(model, name):
            _guard(tx, model, name)


def _is_asked(owner: Value, name: str | None) -> bool:
    if name is None or not isinstance(owner, compat.UserDefinedObjectVariable):
        return False
    return asks_the_program(owner.value, name)


def asks_the_program(value: object, name: str) -> bool:
    """Return whether code of the program may answer for an attribute of an object like this."""
    kinds = ancestors(type(value))
    if is_of_program(kinds, "__getattribute__"):
        return True
    member = next((namespace(kind)[name] for kind in kinds if name in namespace(kind)), _MISSING)
    has_default = is_of_program(kinds, "__getattr__")
    if member is _MISSING:
        return has_default  # or a guard would, for another object
    # Dynamo does not go on to ``__getattr__`` where a slot is empty or a descriptor has raised.
    return not has_default and (isinstance(member, _COMPUTED) or _is_of_program(member))


def _is_of_program(descriptor: object) -> bool:
    found = (namespace(each).get("__get__") for each in ancestors(type(descriptor)))
    return any(isinstance(each, FunctionType) for each in found)
