"""The callables that write output, how each is recognised, and what it returns.

Functions are known by their qualified names and methods by the classes that have them, so that
nothing has to be imported; the user may add others.
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
from bcmend.knowledge.callable_names import (
    FILTER_FUNCTIONS,
    LOGGER_METHODS,
    LOGGING_FUNCTIONS,
    WARNING_FUNCTIONS,
)
from bcmend.knowledge.qualified_names import (
    Registered,
    is_qualified,
    missing_in,
    name_of,
    no_such,
    plain,
    resolved,
)
from bcmend.knowledge.static_lookup import ancestors, namespace


@dataclass(frozen=True, slots=True)
class Output:
    """A callable that writes, by qualified name.

    A call whose result is used can be deferred only if it ``returns_none``.
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
    *(f"warnings.{name}" for name in sorted(WARNING_FUNCTIONS | FILTER_FUNCTIONS)),
)

_WRITER_METHODS: Final = frozenset(
    """
    add_scalar add_scalars add_histogram add_histogram_raw add_image add_images
    add_image_with_boxes add_figure add_video add_audio add_text add_pr_curve add_pr_curve_raw
    add_mesh add_tensor add_embedding add_graph add_hparams add_custom_scalars
    add_custom_scalars_multilinechart add_custom_scalars_marginchart flush
    """.split()
)

_LOGURU_METHODS: Final = frozenset(
    "trace debug info success warning error critical exception log".split()
)

#: Methods, by the class that has them first; they are methods of subclasses too.
_METHODS: Final[Mapping[str, frozenset[str]]] = {
    "logging.Logger": LOGGER_METHODS,
    "logging.LoggerAdapter": LOGGER_METHODS,
    "_io._IOBase": frozenset(["write", "writelines", "flush"]),
    "loguru._logger.Logger": _LOGURU_METHODS,
    "pprint.PrettyPrinter": frozenset(["pprint"]),
    "rich.console.Console": frozenset(["print", "log", "rule", "print_json"]),
    "torch.utils.tensorboard.writer.SummaryWriter": _WRITER_METHODS,
    "tensorboardX.writer.SummaryWriter": _WRITER_METHODS,
    "tqdm.std.tqdm": frozenset(["write"]),
}

#: The names by which code may know these functions and methods.
_OWN_NAMES: Final = frozenset(name.rpartition(".")[2] for name in _FUNCTIONS).union(
    *_METHODS.values()
)

#: Those that return something else than None.
_GIVE_A_VALUE: Final = frozenset(["_io._IOBase.write"])

#: Attributes of ``sys`` that hold a stream, whatever its class.
_STREAMS: Final = ("stdout", "stderr", "__stdout__", "__stderr__")

#: By method; ``log`` is given its level.
_LEVELS: Final[Mapping[str, int]] = {
    **{name: getattr(logging, name.upper()) for name in LOGGING_FUNCTIONS - {"exception", "log"}},
    "exception": logging.ERROR,
}

#: What the user has added.
REGISTERED: Final[Registered[Output]] = Registered()


def register(target: object, *, returns_none: bool = False) -> None:
    """Have calls of ``target`` count as output; see ``bcmend.register_output``."""
    if isinstance(target, str):
        if not is_qualified(target):
            raise OutputError(
                "the name of an output is qualified, such as 'package.module.function'; "
                f"got {target!r}"
            )
        if owner := missing_in(target):
            raise OutputError(no_such(target, owner))
    elif isinstance(target, type) or not callable(target):
        raise OutputError(
            "an output is a function, a method or the qualified name of one; "
            f"got {target!r} of type {type(target).__qualname__}"
        )
    REGISTERED.add(target, Output(name_of(target), returns_none))


def last_names() -> frozenset[str]:
    """Return the names under which outputs are found in a module or a class."""
    return _OWN_NAMES | REGISTERED.last_names()


def of_callable(value: Any) -> Output | None:
    """Return what is known of a callable; ``None`` if it is not known to write."""
    while type(value) is partial:
        value = value.func
    found = REGISTERED.of_object(value)
    if found is not None:
        return found
    if type(value) in (MethodType, BuiltinMethodType):
        owner, name = value.__self__, value.__name__
        if owner is not None and not isinstance(owner, ModuleType):
            return of_method(owner, name)
    if not issubclass(type(value), (FunctionType, BuiltinMethodType, CACHED)):
        return None
    name = getattr(value, "__name__", None)
    for known in (*_FUNCTIONS, *REGISTERED.by_name):
        if known.rpartition(".")[2] == name and resolved(known) is value:
            return REGISTERED.by_name.get(known) or Output(known)
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
        of_one = REGISTERED.of_method(owner, namespace(base).get(name))
        found = _of_class(base, name) or of_one
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
    if f"{kind}.{name}" in REGISTERED.by_name:
        return REGISTERED.by_name[f"{kind}.{name}"]
    member = plain(namespace(base).get(name))
    return REGISTERED.of_object(member) if member is not None else None


def always_none(name: str) -> bool:
    """Return whether every method that is known under a name returns None."""
    ambiguous = ("log", "write", "print", "flush", "rule")  # of tensors, of anything
    return name not in ambiguous and any(name in methods for methods in _METHODS.values())


def level_of(owner: object, name: str, given: object = None) -> int | None:
    """Return the level of a method of a logger, or of an adapter, if that alone decides.

    ``given`` is the first argument, if it is known; ``log`` takes the level there.
    """
    kind = logging.LoggerAdapter if isinstance(owner, logging.LoggerAdapter) else logging.Logger
    if not isinstance(owner, kind) or name in getattr(owner, "__dict__", ()):
        return None
    for member in (name, "isEnabledFor"):
        if getattr(type(owner), member, None) is not getattr(kind, member, _FUNCTIONS):
            return None
    level = given if name == "log" else _LEVELS.get(name)
    return level if type(level) is int else None
