"""What the text of objects can depend on, and whether making it changes something.

A text is made by methods of the program, which call others and read global variables, variables of
closures, attributes of classes and of modules. From the code of each such function come the names
that it uses: members of the classes and modules that it meets count if they have such a name. No
code of the program runs.

Code of torch and of the standard library looks at nothing but what it is given. What looks at the
interpreter or out of the process (`_OPENING`, `_OPENING_MODULES`) may see anything.
"""

from __future__ import annotations

import dis
import gc
import itertools
import logging
import sys
import weakref
from collections.abc import Iterable, Sequence
from types import (
    BuiltinFunctionType,
    CodeType,
    FrameType,
    FunctionType,
    MethodDescriptorType,
    ModuleType,
    TracebackType,
    WrapperDescriptorType,
)
from typing import Any, Final

import torch

from bcmend.bytecode.decode import unfused
from bcmend.bytecode.opcodes import (
    ATTRIBUTE_DELETES,
    ATTRIBUTE_LOADS,
    ATTRIBUTE_STORES,
    BUILDS,
    CALLS,
    CELL_CHANGES,
    DELETES,
    DISCARDS,
    EXTENSIONS,
    FORMATS,
    GLOBAL_CHANGES,
    GLOBAL_LOADS,
    INTRINSICS,
    ITEM_DELETES,
    ITEM_STORES,
    JUMPS,
    LOCAL_LOADS,
    LOCAL_STORES,
    SENDS,
    SLICE_STORES,
    STORES,
    SUPER_LOADS,
    VARIABLE_LOADS,
)
from bcmend.knowledge import static_lookup
from bcmend.knowledge.static_lookup import ancestors, is_a, namespace
from bcmend.policy import WRITING

_ATOMS: Final = (
    str, bytes, int, float, complex, bool, type(None), CodeType, FrameType, TracebackType,
    MethodDescriptorType, WrapperDescriptorType, torch.dtype, torch.device,
)  # fmt: skip
#: How many objects are looked through at most; what holds more may hold anything.
_LIMIT: Final = 200_000

#: Names of what leads from one object to any other.
_OPENING: Final = frozenset(
    """
    eval exec compile globals locals open input breakpoint __import__ __globals__ __builtins__
    __subclasses__ f_globals f_locals f_back tb_frame gi_frame
    """.split()
)
#: Modules that look at the interpreter, at other threads or out of the process.
_OPENING_MODULES: Final = frozenset(
    """
    _contextvars _ctypes _random _thread _weakref asyncio atexit contextvars ctypes
    datetime gc importlib inspect io multiprocessing os pathlib pickle posix random runpy secrets
    shelve shutil signal socket sqlite3 subprocess sys tempfile threading time traceback
    tracemalloc uuid
    """.split()
)
_TRUSTED: Final = (frozenset(sys.stdlib_module_names) - _OPENING_MODULES) | {
    *("torch", "numpy", "bcmend"),
    *WRITING,
}
#: Names with which members are looked up by a text that is put together.
_BY_ANY_NAME: Final = frozenset({"getattr", "attrgetter", "methodcaller", "vars", "dir"})
#: Special methods that no text calls unasked.
_NOT_CALLED: Final = frozenset(
    """
    __call__ __del__ __delattr__ __init__ __init_subclass__ __new__ __post_init__ __reduce__
    __reduce_ex__ __replace__ __set_name__ __setattr__ __setstate__
    """.split()
)
#: What every class has, and no text reads.
_NO_MEMBERS: Final = frozenset(
    "__dict__ __weakref__ __doc__ __module__ __annotations__ __annotate_func__".split()
)
#: Special methods whose effects count though no code names them.
_ALWAYS_ASKED: Final = frozenset(
    """
    __bool__ __contains__ __eq__ __float__ __format__ __get__ __getattr__ __getattribute__
    __getitem__ __hash__ __index__ __int__ __len__ __missing__ __repr__ __str__
    """.split()
)
_MAKING: Final = frozenset({"__init__", "__new__", "__post_init__"})
#: Methods that change what they are called on.
_CHANGING: Final = frozenset(
    """
    __setattr__ __delattr__ __setitem__ __delitem__ add append appendleft clear discard extend
    extendleft insert move_to_end pop popitem popleft put remove reverse rotate setdefault sort
    update write writelines
    """.split()
)
_CHANGING_FUNCTIONS: Final = frozenset({"delattr", "next", "setattr"})
#: Instructions that leave an object that nothing else has.
_MAKES: Final = BUILDS | EXTENSIONS | FORMATS | CALLS | INTRINSICS
_ENDS_STATEMENT: Final = STORES | DELETES | DISCARDS | (JUMPS - SENDS)
_ATTRIBUTE_CHANGES: Final = ATTRIBUTE_STORES | ATTRIBUTE_DELETES
#: Stores to what an object holds.
OBJECT_CHANGES: Final = _ATTRIBUTE_CHANGES | ITEM_STORES | ITEM_DELETES | SLICE_STORES
TEXT_METHODS: Final = ("__str__", "__repr__", "__format__")


class TextReach:
    """All that the text of objects can depend on.

    Attributes:
        identities: the identities of objects, classes, modules and cells.
        names: names of global variables and of attributes that are read.
        is_open: whether anything else may be read.
        is_own: whether any of the objects has a text that is made by code in Python.
        shows_tensors: whether tensors are among them.
        changes: what making the text changes beside the objects themselves; empty if nothing.
    """

    def __init__(self, roots: Iterable[object], kinds: Iterable[type]) -> None:
        self._seen: set[int] = set()
        self.names: set[str] = set()
        self.is_open = self.shows_tensors = False
        self.changes = ""
        self._any_name = False
        self._kinds: dict[type, bool] = {}  # whether the program may make such objects
        self._modules: list[ModuleType] = []
        self._members: set[tuple[int, str]] = set()
        self._waiting: list[object] = list(roots)
        self._kept: list[object] = []  # so that no identity is given to another object
        for kind in kinds:
            self._look_at_kind(kind)
        self._look_through()
        self.identities = frozenset(self._seen)
        self.is_own = any(map(has_own_text, self._kinds))

    def _look_through(self) -> None:
        while self._waiting or self._find_members():
            waiting, self._waiting = self._waiting, []
            for value in waiting:
                if len(self._seen) > _LIMIT:
                    self.is_open = True
                    return
                self._look_at(value)

    def _look_at(self, value: object) -> None:
        kind = type(value)
        if kind in _ATOMS or id(value) in self._seen:
            return
        self._seen.add(id(value))
        self._kept.append(value)
        if is_a(value, type):
            self._look_at_kind(value, is_made=True)
        elif is_a(value, FunctionType):
            self._look_at_function(value)
        elif is_a(value, ModuleType):
            self._look_at_module(value)
        elif is_a(value, BuiltinFunctionType):
            self._look_at_builtin(value)
        elif is_a(value, logging.Logger):
            pass  # leads to all handlers, and to all other loggers
        else:
            self._look_at_kind(kind)
            if is_a(value, weakref.ref):
                self._waiting.append(value())
            elif kind in (weakref.ProxyType, weakref.CallableProxyType):
                self.is_open = True
            elif is_a(value, torch.Tensor):
                self.shows_tensors = True
            else:
                self._waiting += [each for each in gc.get_referents(value) if each is not kind]

    def _look_at_kind(self, kind: type, *, is_made: bool = False) -> None:
        for each in ancestors(kind):
            self._seen.add(id(each))
            if each.__flags__ & IS_HEAP_TYPE:
                self._kinds[each] = self._kinds.get(each, False) or is_made
        if is_made and _module_of(kind) in _OPENING_MODULES:
            self.is_open = True
        if type(kind) is not type and type(kind) not in self._kinds:
            self._look_at_kind(type(kind))

    def _look_at_module(self, module: ModuleType) -> None:
        root = _root_of(static_lookup.dictionary(module))
        if root in _OPENING_MODULES:
            self.is_open = True
        elif root not in _TRUSTED:
            self._modules.append(module)

    def _look_at_builtin(self, function: BuiltinFunctionType) -> None:
        owner = function.__self__
        if owner is not None and not is_a(owner, ModuleType):
            self._waiting.append(owner)
            return
        name = owner.__name__ if owner is not None else str(function.__module__)
        root = name.partition(".")[0]
        if root not in _TRUSTED and f"{root}.{function.__name__}" != "_thread.get_ident":
            self.is_open = True

    def _look_at_function(self, function: FunctionType) -> None:
        code, variables = function.__code__, function.__globals__
        for cell in function.__closure__ or ():
            self._waiting.append(cell)
        self._waiting += [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
        self._waiting += static_lookup.dictionary(function).values()
        names = set(static_lookup.named_by(code))
        self.names |= names
        root = _root_of(variables)
        if root in _TRUSTED:
            return
        if root in _OPENING_MODULES or not names.isdisjoint(_OPENING):
            self.is_open = True
        self._any_name = self._any_name or not names.isdisjoint(_BY_ANY_NAME)
        self._waiting += static_lookup.imported_by(code, variables.get("__package__"))
        self._waiting += [variables[name] for name in names if name in variables]
        own = sys.modules.get(str(variables.get("__name__")))
        if own is not None and vars(own) is variables:
            self._seen.add(id(own))
        is_asked = code.co_name in self.names or code.co_name in _ALWAYS_ASKED
        if is_asked and not self.changes and _changes_elsewhere(code):
            self.changes = function.__qualname__

    def _find_members(self) -> bool:
        """Have the members looked at that are of a name in use by now; return if there are any."""
        for kind, is_made in list(self._kinds.items()):
            root = _module_of(kind)
            is_of_program = root not in _TRUSTED and root not in _OPENING_MODULES
            for name, member in namespace(kind).items():
                if (id(kind), name) in self._members or name in _NO_MEMBERS:
                    continue
                is_special = _is_special(name, member)
                if is_special and root in _OPENING_MODULES:
                    continue
                if (
                    is_special
                    or name in self.names
                    or (is_of_program and is_made and name in _MAKING)
                    or (is_of_program and self._any_name and name not in _NOT_CALLED)
                ):
                    self._members.add((id(kind), name))
                    self._waiting.append(_unwrapped(member))
                    self.is_open = self.is_open or root in _OPENING_MODULES
        self.is_open = self.is_open or (self._any_name and bool(self._modules))
        for module in self._modules:
            held = static_lookup.dictionary(module)
            for name in self.names & held.keys():
                if (id(module), name) not in self._members:
                    self._members.add((id(module), name))
                    self._waiting.append(held[name])
        return bool(self._waiting)


IS_HEAP_TYPE: Final = 1 << 9


def _module_of(kind: type) -> str:
    return str(namespace(kind).get("__module__")).partition(".")[0]


def _root_of(variables: dict[str, Any]) -> str:
    return str(variables.get("__name__")).partition(".")[0]


def _is_special(name: str, member: object) -> bool:
    is_special = name.startswith("__") and name.endswith("__") and name not in _NOT_CALLED
    return is_special and is_a(member, FunctionType)


def _unwrapped(member: object) -> object:
    """Return a member of a class, the function of a method of it."""
    return member.__func__ if isinstance(member, (classmethod, staticmethod)) else member


def has_own_text(kind: type) -> bool:
    """Return whether a class itself has a function in Python that makes a text."""
    return any(is_a(namespace(kind).get(name), FunctionType) for name in TEXT_METHODS)


def _changes_elsewhere(code: CodeType) -> bool:
    """Return whether a function may change what it has not made.

    A method that makes a text may store to attributes of its object: its caller accounts for that.
    """
    may_store = code.co_name in TEXT_METHODS or code.co_name in _MAKING
    own = code.co_varnames[: min(code.co_argcount, 1)] if may_store else ()
    instructions = list(unfused(code))
    made = _made_here(code, instructions)
    for position, each in enumerate(instructions):
        name, before = each.argval, instructions[max(position - 1, 0)]
        if each.opname in GLOBAL_CHANGES:
            return True
        if each.opname in CELL_CHANGES and name in code.co_freevars:
            return True
        if (
            each.opname in ATTRIBUTE_LOADS | SUPER_LOADS
            and name in _CHANGING
            and before.argval not in made
        ):
            return True
        if each.opname in GLOBAL_LOADS and name in _CHANGING_FUNCTIONS:
            return True
        if each.opname in OBJECT_CHANGES and not _stores_to(instructions, position, made, own):
            return True
    return any(_changes_elsewhere(each) for each in code.co_consts if type(each) is CodeType)


def _stores_to(
    instructions: Sequence[dis.Instruction], position: int, made: set[str], own: Sequence[str]
) -> bool:
    """Return whether a store is certain to be to what was made, or to an attribute of an own one.

    What an attribute holds may be held elsewhere: a store to an item of it counts.
    """
    before = instructions[position - 1]
    is_attribute = instructions[position].opname in _ATTRIBUTE_CHANGES
    known = {*made, *own} if is_attribute else made
    if is_attribute and before.opname in LOCAL_LOADS:
        return before.argval in known
    statement = itertools.takewhile(
        lambda one: one.opname not in _ENDS_STATEMENT, reversed(instructions[:position])
    )
    loaded = [one for one in statement if one.opname in VARIABLE_LOADS]
    return all(one.opname in LOCAL_LOADS and one.argval in known for one in loaded)


def _made_here(code: CodeType, instructions: Sequence[dis.Instruction]) -> set[str]:
    """Return the local variables that only ever hold what the function, or a call, has made."""
    made = set(code.co_varnames[code.co_argcount + code.co_kwonlyargcount :])
    for before, each in itertools.pairwise(instructions):
        if each.opname in LOCAL_STORES and before.opname not in _MAKES:
            made.discard(each.argval)
    return made
