"""The description of the running torch: what of it the hooks, the models and ``compat`` rely on.

To be made when every hook is declared and none is in place. Only what bcmend uses is in it.
"""

from __future__ import annotations

import ast
import enum
import functools
import gc
import importlib
import pkgutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FunctionType, ModuleType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, hooks, operators
from bcmend.dynamo.contract import written
from bcmend.dynamo.contract.recorded import Facts
from bcmend.dynamo.models import methods, stable_names

#: Sections of a description.
TARGETS, HANDLERS, CLASSES, FUNCTIONS, SETTINGS = (
    *("targets", "handlers", "classes", "functions", "settings"),
)
_MODELS: Final = compat.VariableTracker.__module__.rpartition(".")[0]
#: Modules whose classes are Dynamo's own, so that new ones beside them matter.
_OF_DYNAMO: Final = (_MODELS.rpartition(".")[0] + ".", compat.Guard.__module__)
_TABLES: Final = ("tp_getset", "tp_members", methods.METHOD_TABLE)

_Work = tuple[str, str, str, Callable[[], Any]]  # file, section, subject, what makes the fact


def describe() -> Facts:
    """Return the facts of the running torch."""
    found: dict[str, dict[str, Any]] = {
        each: {} for each in (TARGETS, HANDLERS, CLASSES, FUNCTIONS, SETTINGS)
    }
    work = [*_targets(), *_handlers(), *_classes(), *_functions()]
    with _without_collections():
        for _, section, subject, make in sorted(work, key=lambda each: each[:3]):
            found[section][subject] = make()
    found[SETTINGS] = dict(_settings())
    return found


@contextmanager
def _without_collections() -> Iterator[None]:
    """Collect no garbage in a block: looking for it among the trees doubles the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def _targets() -> Iterator[_Work]:
    for hook in (*hooks.REGISTRY.hooks, *hooks.REGISTRY.watches):
        if hook.is_missing:
            continue
        defined_by, found = _definition(hook.owner, hook.name)
        function = written.function_behind(hooks.original(found))
        yield (
            *(written.file_of(function), TARGETS, hook.target),
            functools.partial(_target, defined_by, function),
        )


def _target(defined_by: str, function: Any) -> dict[str, str]:
    return {
        "by": defined_by,
        "parameters": written.parameters(function),
        "body": written.body(function),
    }


def _definition(owner: Any, name: str) -> tuple[str, Any]:
    """Return where a method or a function is defined, and what stands there."""
    for each in owner.__mro__ if isinstance(owner, type) else ():
        if name in vars(each):
            return f"{each.__module__}.{each.__qualname__}", vars(each)[name]
    found = getattr(owner, name, None)
    return str(getattr(found, "__module__", "builtins")), found


def _handlers() -> Iterator[_Work]:
    """Yield what stands in Dynamo's tables where the registry puts a row."""
    for row in hooks.REGISTRY.rows:
        if row.table == operators.OPERATORS:
            continue  # those of bcmend
        present = operators.table(row.table).get(row.key, None)
        if row.table == operators.FUNCTIONS:
            present = hooks.original(present)
        function = getattr(present, "func", present)
        make = functools.partial(_handler, function)
        yield written.file_of(function), HANDLERS, row.target, make


def _handler(function: Any) -> str:
    if function is None:
        return ""
    return f"{written.parameters(function)}: {written.body(function)}"


def _classes() -> Iterator[_Work]:
    listed = [getattr(compat, name) for names in compat.PURPOSES.values() for name in names]
    found = {each.__name__: each for each in listed if isinstance(each, type)}
    for each in _modules():
        for kind in vars(each).values():
            if isinstance(kind, type) and kind.__name__ in stable_names.NAMES:
                found.setdefault(kind.__name__, kind)
    for mutation in filter(_is_described, _below(compat.ValueMutationNew.__mro__[-2])):
        found.setdefault(mutation.__name__, mutation)
    names = _used_methods()
    for name, kind in found.items():
        file = getattr(importlib.import_module(kind.__module__), "__file__", "")
        yield file, CLASSES, name, functools.partial(_class, kind, file, names)


def _is_described(kind: type) -> bool:
    """Return whether one of Dynamo's modules defines a class; some are made while it traces."""
    return any(
        kind.__module__ == each.__name__ and vars(each).get(kind.__name__) is kind
        for each in _modules()
    )


@functools.cache
def _modules() -> list[ModuleType]:
    """Return Dynamo's modules of which classes are described, in the same order always."""
    models = importlib.import_module(_MODELS)
    names = {f"{_MODELS}.{each.name}" for each in pkgutil.iter_modules(models.__path__)}
    names.update(each.origin for each in compat.symbols() if each.origin.startswith(_OF_DYNAMO))
    names.update((compat.Guard.__module__, compat.create_instruction.__module__))
    return [importlib.import_module(each) for each in sorted(names)]


def _below(kind: Any) -> list[type]:
    return [kind, *(each for heir in kind.__subclasses__() for each in _below(heir))]


def _used_methods() -> frozenset[str]:
    """Return the names of methods that bcmend replaces, overrides or calls."""
    texts = (value for name, value in vars(methods).items() if name.isupper())
    replaced = (each for each in texts if isinstance(each, str))
    return frozenset[str]().union(replaced, ["__init__"], *stable_names.NAMES.values())


def _class(kind: type, file: str, names: frozenset[str]) -> dict[str, Any]:
    own = vars(kind)
    functions = {
        name: written.function_behind(hooks.original(own[name])) for name in names & {*own}
    }
    found = {
        "module": kind.__module__,
        "methods": {
            name: written.parameters(function)
            for name, function in sorted(functions.items())
            if isinstance(function, FunctionType)
        },
    }
    if issubclass(kind, enum.Enum):
        found["members"] = [each.name for each in kind]
    elif kind.__module__.startswith(_OF_DYNAMO) or kind is compat.ShapeEnv:
        found["bases"] = [each.__name__ for each in kind.__bases__]
        found["fields"] = written.fields(kind, file)
        below = kind.__subclasses__()  # what other modules define depends on who has loaded them
        found["subclasses"] = sorted({each.__name__ for each in below if _is_described(each)})
        found["tables"] = {each: sorted(own[each]) for each in _TABLES if each in own}
    return {name: fact for name, fact in found.items() if fact}


def _functions() -> Iterator[_Work]:
    for symbol in compat.symbols():
        function = getattr(compat, symbol.name)
        if isinstance(function, FunctionType):
            make = functools.partial(_function, function)
            yield "", FUNCTIONS, symbol.name, make


def _function(function: Any) -> str:
    return f"{function.__module__}({written.parameters(function)})"


def _settings() -> Iterator[tuple[str, str]]:
    """Yield each setting of Dynamo with its default, as the source has it where it may vary."""
    config: Any = compat.dynamo_config
    source = written.assignments(config.__file__)
    for name, entry in config._config.items():
        yield name, _default(entry.default, source.get(name))


def _default(value: Any, node: ast.expr | None) -> str:
    if node is None:
        return repr(value)
    text = ast.unparse(node)
    given = [each.value for each in getattr(node, "keywords", ()) if each.arg == "default"]
    try:
        is_as_written = ast.literal_eval(given[0] if given else node) == value
    except ValueError:  # it depends on the environment or the platform
        return text
    return text if is_as_written else repr(value)


def versions() -> tuple[str, str]:
    """Return the version of the running torch without its build, and its commit."""
    return torch.__version__.partition("+")[0], str(torch.version.git_version)
