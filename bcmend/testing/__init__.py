"""Assertions about what is compiled, for tests; `bcmend.testing.plugin` has them for pytest.

Importing this imports no torch: the functions are loaded on first use.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from bcmend.testing.assertions import assert_one_graph, assert_same_as_eager, graph_breaks

__all__ = ["assert_one_graph", "assert_same_as_eager", "graph_breaks"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'bcmend.testing' has no attribute {name!r}")
    from bcmend.testing import assertions

    return getattr(assertions, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
