"""The callables that write something, how each is recognised, and what it returns.

Reads objects and names; says whether calling an object, or a method of it, writes. Functions are
known by their qualified names and methods by the classes that have them, so that nothing has to be
imported; the user may add others. Relies on nothing else of bcmend but its errors, and needs no
torch.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache, partial
from types import BuiltinMethodType, FunctionType, MethodType, ModuleType
from typing import Any, Final

from bcmend.errors import OutputError
from bcmend.qualified import Registered, is_qualified, plain, resolved
from bcmend.static_lookup import ancestors, namespace
from bcmend.torch_knowledge import LOGGER_METHODS, LOGGING_FUNCTIONS, WARNING_FUNCTIONS

__all__ = [
    "CACHED",
    "Output",
    "always_none",
    "last_names",
    "level_of",
    "of_callable",
    "of_method",
    "register",
    "registered",
    "unregister",
]


@dataclass(frozen=True, slots=True)
class Output:
    """What is known of something that writes.

    Attributes:
        name: the qualified name by which it was recognised.
        returns_none: whether it returns None, so that a call whose result is used can wait too.
    """

    name: str
    returns_none: bool = True


#: The type of a function that remembers its results.
CACHED: Final = type(lru_cache(print))

#: Functions, by module and name.
_FUNCTIONS: Final = (
    "builtins.print",
    "pprint.pprint",
    "pprint.pp",
    "traceback.print_exc",
    "traceback.print_exception",
    "traceback.print_stack",
    "rich.print",
    "rich.print_json",
    "click.echo",
    "click.secho",
    *(f"logging.{name}" for name in sorted(LOGGING_FUNCTIONS)),
    *(f"warnings.{name}" for name in sorted(WARNING_FUNCTIONS)),
)

_WRITER_METHODS: Final = frozenset(
    """
    add_scalar add_scalars add_histogram add_histogram_raw add_image add_images
    add_image_with_boxes add_figure add_video add_audio add_text add_pr_curve add_pr_curve_raw
    add_mesh add_tensor add_embedding add_graph add_hparams add_custom_scalars
    add_custom_scalars_multilinechart add_custom_scalars_marginchart flush
    """.split()
)

#: Methods, by the class that has them first; they are methods of subclasses too.
_METHODS: Final[Mapping[str, frozenset[str]]] = {
    "logging.Logger": LOGGER_METHODS,
    "logging.LoggerAdapter": LOGGER_METHODS,
    "_io._IOBase": frozenset(["write", "writelines", "flush"]),
    "pprint.PrettyPrinter": frozenset(["pprint"]),
    "rich.console.Console": frozenset(["print", "log", "rule", "print_json"]),
    "torch.utils.tensorboard.writer.SummaryWriter": _WRITER_METHODS,
    "tensorboardX.writer.SummaryWriter": _WRITER_METHODS,
    "tqdm.std.tqdm": frozenset(["write"]),
}

#: Those that return something else than None.
_GIVE_A_VALUE: Final = frozenset(["_io._IOBase.write"])

#: Attributes of ``sys`` that hold a stream, whatever its class.
_STREAMS: Final = ("stdout", "stderr", "__stdout__", "__stderr__")

_LEVELS: Final[Mapping[str, int]] = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "exception": logging.ERROR,
    "critical": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}

_REGISTERED: Final[Registered[Output]] = Registered()


# What the user adds


def register(target: object, *, returns_none: bool = False) -> None:
    """Have calls of ``target`` count as output; see ``bcmend.register_output``."""
    if isinstance(target, str):
        _REGISTERED.by_name[_checked(target)] = Output(target, returns_none)
        return
    if isinstance(target, type) or not callable(target):
        raise OutputError(
            "an output is a function, a method or the qualified name of one; "
            f"got {target!r} of type {type(target).__qualname__}"
        )
    name = str(getattr(target, "__qualname__", type(target).__qualname__))
    _REGISTERED.add(target, Output(name, returns_none))


def unregister(target: object) -> None:
    """Take back ``register``; nothing happens if there is nothing to take back."""
    _REGISTERED.remove(target)


def registered() -> list[object]:
    """Return what is registered at present: names and objects."""
    return _REGISTERED.targets()


def _checked(name: str) -> str:
    if not is_qualified(name):
        raise OutputError(
            f"the name of an output is qualified, such as 'package.module.function'; got {name!r}"
        )
    return name


# Recognising


def last_names() -> frozenset[str]:
    """Return the names under which outputs are found in a module or a class."""
    names = {name.rpartition(".")[2] for name in _FUNCTIONS}
    return frozenset(names.union(_REGISTERED.last_names(), *_METHODS.values()))


def of_callable(value: Any) -> Output | None:
    """Return what is known of a callable; ``None`` if it is not known to write."""
    while type(value) is partial:
        value = value.func
    found = _REGISTERED.of_object(value)
    if found is not None:
        return found
    if type(value) in (MethodType, BuiltinMethodType):
        owner, name = value.__self__, value.__name__
        if owner is not None and not isinstance(owner, ModuleType):
            return of_method(owner, name)
    name = getattr(value, "__name__", None) if _may_be_a_function(value) else None
    return None if name is None else _of_function(value, name)


def _may_be_a_function(value: object) -> bool:
    return issubclass(type(value), (FunctionType, BuiltinMethodType, CACHED))


def _of_function(value: object, name: str) -> Output | None:
    for known in (*_FUNCTIONS, *_REGISTERED.by_name):
        if known.rpartition(".")[2] == name and resolved(known) is value:
            return _REGISTERED.by_name.get(known) or Output(known)
    return None


def of_method(owner: Any, name: str) -> Output | None:
    """Return what is known of the method ``name`` of an object or class."""
    if isinstance(owner, ModuleType):
        member = vars(owner).get(name)
        return None if member is None else of_callable(member)
    if name == "write" and any(owner is getattr(sys, each, None) for each in _STREAMS):
        return Output("sys.stdout.write", returns_none=False)
    is_class = isinstance(owner, type)
    for base in ancestors(owner if is_class else type(owner)):
        found = _of_class(base, name) or _of_instance(owner, base, name)
        if found is not None:
            return found
    own = None if is_class else getattr(owner, "__dict__", {}).get(name)
    return None if own is None else of_callable(own)


def _of_class(base: type, name: str) -> Output | None:
    """Return what is known of the method ``name`` that a class defines."""
    kind = f"{base.__module__}.{base.__qualname__}"
    if name in _METHODS.get(kind, ()):
        full = f"{kind}.{name}"
        return Output(full, full not in _GIVE_A_VALUE)
    if f"{kind}.{name}" in _REGISTERED.by_name:
        return _REGISTERED.by_name[f"{kind}.{name}"]
    member = plain(namespace(base).get(name))
    return _REGISTERED.of_object(member) if member is not None else None


def _of_instance(owner: object, base: type, name: str) -> Output | None:
    """Return what is known of a method of one object alone, which a base defines."""
    return _REGISTERED.of_method(owner, namespace(base).get(name))


def always_none(name: str) -> bool:
    """Whether whatever is known under a method's name returns None."""
    ambiguous = ("log", "write", "print", "flush", "rule")  # of tensors, of anything
    return name not in ambiguous and any(name in methods for methods in _METHODS.values())


def level_of(owner: object, name: str, given: object = None) -> int | None:
    """Return the level at which a method of a logger writes, if that alone decides whether it does.

    Args:
        owner: the logger, or an adapter of one.
        name: the method.
        given: the first argument, if it is known; ``log`` takes the level there.
    """
    kind = logging.LoggerAdapter if isinstance(owner, logging.LoggerAdapter) else logging.Logger
    if not isinstance(owner, kind) or name in getattr(owner, "__dict__", ()):
        return None
    for member in (name, "isEnabledFor"):
        if getattr(type(owner), member, None) is not getattr(kind, member, _FUNCTIONS):
            return None
    level = given if name == "log" else _LEVELS.get(name)
    return level if type(level) is int else None
