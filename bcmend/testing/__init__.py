"""Assertions about what is compiled, for tests; `bcmend.testing.plugin` has them for pytest.

Importing this imports no torch: the functions are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcmend.knowledge.domains import (
        Domain,
        Values,
        arrays,
        constants,
        domain,
        given,
        made,
        made_tensors,
        read,
        tensors,
    )
    from bcmend.testing.assertions import (
        assert_one_graph,
        assert_same_as_eager,
        check_capture,
        graph_breaks,
    )

__all__ = [
    "Domain",
    "Values",
    "arrays",
    "assert_one_graph",
    "assert_same_as_eager",
    "check_capture",
    "constants",
    "domain",
    "given",
    "graph_breaks",
    "made",
    "made_tensors",
    "read",
    "tensors",
]

_OF_ASSERTIONS = ("assert_one_graph", "assert_same_as_eager", "check_capture", "graph_breaks")


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bcmend.testing' has no attribute {name!r}")
    if name in _OF_ASSERTIONS:
        from bcmend.testing import assertions

        return getattr(assertions, name)
    from bcmend.knowledge import domains

    return getattr(domains, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
