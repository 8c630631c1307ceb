"""What is looked at when the trace of a frame is complete.

Dynamo calls the finalizers of a graph when it has made one. A frame in which no operation is left
has no graph, but it may have output, and change what its output shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from torch._dynamo.output_graph import OutputGraph

from bcmend.runtime.per_trace import kept

__all__ = ["at_end", "install"]

Examine = Callable[[], None]


def at_end(output: Any, examine: Examine) -> None:
    """Have ``examine`` called when the trace of ``output`` is complete; it may trace again."""
    waiting = _waiting(output)
    if not waiting:
        output.register_finalizer_fns.append(lambda module: _call_all(output))
    waiting.append(examine)


def _waiting(output: Any) -> list[Examine]:
    return kept(output, "at_end", list)


def _call_all(output: Any) -> None:
    waiting = _waiting(output)
    found = list(waiting)
    waiting.clear()
    for examine in found:
        examine()


_DYNAMOS_COMPILE: Final = OutputGraph.compile_subgraph


def _compile(self: Any, *arguments: Any, **named: Any) -> Any:
    result = _DYNAMOS_COMPILE(self, *arguments, **named)
    _call_all(self)  # where there is a graph, its finalizers have called them
    return result


def install() -> None:
    """Have frames without a graph examined too."""
    OutputGraph.compile_subgraph = _compile  # type: ignore[method-assign]
