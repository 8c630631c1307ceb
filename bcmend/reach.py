"""Which Python functions a module or a function can reach.

Reads a live object and the policy; produces the functions whose code may run when the object is
called, each once, in a fixed order. The answer is an over-approximation by name: a function counts
as reached when reached code names it and something that the walk came by has it under that name.
The walk is breadth first, and its time is linear in what it visits.

It relies on `bcmend.static_lookup`, so that it never runs code of the user. Objects and types are
told apart by `id`, for hashing or comparing them could run code.
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

from bcmend.policy import Policy
from bcmend.static_lookup import (
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
from bcmend.subject import module_classes, path_of, uncompiled

__all__ = ["Reached", "reach"]

# How many containers and plain objects may lie inside each other between a function or a module and
# the function that they hold, and how many entries of one container are looked at.
_MAXIMUM_NESTING: Final = 3
_MAXIMUM_ENTRIES: Final = 500

_OPERATORS: Final = (
    "add",
    "sub",
    "mul",
    "matmul",
    "truediv",
    "floordiv",
    "mod",
    "pow",
    "and",
    "or",
)
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
# What nn.Module keeps in each instance that is no part of a call.
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
# What a class of a package that is left alone can hold that leads to code of the user.
_FUNCTION_KINDS: Final = frozenset(
    map(id, (FunctionType, staticmethod, classmethod, property, *_DICTIONARY_WRAPPERS))
)
# The attributes by which a function names the one that it stands for.
_STANDS_FOR: Final = ("__wrapped__", "_torchdynamo_orig_callable")


@dataclass(frozen=True, slots=True)
class Reached:
    """A function that the object can reach.

    Attributes:
        function: the function object itself.
        path: how it was reached, for messages, such as "Net.forward -> scale".
    """

    function: FunctionType
    path: str


def reach(obj: object, policy: Policy) -> tuple[Reached, ...]:
    """Return every Python function that calling `obj` can reach, and that `policy` follows.

    The module that `obj` comes from is followed as soon as it is touched.

    Args:
        obj: an `nn.Module`, a subclass of `nn.Module`, a function, a bound method, a
            `functools.partial` of one of these, or what `torch.compile` made of one of these.
        policy: says which modules are left out.

    Returns:
        Each function object once: those of `obj` first, a wrapper before what it wraps.

    Raises:
        UnsupportedObject: `obj` is none of these, or is a generator function or a coroutine
            function, or is a TorchScript object.
    """
    path = path_of(obj)
    subject = uncompiled(obj)
    walk = _Walk(policy, _home(subject))
    walk.run(subject, path)
    return tuple(walk.found)


def _home(obj: object) -> object:
    """Return the name of the module that the code of `obj` comes from."""
    while is_a(obj, functools.partial):
        obj = read_slot(obj, functools.partial, "func")
    if is_a(obj, MethodType):
        obj = read_slot(obj, MethodType, "__func__")
    if is_a(obj, FunctionType):
        return dict.get(obj.__globals__, "__name__")
    return namespace(obj if is_a(obj, type) else type(obj)).get("__module__")


class _Pending(NamedTuple):
    """A value that is still to be looked at, and how the walk came to it."""

    value: object
    path: str
    nesting: int


class _Walk:
    """The state of one walk: what is known, and what is still to be looked at."""

    def __init__(self, policy: Policy, home: object) -> None:
        self.found: list[Reached] = []

        def touches(name: str) -> bool:
            return policy.follows(name) or (name == home and policy.touches(name))

        self._touches = functools.cache(touches)
        self._queue: deque[_Pending] = deque()
        # By id: the least nesting at which a value was looked at, and the value itself, so that
        # no other object can come to have its id.
        self._seen: dict[int, tuple[int, object]] = {}
        self._registered: dict[int, object] = {}
        # The name index: who first named each name, and every value known under it.
        self._namers: dict[str, str] = {}
        self._members: dict[str, list[object]] = {}
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
        """Look at `obj` and at everything that it leads to."""
        self._add(obj, path)
        while self._queue:
            value, path, nesting = self._queue.popleft()
            # Every type derives from object, which has a visitor.
            kind = next(base for base in ancestors(type(value)) if id(base) in self._visitors)
            self._visitors[id(kind)](value, path, nesting)

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
        if self._touches_function(function):
            self.found.append(Reached(function, path))
            self._follow_names(function)
            held = _held_by(function)
        else:
            own = dictionary(function)
            held = [(name, own.get(name)) for name in _STANDS_FOR] + captured(function)
        for name, value in held:
            if name == "__class__":
                # Zero-argument super() captures the class, and constructs nothing.
                self._register(value, label)
            else:
                self._add(value, f"{label} -> {name}")

    def _follow_names(self, function: FunctionType) -> None:
        """Look up what the code names: globals, modules, imports and attributes of anything."""
        label = function.__qualname__
        scope = function.__globals__
        names = named_by(function.__code__)
        modules: list[ModuleType] = imported_by(function.__code__, dict.get(scope, "__package__"))
        modules += [value for _, value in captured(function) if is_a(value, ModuleType)]
        for name in names:
            value = dict.get(scope, name)
            if is_a(value, ModuleType):
                modules.append(value)
            else:
                self._add(value, f"{label} -> {name}")
            if name not in self._namers:
                self._namers[name] = label
                for member in self._members.get(name, ()):
                    self._add(member, f"{label} -> {name}")
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
                if is_a(value, ModuleType):
                    modules.append(value)
                else:
                    self._add(value, f"{label} -> {module_name}.{name}")

    def _visit_class(self, cls: type, path: str, nesting: int) -> None:
        """Look at a class that the code names, and so may construct."""
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
        for name, value in entries(dictionary(module)):
            if name == "_modules":
                for child_name, child in entries(value):
                    self._add(child, f"{path}.{child_name}" if path else f"{child_name}")
            elif name in _HOOKS:
                for _, hook in entries(value):
                    self._add(hook, f"{kind}.{name}")
            elif name not in _BOOKKEEPING:
                self._add(value, f"{kind} -> self.{name}")

    def _visit_object(self, value: object, path: str, nesting: int) -> None:
        self._register(type(value), path)
        if self._touches_class(type(value)):
            self._visit_attributes(value, path, nesting)

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
        for entry in islice(iterate(value), _MAXIMUM_ENTRIES):
            self._add(entry, f"{path}[...]", nesting + 1)
        if type(value) is not kind:
            self._visit_object(value, path, nesting)

    def _visit_namespace(self, module: object, path: str, nesting: int) -> None:
        """Look at a module that is held by an object: whatever reached code names in it."""
        content = dictionary(module)
        if self._touches_name(content.get("__name__")):
            for name, value in entries(content):
                self._know(name, value)

    def _register(self, cls: object, path: str) -> None:
        """Make the members of a class and of its bases known by name."""
        known = ancestors(cls) if is_a(cls, type) else ()
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

    def _know(self, name: str, value: object) -> None:
        if id(type(value)) in _PLAIN_VALUES or name in _NOT_BY_NAME:
            return
        self._members.setdefault(name, []).append(value)
        if name in self._namers:
            self._add(value, f"{self._namers[name]} -> {name}")

    def _touches_function(self, function: FunctionType) -> bool:
        # Where the code was made counts: functools.wraps copies `__module__` from what is wrapped.
        name = dict.get(function.__globals__, "__name__")
        return self._touches_name(name if type(name) is str else "")

    def _touches_class(self, cls: type) -> bool:
        return self._touches_name(namespace(cls).get("__module__"))

    def _touches_name(self, name: object) -> bool:
        return type(name) is str and self._touches(name)


def _held_by(function: FunctionType) -> list[tuple[str, object]]:
    """Return what a function holds besides its code and its globals, each with a name."""
    defaults = [("default", value) for value in function.__defaults__ or ()]
    keyword_defaults = entries(function.__kwdefaults__)
    return captured(function) + defaults + keyword_defaults + entries(dictionary(function))
