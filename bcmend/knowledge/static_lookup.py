"""Looks into live objects and code without running any of it.

Attributes come from instance dictionaries and class namespaces alone, through the descriptors of
CPython's own types, so that no property, `__getattr__`, `__class__`, `__hash__`, `__eq__` or
iterator of an object is ever called. A metaclass cannot hide what `type` itself reads.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from types import CodeType, FunctionType, GetSetDescriptorType, MemberDescriptorType, ModuleType
from typing import Any, Final, TypeGuard, TypeVar

from bcmend.bytecode.decode import numbers_of, raw_steps
from bcmend.bytecode.opcodes import MODULE_IMPORTS

Kind = TypeVar("Kind")

#: Returns the class and its bases, in method resolution order.
ancestors: Final[Callable[[type], tuple[type, ...]]] = type.__dict__["__mro__"].__get__
#: Returns what the class itself defines, without its bases.
namespace: Final[Callable[[type], Mapping[str, object]]] = type.__dict__["__dict__"].__get__
#: Returns the `__qualname__` of the class, whatever its metaclass makes of that attribute.
qualified_name: Final[Callable[[type], str]] = type.__dict__["__qualname__"].__get__

(_IMPORT_NAME,) = numbers_of(MODULE_IMPORTS)

# Functions that take the name of an attribute as text.
_LOOKS_UP_BY_TEXT: Final = frozenset({"getattr", "attrgetter", "methodcaller"})


def is_a(value: object, kind: type[Kind]) -> TypeGuard[Kind]:
    """Return whether the type of `value` derives from `kind`; `isinstance` asks the object."""
    if type(value) is kind:
        return True
    for base in ancestors(type(value)):  # noqa: SIM110 - any() takes three times as long
        if base is kind:
            return True
    return False


def read_slot(value: object, owner: type, name: str) -> Any:
    """Return the attribute that the built-in class `owner` keeps in `value` under `name`."""
    return owner.__dict__[name].__get__(value)


def dictionary(value: object) -> dict[str, Any]:
    """Return the instance dictionary of any object, itself and not a copy; empty if it has none."""
    for base in ancestors(type(value)):
        descriptor: Any = namespace(base).get("__dict__")
        if type(descriptor) in (GetSetDescriptorType, MemberDescriptorType):
            try:
                found = descriptor.__get__(value)
            except (AttributeError, TypeError):
                # Somebody put the descriptor of another type there.
                return {}
            return found if is_a(found, dict) else {}
    return {}


def attributes(value: object) -> Iterator[tuple[str, object]]:
    """Yield the name and the value of each attribute in the dictionary and the slots of `value`."""
    yield from entries(dictionary(value))
    for base in ancestors(type(value)):
        for name, descriptor in namespace(base).items():
            if type(descriptor) is MemberDescriptorType:
                try:
                    yield name, descriptor.__get__(value)
                except (AttributeError, TypeError):
                    continue


def entries(value: object) -> list[tuple[Any, Any]]:
    """Return the keys and values of a dictionary of any class; nothing for another object.

    The list is a copy made in one step, so that another thread may go on changing the dictionary.
    """
    return list(dict.items(value)) if is_a(value, dict) else []


def captured(function: FunctionType) -> list[tuple[str, object]]:
    """Return the name and the value of each variable that the function captures and that is set."""
    found = []
    closure = function.__closure__
    for name, cell in zip(function.__code__.co_freevars, closure, strict=True) if closure else ():
        try:
            found.append((name, cell.cell_contents))
        except ValueError:
            continue
    return found


def named_by(code: CodeType) -> tuple[str, ...]:
    """Return every name that the code and the code nested in it use for a global or an attribute.

    Where the code calls `getattr` or its like, the identifiers among its texts count too.
    """
    names = dict.fromkeys(code.co_names)
    by_text = not _LOOKS_UP_BY_TEXT.isdisjoint(names)
    for constant in code.co_consts:
        if type(constant) is CodeType:
            names |= dict.fromkeys(named_by(constant))
        elif by_text and type(constant) is str and constant.isidentifier():
            names[constant] = None
    return tuple(names)


def imported_by(code: CodeType, package: object) -> list[ModuleType]:
    """Return the modules that the code and the code nested in it import, if they are loaded.

    Relative imports refer to `package`, the `__package__` of the module.
    """
    found = [sys.modules.get(name) for name in _import_targets(code, package)]
    return [module for module in found if is_a(module, ModuleType)]


def _import_targets(code: CodeType, package: object) -> Iterator[str]:
    if _IMPORT_NAME in code.co_code[::2]:  # most code imports nothing
        level = last = None
        for _, known, raw in raw_steps(code):
            if known.name in MODULE_IMPORTS:  # behind the loads of its level and of its names
                yield _absolute_name(code.co_names[raw], level, package)
            level, last = last, code.co_consts[raw] if known.argument == "const" else raw
    for constant in code.co_consts:
        if type(constant) is CodeType:
            yield from _import_targets(constant, package)


def _absolute_name(name: str, level: object, package: object) -> str:
    if type(level) is not int or level == 0 or type(package) is not str:
        return name
    base = package.rsplit(".", level - 1)[0]
    return f"{base}.{name}" if name else base
