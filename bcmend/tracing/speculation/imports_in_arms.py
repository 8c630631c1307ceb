"""Modules that an arm would load: Dynamo imports while it traces, whichever side is taken."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from importlib.util import resolve_name
from typing import Any, Final

from bcmend.dynamo import compat, frames, hooks
from bcmend.tracing.numbers.size_questions import being_traced
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.refusal import Refusal

#: Dynamo's module that runs the instruction; its ``__import__`` is Python's.
_MODULE: Final = sys.modules[compat.InstructionTranslatorBase.__module__]


@hooks.around(_MODULE, "__import__", "modules that an arm would load", gate=None)
def _import(
    inner: Any,
    name: str,
    globals: Mapping[str, Any],
    fromlist: tuple[str, ...] | None,
    level: int,
) -> Any:
    tx = being_traced()
    if tx is not None and frames.covers(tx) and nesting_limits.is_in_an_arm(tx):
        missing = not_loaded(name, globals, fromlist, level)
        if missing:
            raise Refusal("arm-effects", f"the module {missing[0]} is imported")
    return inner(name, globals=globals, fromlist=fromlist, level=level)


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
