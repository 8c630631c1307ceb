"""What Dynamo itself does while it traces an arm, whichever side is taken.

It loads modules, and it makes classes, which their bases and metaclasses notice.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from importlib.util import resolve_name
from typing import Any, Final

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods
from bcmend.tracing.numbers.size_questions import translator_of_this_thread
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.refusal import Refusal

#: Dynamo's module that runs the instruction; its ``__import__`` is Python's.
_MODULE: Final = sys.modules[compat.InstructionTranslatorBase.__module__]


@hooks.around(_MODULE, methods.IMPORT, "modules that an arm would load", gate=None)
def _import(
    inner: Any,
    name: str,
    globals: Mapping[str, Any],
    fromlist: tuple[str, ...] | None,
    level: int,
) -> Any:
    if _is_in_an_arm(translator_of_this_thread()):
        missing = not_loaded(name, globals, fromlist, level)
        if missing:
            raise Refusal("arm-effects", f"the module {missing[0]} is imported")
    return inner(name, globals=globals, fromlist=fromlist, level=level)


@hooks.around(compat.BuiltinVariable, methods.CALL_BUILD_CLASS, "classes that an arm would make")
def _build_class(inner: Any, variable: Any, tx: compat.Tracer, *args: Any, **kwargs: Any) -> Any:
    _require_outside(tx)
    return inner(variable, tx, *args, **kwargs)


@hooks.around(
    compat.BuiltinVariable,
    methods.MAKE_HANDLER,
    "classes that an arm would make by calling `type`",
    gate=None,
)
def _make_handler(inner: Any, function: Any, kinds: Sequence[type], has_keywords: bool) -> Any:
    handler = inner(function, kinds, has_keywords)
    if function is not type or len(kinds) != _PARTS_OF_A_CLASS:
        return handler

    def make_class(tx: compat.Tracer, args: Any, kwargs: Any) -> Any:
        _require_outside(tx)
        return handler(tx, args, kwargs)

    return make_class


_PARTS_OF_A_CLASS: Final = 3


def _require_outside(tx: compat.Tracer) -> None:
    if _is_in_an_arm(tx):
        raise Refusal("arm-effects", "a class is made")


def _is_in_an_arm(tx: compat.Tracer | None) -> bool:
    return tx is not None and frames.covers(tx) and nesting_limits.is_in_an_arm(tx)


def not_loaded(
    name: str, names: Mapping[str, Any], wanted: tuple[str, ...] | None, level: int
) -> list[str]:
    """Return the modules that an import would load, for they are not loaded yet."""
    full = name
    if level:
        package = names.get("__package__") or str(names.get("__name__", "")).rpartition(".")[0]
        full = resolve_name("." * level + name, package)
    if full not in sys.modules:
        return [full]
    module = sys.modules[full]
    if not hasattr(module, "__path__"):
        return []  # no package: what is asked of it is there, or the import fails
    inside = [each for each in wanted or () if each != "*" and not hasattr(module, each)]
    return [f"{full}.{each}" for each in inside if f"{full}.{each}" not in sys.modules]
