"""bcmend: one graph from torch.compile, by rewriting bytecode.

``bcmend.patch(model)`` is all that a user has to know; see ``docs/`` for the rest.

pytest rewrites the asserts of packages that have a plugin, and warns of one that is imported before
it: PYTEST_DONT_REWRITE has it leave this module alone.
"""

from __future__ import annotations

import warnings
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcmend.api import (
        cache_key,
        compile,
        patch,
        patched,
        register_capture,
        register_output,
        report,
        unpatch,
        why,
    )
    from bcmend.errors import (
        BcmendError,
        CallError,
        CaptureError,
        ChecksDropped,
        MissingInTorch,
        NotPatched,
        OutputDropped,
        OutputError,
        PolicyError,
        TrialError,
        UnsupportedObject,
        UntestedTorch,
    )
    from bcmend.installation import install, uninstall
    from bcmend.policy import Policy
    from bcmend.reports.benchmark import Benchmark
    from bcmend.reports.explanation import Explanation
    from bcmend.reports.search_report import Why
    from bcmend.reports.site_report import Report
    from bcmend.reports.verdict import Verdict
    from bcmend.trials.benching import bench
    from bcmend.trials.explaining import explain
    from bcmend.trials.verifying import verify

__version__ = "0.2.0"

__all__ = [
    "BcmendError",
    "Benchmark",
    "CallError",
    "CaptureError",
    "ChecksDropped",
    "Explanation",
    "MissingInTorch",
    "NotPatched",
    "OutputDropped",
    "OutputError",
    "Policy",
    "PolicyError",
    "Report",
    "TrialError",
    "UnsupportedObject",
    "UntestedTorch",
    "Verdict",
    "Why",
    "__version__",
    "bench",
    "cache_key",
    "compile",
    "explain",
    "install",
    "patch",
    "patched",
    "register_capture",
    "register_output",
    "report",
    "uninstall",
    "unpatch",
    "verify",
    "why",
]

#: Names of version 0.2, and what they are called now.
_OLD_NAMES = {"register_substitute": "register_capture", "SubstituteError": "CaptureError"}

# Names are loaded on first use, since reading and analysing code needs no torch: functions from
# bcmend.api, classes from bcmend.errors but for these.
_HOMES = {
    "Benchmark": "bcmend.reports.benchmark",
    "Explanation": "bcmend.reports.explanation",
    "Policy": "bcmend.policy",
    "Report": "bcmend.reports.site_report",
    "Verdict": "bcmend.reports.verdict",
    "Why": "bcmend.reports.search_report",
    "bench": "bcmend.trials.benching",
    "explain": "bcmend.trials.explaining",
    "install": "bcmend.installation",
    "uninstall": "bcmend.installation",
    "verify": "bcmend.trials.verifying",
}


def __getattr__(name: str) -> Any:
    if name in _OLD_NAMES:
        warnings.warn(
            f"bcmend.{name} is bcmend.{_OLD_NAMES[name]} now", DeprecationWarning, stacklevel=2
        )
        name = _OLD_NAMES[name]
    if name not in __all__:
        raise AttributeError(f"module 'bcmend' has no attribute {name!r}")
    home = _HOMES.get(name, "bcmend.api" if name.islower() else "bcmend.errors")
    return getattr(import_module(home), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
