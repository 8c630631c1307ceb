"""bcmend: one graph from torch.compile, by rewriting bytecode.

``bcmend.patch(model)`` is all that a user has to know; see ``docs/`` for the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcmend.api import (
        compile,
        patch,
        patched,
        register_output,
        register_substitute,
        report,
        unpatch,
    )
    from bcmend.errors import (
        BcmendError,
        NotPatched,
        OutputDropped,
        OutputError,
        PolicyError,
        SubstituteError,
        UnsupportedObject,
    )
    from bcmend.policy import Policy
    from bcmend.site_report import Report

__version__ = "0.1.0"

__all__ = [
    "BcmendError",
    "NotPatched",
    "OutputDropped",
    "OutputError",
    "Policy",
    "PolicyError",
    "Report",
    "SubstituteError",
    "UnsupportedObject",
    "__version__",
    "compile",
    "patch",
    "patched",
    "register_output",
    "register_substitute",
    "report",
    "unpatch",
]

# Loaded on first use: reading and analysing code needs no torch.
_HOMES = {
    "compile": "bcmend.api",
    "patch": "bcmend.api",
    "patched": "bcmend.api",
    "register_output": "bcmend.api",
    "register_substitute": "bcmend.api",
    "report": "bcmend.api",
    "unpatch": "bcmend.api",
    "BcmendError": "bcmend.errors",
    "NotPatched": "bcmend.errors",
    "OutputDropped": "bcmend.errors",
    "OutputError": "bcmend.errors",
    "PolicyError": "bcmend.errors",
    "SubstituteError": "bcmend.errors",
    "UnsupportedObject": "bcmend.errors",
    "Policy": "bcmend.policy",
    "Report": "bcmend.site_report",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'bcmend' has no attribute {name!r}")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted(set(globals()) | set(_HOMES))
