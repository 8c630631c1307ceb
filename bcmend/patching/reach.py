"""Find the Python functions that a module or a function can reach.

The answer is an over-approximation by name: a function counts as reached when reached code names it
and something that the walk came by has it under that name: a class, an object, a module or an
imported module. What is found by a computed name alone is mended once Dynamo stops in it.

No code of the user runs (`bcmend.knowledge.static_lookup`). Objects and types are told apart by
`id`, for hashing or comparing them could run code.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from itertools import islice
from types import CodeType, FunctionType, MethodType, ModuleType
from typing import Any, Final, NamedTuple

from bcmend.bytecode.names_used import has_assertion
from bcmend.knowledge import opt_out
from bcmend.knowledge.static_lookup import (
    ancestors,
    attributes,
    captured,
    dictionary,
    entries,
    imported_by,
    is_a,
    named_by,
    namespace,
    qualified_name,
    read_slot,
)
from bcmend.patching.subject import module_classes, path_of, uncompiled
from bcmend.policy import Policy

# How many containers and plain objects may lie inside each other between a function or a module and
# the function that they hold, and how many entries of one container are looked at.
_MAXIMUM_NESTING: Final = 3
_MAXIMUM_ENTRIES: Final = 500
# A dictionary with more functions than this is a table of which a call runs one or two: the losses
# of all tasks, the operators of a language. Its functions are mended once Dynamo stops in them.
_MAXIMUM_CHOICES: Final = 8

_OPERATORS: Final = "add sub mul matmul truediv floordiv mod pow and or".split()
# Methods that run without being named by the code that uses an object ... Equality is left out:
# nearly every configuration defines it, and its code leads to all of their serialisation.
_IMPLICIT_METHODS: Final = (
    frozenset({"forward", "__call__", "__torch_function__", "__enter__", "__exit__"})
    | {"__getattr__", "__getattribute__", "__setattr__", "__get__", "__set__"}
    | {"__getitem__", "__setitem__", "__delitem__", "__missing__", "__contains__"}
    | {"__iter__", "__next__", "__len__", "__bool__", "__int__", "__float__", "__index__"}
    | {"__lt__", "__le__", "__gt__", "__ge__", "__neg__", "__invert__"}
    | {f"__{prefix}{stem}__" for prefix in ("", "r", "i") for stem in _OPERATORS}
)
# ... or the code that makes one. They are not followed by name: every `super().__init__()` would
# reach the constructor of every class.
_CONSTRUCTORS: Final = frozenset({"__new__", "__init__", "__post_init__"})
_NOT_BY_NAME: Final = _CONSTRUCTORS | _IMPLICIT_METHODS
# What moves, converts or configures a whole module. Code that names one of these mostly means the
# tensor's method of that name, and no forward does it to a module.
_MODULE_UPKEEP: Final = frozenset(
    {"to", "cuda", "cpu", "xpu", "ipu", "float", "double", "half", "bfloat16"}
    | {"train", "eval", "requires_grad_", "zero_grad", "state_dict", "load_state_dict"}
)

_HOOKS: Final = frozenset(
    {"_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"}
)
# What nn.Module stores in each instance that is no part of a call.
_BOOKKEEPING: Final = frozenset(
    {"_parameters", "_buffers", "_non_persistent_buffers_set", "_is_full_backward_hook"}
    | {"_state_dict_hooks", "_state_dict_pre_hooks"}
    | {"_load_state_dict_pre_hooks", "_load_state_dict_post_hooks"}
    | {"_forward_hooks_with_kwargs", "_forward_pre_hooks_with_kwargs"}
    | {"_forward_hooks_always_called"}
)

# The attributes by which CPython's own wrappers hold what they wrap.
_WRAPPERS: Final[tuple[tuple[type, tuple[str, ...]], ...]] = (
    (MethodType, ("__func__", "__self__")),
    (staticmethod, ("__func__",)),
    (classmethod, ("__func__",)),
    (property, ("fget", "fset", "fdel")),
    (functools.partial, ("func", "args", "keywords")),
)
# Wrappers of the standard library that hold what they wrap in their instance dictionary.
_DICTIONARY_WRAPPERS: Final[tuple[type, ...]] = (
    functools.cached_property,
    functools.partialmethod,
    functools.singledispatchmethod,
    type(functools.lru_cache(lambda: None)),
)
_CONTAINERS: Final[tuple[tuple[type, Callable[[Any], Iterable[object]]], ...]] = (
    (dict, dict.values),
    (list, list.__iter__),
    (tuple, tuple.__iter__),
    (set, set.__iter__),
    (frozenset, frozenset.__iter__),
    (deque, deque.__iter__),
)
_PLAIN_VALUES: Final = frozenset(
    map(id, (type(None), bool, int, float, complex, str, bytes, CodeType, slice, range))
)
# What a class of a package that is not mended can hold that leads to code of the user.
_FUNCTION_KINDS: Final = frozenset(
    map(id, (FunctionType, staticmethod, classmethod, property, *_DICTIONARY_WRAPPERS))
)
# The attributes by which a function names the one that it stands for.
_STANDS_FOR: Final = ("__wrapped__", "_torchdynamo_orig_callable")


@dataclass(frozen=True, slots=True)
class Reached:
    """A function that the object can reach.

    ``path`` says how, for messages, such as "Net.forward -> scale". A function is ``deferred`` if
    it was reached only by way of a table of many functions: it is mended once Dynamo stops in it.
    """

    function: FunctionType
    path: str
    deferred: bool = False


def reach(obj: object, policy: Policy) -> tuple[Reached, ...]:
    """Return every Python function that calling `obj` can reach, and that `policy` touches.

    Args:
        obj: an `nn.Module`, a subclass of `nn.Module`, a function, a bound method, a
            `functools.partial` of one of these, or what `torch.compile` made of one of these.
        policy: says which modules are left out.

    Returns:
        Each function object once, breadth first: a wrapper before what it wraps, and what is
        deferred last.

    Raises:
        UnsupportedObject: `obj` is none of these, or is a generator function or a coroutine
            function, or is a TorchScript object.
    """
    walk = _Walk(policy)
    walk.run(uncompiled(obj), path_of(obj))
    return tuple(walk.found)


class _Pending(NamedTuple):
    """A value that is still to be visited, and how the walk came to it."""

    value: object
    path: str
    nesting: int


class _Walk:
    """The state of one walk. What it has seen is stored by id with the object, so that no other
    object can come to have that id.
    """

    def __init__(self, policy: Policy) -> None:
        self.found: list[Reached] = []
        self._touches = functools.cache(policy.touches)
        self._queue: deque[_Pending] = deque()
        # The least nesting at which a value was looked at, and the value.
        self._seen: dict[int, tuple[int, object]] = {}
        self._registered: dict[int, object] = {}
        # The name index: who first named each name, and every value known under it, with its
        # nesting.
        self._namers: dict[str, str] = {}
        self._members: dict[str, list[tuple[object, int]]] = {}
        # By the id of the globals: the names that were looked up there, and the modules found.
        self._globals: dict[int, dict[str, ModuleType | None]] = {}
        # The functions of large tables, which are looked at when nothing else is left.
        self._choices: list[_Pending] = []
        self._is_late = False
        # The classes of objects, and whether they have code that is not read.
        self._opaque: dict[int, tuple[type, bool]] = {}
        self._module_classes = frozenset(map(id, module_classes()))
        self._visitors = self._visitor_table()

    def _visitor_table(self) -> dict[int, Callable[[Any, str, int], None]]:
        table: dict[int, Callable[[Any, str, int], None]] = {
            id(object): self._visit_object,
            id(type): self._visit_class,
            id(FunctionType): self._visit_function,
            id(ModuleType): self._visit_namespace,
        }
        table |= {id(kind): self._visit_attributes for kind in _DICTIONARY_WRAPPERS}
        table |= {id(kind): partial(self._visit_wrapper, kind, n) for kind, n in _WRAPPERS}
        table |= {id(kind): partial(self._visit_container, kind, f) for kind, f in _CONTAINERS}
        return table | {id(kind): self._visit_torch_module for kind in module_classes()}

    def run(self, obj: object, path: str) -> None:
        """Visit `obj` and everything that it leads to."""
        self._add(obj, path)
        self._visit_queue()
        self._is_late = True
        for choice in self._choices:
            self._add(*choice)
        self._visit_queue()

    def _visit_queue(self) -> None:
        while self._queue:
            value, path, nesting = self._queue.popleft()
            self._visitors[id(self._kind_of(value))](value, path, nesting)

    def _add(self, value: object, path: str, nesting: int = 0) -> None:
        """Queue a value, unless it was looked at under no more nesting before."""
        if id(type(value)) in _PLAIN_VALUES or nesting > _MAXIMUM_NESTING:
            return
        if type(value) is FunctionType:
            nesting = 0
        seen = self._seen.get(id(value))
        if seen is None or nesting < seen[0]:
            self._seen[id(value)] = (nesting, value)
            self._queue.append(_Pending(value, path, nesting))

    def _visit_function(self, function: FunctionType, path: str, nesting: int) -> None:
        label = function.__qualname__
        held = captured(function)
        if self._touches_function(function):
            # Dynamo puts its own form of an assertion into the graph, and does not stop.
            deferred = self._is_late and not has_assertion(function.__code__)
            self.found.append(Reached(function, path, deferred))
            self._follow_names(function, [value for _, value in held if is_a(value, ModuleType)])
            held += [("default", value) for value in function.__defaults__ or ()]
            held += entries(function.__kwdefaults__) + entries(function.__dict__)
        else:
            held = [(name, function.__dict__.get(name)) for name in _STANDS_FOR] + held
        for name, value in held:
            if name == "__class__":
                # Zero-argument super() captures the class, and constructs nothing.
                self._register(value, label)
            else:
                self._add(value, f"{label} -> {name}")

    def _follow_names(self, function: FunctionType, modules: list[ModuleType]) -> None:
        """Look up what the code names: globals, modules, imports and attributes of anything."""
        label = function.__qualname__
        scope = function.__globals__
        names = named_by(function.__code__)
        modules += imported_by(function.__code__, dict.get(scope, "__package__"))
        known = self._globals.setdefault(id(scope), {})
        for name in names:
            # Most names are those of attributes.
            if name not in known and (value := dict.get(scope, name)) is not None:
                known[name] = value if is_a(value, ModuleType) else None
                if known[name] is None:
                    self._add(value, f"{label} -> {name}")
            if (module := known.get(name)) is not None:
                modules.append(module)
            if name not in self._namers:
                self._namers[name] = label
                for member, nesting in self._members.get(name, ()):
                    self._add(member, f"{label} -> {name}", nesting)
        self._follow_into_modules(modules, names, label)

    def _follow_into_modules(
        self, modules: list[ModuleType], names: tuple[str, ...], label: str
    ) -> None:
        """Look up the names in the modules, and in the modules found that way."""
        seen: set[int] = set()
        while modules:
            module = modules.pop()
            content = dictionary(module)
            module_name = content.get("__name__")
            if id(module) in seen or not self._touches_name(module_name):
                continue
            seen.add(id(module))
            for name in names:
                value = content.get(name)
                if value is not None and is_a(value, ModuleType):
                    modules.append(value)
                elif value is not None:
                    self._add(value, f"{label} -> {module_name}.{name}")

    def _visit_class(self, cls: type, path: str, nesting: int) -> None:
        """Visit a class that the code names, and so may construct."""
        if not self._touches_class(cls):
            return
        self._register(cls, path)
        self._register(type(cls), path)
        for base in ancestors(cls):
            if self._touches_class(base):
                for name, value in namespace(base).items():
                    if name in _CONSTRUCTORS:
                        self._add(value, f"{qualified_name(base)}.{name} ({path})")

    def _visit_torch_module(self, module: object, path: str, nesting: int) -> None:
        self._register(type(module), path)
        kind = qualified_name(type(module))
        own = []
        for name, value in entries(dictionary(module)):
            if name == "_modules":
                for child_name, child in entries(value):
                    self._add(child, f"{path}.{child_name}" if path else f"{child_name}")
            elif name in _HOOKS:
                for _, hook in entries(value):
                    self._add(hook, f"{kind}.{name}")
            elif name not in _BOOKKEEPING:
                own.append((name, value))
        self._know_attributes(type(module), own, f"{kind} -> self", 0)

    def _visit_object(self, value: object, path: str, nesting: int) -> None:
        self._register(type(value), path)
        if self._touches_class(type(value)) and nesting < _MAXIMUM_NESTING:
            own = islice(attributes(value), _MAXIMUM_ENTRIES)
            self._know_attributes(type(value), own, path, nesting + 1)

    def _visit_attributes(self, value: object, path: str, nesting: int) -> None:
        for name, attribute in islice(attributes(value), _MAXIMUM_ENTRIES):
            self._add(attribute, f"{path}.{name}", nesting + 1)

    def _visit_wrapper(
        self, kind: type, names: tuple[str, ...], value: object, path: str, nesting: int
    ) -> None:
        for name in names:
            self._add(read_slot(value, kind, name), path, nesting)
        if type(value) is not kind:
            self._visit_object(value, path, nesting)

    def _visit_container(
        self,
        kind: type,
        iterate: Callable[[Any], Iterable[object]],
        value: object,
        path: str,
        nesting: int,
    ) -> None:
        found = [
            _Pending(entry, f"{path}[...]", nesting + 1)
            for entry in islice(iterate(value), _MAXIMUM_ENTRIES)
        ]
        if kind is dict and not self._is_late:
            found = self._without_choices(found)
        for entry in found:
            self._add(*entry)
        if type(value) is not kind:
            self._visit_object(value, path, nesting)

    def _without_choices(self, found: list[_Pending]) -> list[_Pending]:
        """Return the values of a dictionary; without its functions for now, if these are many."""
        functions = [each for each in found if type(each.value) is FunctionType]
        if len(functions) <= _MAXIMUM_CHOICES:
            return found
        self._choices += functions
        return [each for each in found if type(each.value) is not FunctionType]

    def _visit_namespace(self, module: object, path: str, nesting: int) -> None:
        """Visit a module that an object holds: whatever reached code names in it."""
        content = dictionary(module)
        if self._touches_name(content.get("__name__")):
            for name, value in entries(content):
                self._know(name, value)

    def _register(self, cls: object, path: str) -> None:
        """Make the members of a class and of its bases known by name."""
        if id(cls) in self._registered or not is_a(cls, type):
            return
        known = ancestors(cls)
        is_module = any(id(base) in self._module_classes for base in known)
        for base in known:
            if id(base) in self._registered:
                continue
            self._registered[id(base)] = base
            touched = self._touches_class(base)
            for name, value in namespace(base).items():
                if is_module and name in _MODULE_UPKEEP:
                    continue
                if name in _IMPLICIT_METHODS and touched:
                    location = f" ({path})" if path else ""
                    self._add(value, f"{qualified_name(base)}.{name}{location}")
                elif touched or id(type(value)) in _FUNCTION_KINDS:
                    self._know(name, value)

    def _know_attributes(
        self, kind: type, found: Iterable[tuple[str, object]], path: str, nesting: int
    ) -> None:
        """Make the attributes of an object known by name.

        Visit what runs without being named, and everything where code that is not read may name it.
        """
        is_opaque = self._is_opaque(kind)
        for name, value in found:
            if id(type(value)) in _PLAIN_VALUES:
                continue
            # Code that computes the name of an attribute may call a function or a module, or what
            # is in a container.
            if is_opaque or name in _NOT_BY_NAME or self._kind_of(value) is not object:
                self._add(value, f"{path}.{name}", nesting)
            else:
                self._know(name, value, nesting)

    def _kind_of(self, value: object) -> type:
        """Return the type by which a value is looked at; every type derives from object."""
        kind = type(value)
        if id(kind) in self._visitors:
            return kind
        return next(base for base in ancestors(kind) if id(base) in self._visitors)

    def _is_opaque(self, kind: type) -> bool:
        """Return whether objects of a class have methods that the walk does not read."""
        known = self._opaque.get(id(kind))
        if known is None:
            read = (
                base is object or id(base) in self._module_classes or self._touches_class(base)
                for base in ancestors(kind)
            )
            known = kind, not all(read)
            self._opaque[id(kind)] = known
        return known[1]

    def _know(self, name: str, value: object, nesting: int = 0) -> None:
        if id(type(value)) in _PLAIN_VALUES or name in _NOT_BY_NAME:
            return
        self._members.setdefault(name, []).append((value, nesting))
        if name in self._namers:
            self._add(value, f"{self._namers[name]} -> {name}", nesting)

    def _touches_function(self, function: FunctionType) -> bool:
        # Where the code was made counts: functools.wraps copies `__module__` from what is wrapped.
        name = dict.get(function.__globals__, "__name__")
        is_touched = self._touches_name(name if type(name) is str else "")
        return is_touched and not opt_out.is_function_off(function)

    def _touches_class(self, cls: type) -> bool:
        return self._touches_name(namespace(cls).get("__module__"))

    def _touches_name(self, name: object) -> bool:
        return type(name) is str and self._touches(name)
