"""The registry of what bcmend replaces in torch: methods, and rows of Dynamo's tables.

A hook is declared where it is implemented and runs only for frames of patched code
(``frames.covers``). Hooks are in place only while a trace is under way in which patched code takes
part (``active``, ``activate_for``), so that other programs are compiled by torch as it was written.
A few watch for objects that wait to be mended (``watch``), as long as any does.
``OutputGraph``, ``SideEffects`` and ``ShapeEnv`` are not touched at all: the objects of such a
trace get a subclass (``adopt``), since the last two are asked questions after the trace, too.
"""

from __future__ import annotations

import builtins
import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, Final, TypeVar

import torch

from bcmend import meta_keys
from bcmend.dynamo import compat, frames
from bcmend.dynamo.models import methods, objects
from bcmend.dynamo.operators import FUNCTIONS, KERNELS, OPERATORS, table
from bcmend.dynamo.operators import TableEntry as TableEntry
from bcmend.errors import MissingInTorch

Function = TypeVar("Function", bound=Callable[..., Any])

#: Finds the translator among the positional arguments of a hooked call; ``None`` for no gate.
Gate = Callable[..., Any] | None


def first(*arguments: Any) -> Any:
    """Gate of methods of the translator, and of functions that get it first."""
    return arguments[0]


def second(*arguments: Any) -> Any:
    """Gate of methods that get the translator."""
    return arguments[1]


def of_builder(*arguments: Any) -> Any:
    """Gate of methods of what has the translator, as a ``VariableBuilder``."""
    return arguments[0].tx


@dataclass(frozen=True, slots=True)
class Hook:
    """One replaced method.

    Attributes:
        owner: the class or module that has it.
        function: called in its place with the next function of the chain and the arguments.
        gate: returns the frame that a call belongs to; ``None`` to have every call of a trace with
            patched code.
        place: hooks of one target are called from the highest place down to 0.
        is_lasting: a watch stays as long as objects wait or are mended, and ``is_needed`` then.
    """

    owner: Any
    name: str
    purpose: str
    function: Callable[..., Any]
    gate: Gate
    place: int = 0
    is_lasting: bool = False
    is_needed: Callable[[], bool] = lambda: True

    @property
    def target(self) -> str:
        return f"{self.owner.__name__.rpartition('.')[2]}.{self.name}"

    @property
    def module(self) -> str:
        """Return the module of bcmend that declares it."""
        return self.function.__module__

    @property
    def is_missing(self) -> bool:
        """Return whether torch has nothing of that name."""
        # What a module does not define it finds among the builtins.
        is_builtin = isinstance(self.owner, ModuleType) and hasattr(builtins, self.name)
        return not (hasattr(self.owner, self.name) or is_builtin)

    @property
    def is_of_trace(self) -> bool:
        """Return whether it is a method of a subclass, which the objects of a trace get."""
        return self.owner in _PER_TRACE

    def around(self, inner: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function that stands in front of ``inner``."""
        function, gate = self.function, self.gate
        at = 0 if gate is first else 1 if gate is second else None  # a call less for each

        @functools.wraps(inner)
        def hooked(*arguments: Any, **keywords: Any) -> Any:
            if gate is None or frames.covers(gate(*arguments) if at is None else arguments[at]):
                return function(inner, *arguments, **keywords)
            return inner(*arguments, **keywords)

        setattr(hooked, meta_keys.INNER, inner)
        return hooked


def original(function: Any) -> Any:
    """Return the function of torch behind a chain of hooks."""
    while hasattr(function, meta_keys.INNER):
        function = getattr(function, meta_keys.INNER)
    return function


#: Caches of Dynamo's that hold the methods themselves; attributes of ``BuiltinVariable``.
_CACHES: Final = ("_binop_handlers", "call_function_handler_cache")
#: Classes of which the objects of a trace get a subclass.
_PER_TRACE: Final[tuple[type, ...]] = (compat.OutputGraph, compat.SideEffects, compat.ShapeEnv)
_ABSENT: Final = object()


@dataclass(slots=True, eq=False)
class Registry:
    """What is replaced, and what stood there before.

    Attributes:
        hooks, rows: everything that was declared.
        depth: how many traces with patched code are under way.
        before: puts one thing each back when the last of them ends.
        subclasses: of each class of ``_PER_TRACE``, what its objects become.
        armed: puts one thing each back when nothing is patched any more.
        watches: the methods that are replaced while objects wait to be mended.
        watching: puts one thing each back when nothing waits any more.
        lasting: puts one thing each back when nothing waits or is patched any more.
        is_watch_wanted: whether any object waits.
        caches: what methods of ``BuiltinVariable`` keep, which holds other methods, while hooks or
            watches are in place: by whether each of them is.
        built: of each target what the last chain was made of, and that chain.
    """

    hooks: list[Hook] = field(default_factory=list)
    rows: list[TableEntry] = field(default_factory=list)
    depth: int = 0
    before: list[Callable[[], None]] = field(default_factory=list)
    subclasses: dict[type, type] = field(default_factory=dict)
    armed: list[Callable[[], None]] = field(default_factory=list)
    watches: list[Hook] = field(default_factory=list)
    watching: list[Callable[[], None]] = field(default_factory=list)
    lasting: list[Callable[[], None]] = field(default_factory=list)
    is_watch_wanted: bool = False
    caches: dict[tuple[bool, bool], dict[str, Any]] = field(default_factory=dict)
    built: dict[tuple[int, str], tuple[tuple[Any, ...], Any]] = field(default_factory=dict)

    def missing(self) -> list[str]:
        """Return what is to be replaced and is not there, in alphabetical order."""
        found = {hook.target for hook in (*self.hooks, *self.watches) if hook.is_missing}
        caches = (name for name in _CACHES if not hasattr(compat.BuiltinVariable, name))
        return sorted(found.union(f"BuiltinVariable.{name}" for name in caches))

    def require_targets(self) -> None:
        """Raise ``MissingInTorch`` with all that is to be replaced and is not there."""
        if names := self.missing():
            raise MissingInTorch(
                f"bcmend cannot work with torch {torch.__version__}: "
                f"what it replaces is not there: {', '.join(names)}"
            )

    def install(self) -> None:
        """Put every hook and row in place; on an error, none of them.

        Raises ``MissingInTorch`` before anything is replaced.
        """
        self.require_targets()
        with _undone_on_error(self.before):
            for owner, name, wrapped in list(self.chains(of_trace=False)):
                self._replace(self.before, owner, name, wrapped)
            for each in self.rows:
                if each.table == FUNCTIONS:
                    self.before.append(_put_row(each))
            self._use_own_caches(self.before, (True, bool(self.watching)))
            write = functools.partial(setattr, compat.dynamo_config)
            for name, value in objects.WITHOUT_UNGUARDED_VALUES.items():
                before = getattr(compat.dynamo_config, name)
                self.before.append(_exchange(write, write, name, before, value))

    def uninstall(self) -> None:
        _undo(self.before)

    def chains(self, *, of_trace: bool) -> Iterator[tuple[Any, str, Any]]:
        """Yield owner and name of each target with the chain of its hooks around the original."""
        targets: dict[tuple[int, str], list[Hook]] = {}
        for hook in self.hooks:
            if hook.is_of_trace is of_trace:
                targets.setdefault((id(hook.owner), hook.name), []).append(hook)
        for key, chain in targets.items():
            owner, name = chain[0].owner, chain[0].name
            found: Any = getattr(owner, name) if hasattr(owner, name) else vars(builtins)[name]
            links, front = self.built.get(key, ((), None))
            if links != (found, *chain):  # most traces find what the last one did
                links, front = (found, *chain), _chain(owner, name, found, chain)
                self.built[key] = links, front
            yield owner, name, front

    @staticmethod
    def _replace(undo: list[Callable[[], None]], owner: Any, name: str, value: Any) -> None:
        held = getattr(owner, name, _ABSENT)  # a table may have the method of a base class
        also = [(*each, held) for each in methods.also_held(owner, name, held)]
        for holder, field_name, before in [(owner, name, vars(owner).get(name, _ABSENT)), *also]:
            change = functools.partial(setattr, holder), functools.partial(delattr, holder)
            undo.append(_exchange(*change, field_name, before, value))
        for table_of, place in methods.opcode_tables(owner, name):
            write, delete = table_of.__setitem__, table_of.__delitem__
            undo.append(_exchange(write, delete, place, table_of[place], value))

    def _use_own_caches(self, undo: list[Callable[[], None]], state: tuple[bool, bool]) -> None:
        """Exchange the caches of ``_CACHES`` for those of a state."""
        if state not in self.caches:
            original = compat.BuiltinVariable._binop_handlers.__wrapped__
            found: list[Any] = [staticmethod(functools.cache(original)), {}]
            self.caches[state] = dict(zip(_CACHES, found, strict=True))
        for name, cache in self.caches[state].items():
            self._replace(undo, compat.BuiltinVariable, name, cache)

    def watch(self, *, is_wanted: bool) -> None:
        """Put the methods of ``watches`` in place, or what stood there before.

        While hooks are in place, which may stand in front of these, nothing changes.
        """
        self.is_watch_wanted = is_wanted
        self.last()
        if self.depth or is_wanted is bool(self.watching):
            return
        if not is_wanted:
            _undo(self.watching)
            return
        with _undone_on_error(self.watching):
            self._put(self.watching, [each for each in self.watches if not each.is_lasting])
            self._use_own_caches(self.watching, (False, True))

    def last(self) -> None:
        """Put the watches that last in place, or what stood there before."""
        lasting = [each for each in self.watches if each.is_lasting and each.is_needed()]
        wanted = lasting if self.is_watch_wanted or self.armed else []
        if len(wanted) != len(self.lasting):
            _undo(self.lasting)
            with _undone_on_error(self.lasting):
                self._put(self.lasting, wanted)

    def _put(self, undo: list[Callable[[], None]], watches: Iterable[Hook]) -> None:
        for each in watches:
            chain = each.around(getattr(each.owner, each.name))
            self._replace(undo, each.owner, each.name, chain)

    @contextmanager
    def placed(self, hook: Hook) -> Iterator[None]:
        """Have a hook that is not declared in place for the length of a block."""
        undo: list[Callable[[], None]] = []
        self._replace(undo, hook.owner, hook.name, hook.around(getattr(hook.owner, hook.name)))
        try:
            yield
        finally:
            _undo(undo)

    def subclass_of(self, kind: type) -> type:
        """Return what an object of ``kind``, a class of ``_PER_TRACE``, becomes in a trace."""
        if kind not in self.subclasses:
            chains = self.chains(of_trace=True)
            found = {name: function for owner, name, function in chains if owner is kind}
            self.subclasses[kind] = type(f"Mended{kind.__name__}", (kind,), found)
        return self.subclasses[kind]


def _chain(owner: Any, name: str, found: Any, chain: list[Hook]) -> Any:
    """Return what stands in the place of ``found``, a method or a property, with all hooks."""
    is_property = isinstance(found, property)
    function = found.fget if is_property else found
    for hook in sorted(chain, key=lambda each: each.place):
        function = hook.around(function)
    if is_property:
        return property(function)
    # What is found of a method of the class is bound to it.
    is_static = isinstance(vars(owner).get(name), (staticmethod, classmethod))
    return staticmethod(function) if is_static else function


def _undo(steps: list[Callable[[], None]]) -> None:
    while steps:
        steps.pop()()


@contextmanager
def _undone_on_error(steps: list[Callable[[], None]]) -> Iterator[None]:
    try:
        yield
    except BaseException:  # of whatever kind, it goes on when all is as it was
        _undo(steps)
        raise


def _exchange(
    write: Callable[..., None], delete: Callable[..., None], key: Any, before: Any, value: Any
) -> Callable[[], None]:
    """Write ``value`` at ``key``; return what puts ``before`` back."""
    write(key, value)
    is_new = before is _ABSENT
    return functools.partial(delete, key) if is_new else functools.partial(write, key, before)


def _put_row(row: TableEntry) -> Callable[[], None]:
    rows = table(row.table)
    before = rows.get(row.key, _ABSENT)
    made = row.make(None if before is _ABSENT else before)
    return _exchange(rows.__setitem__, rows.__delitem__, row.key, before, made)


REGISTRY: Final = Registry()


def around(
    owner: Any, name: str, purpose: str, *, gate: Gate = second, place: int = 0
) -> Callable[[Function], Function]:
    """Declare that a function stands in front of a method of torch; see ``Hook``."""

    def declare(function: Function) -> Function:
        REGISTRY.hooks.append(Hook(owner, name, purpose, function, gate, place))
        return function

    return declare


def watch(owner: Any, name: str, purpose: str, **lasting: Any) -> Callable[[Function], Function]:
    """Declare what stands in front of a function of torch while objects wait to be mended."""

    def declare(function: Function) -> Function:
        REGISTRY.watches.append(Hook(owner, name, purpose, function, None, **lasting))
        return function

    return declare


def row(key: Any, purpose: str) -> Callable[[Function], Function]:
    """Declare a handler of a function of torch, given the present one before its arguments."""

    def declare(function: Function) -> Function:
        @functools.lru_cache(1)  # most traces find what the last one did
        def make(before: Any) -> Any:
            def handle(called: Any, tx: compat.Tracer, *arguments: Any, **keywords: Any) -> Any:
                if frames.covers(tx):
                    return function(before, called, tx, *arguments, **keywords)
                return None if before is None else before(called, tx, *arguments, **keywords)

            return handle

        REGISTRY.rows.append(TableEntry(FUNCTIONS, key, purpose, make, function.__module__))
        return function

    return declare


def operator(name: str, purpose: str) -> Callable[[type], type]:
    """Declare Dynamo's model of an operator of bcmend."""

    def declare(model: type) -> type:
        REGISTRY.rows.append(TableEntry(OPERATORS, name, purpose, lambda before: model, __name__))
        return model

    return declare


def kernel(
    operator: Any, purpose: str, *, key: Any = compat.DispatchKey.Autograd
) -> Callable[[Function], Function]:
    """Declare what runs before the kernel of an operator for a dispatch key, or for a mode."""

    def declare(function: Function) -> Function:
        def make(before: Any) -> Any:
            return functools.partial(function, before)

        REGISTRY.rows.append(
            TableEntry(KERNELS, (operator, key), purpose, make, function.__module__)
        )
        return function

    return declare


@contextmanager
def active() -> Iterator[None]:
    """Have the hooks in place for the length of a block, in which patched code is compiled."""
    with compat.compile_lock:
        _enter()
        try:
            yield
        finally:
            _leave()


def activate_for(output: compat.OutputGraph) -> None:
    """Have the hooks in place from here to the end of a trace that comes to patched code."""
    _enter()
    output.add_cleanup_hook(_leave)


def _enter() -> None:
    if not REGISTRY.depth:
        REGISTRY.install()
    REGISTRY.depth += 1


def _leave() -> None:
    REGISTRY.depth -= 1
    if not REGISTRY.depth:
        REGISTRY.uninstall()
        REGISTRY.watch(is_wanted=REGISTRY.is_watch_wanted)


def is_active() -> bool:
    """Return whether the hooks are in place."""
    return bool(REGISTRY.depth)


def adopt(objects: Iterable[Any]) -> None:
    """Give objects of a trace the class in which the hooks of theirs are methods."""
    for each in objects:
        if type(each) in _PER_TRACE:
            each.__class__ = REGISTRY.subclass_of(type(each))


def arm() -> None:
    """Make bcmend's own operators known to Dynamo, its kernels to torch; have bcmend skipped."""
    if REGISTRY.armed:
        REGISTRY.last()
        return
    with _undone_on_error(REGISTRY.armed):
        for each in REGISTRY.rows:
            if each.table != FUNCTIONS:
                REGISTRY.armed.append(_put_row(each))
        compat.trace_rules.add("bcmend")
        added = compat.trace_rules.SKIP_DIRS[-1]

        def forget() -> None:
            compat.trace_rules.SKIP_DIRS.remove(added)
            compat.trace_rules._recompile_re()

        REGISTRY.armed.append(forget)
        REGISTRY.last()


def disarm() -> None:
    """Leave torch as it was."""
    _undo(REGISTRY.armed)
    REGISTRY.last()
