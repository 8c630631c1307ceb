"""What bcmend keeps for the length of one trace, on ``OutputGraph``, and does at its end."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from torch._dynamo.output_graph import OutputGraph

__all__ = ["at_the_end", "install", "kept"]

T = TypeVar("T")


def kept(output: Any, name: str, make: Callable[[], T]) -> T:
    """Return what the trace of ``output`` keeps under ``name``; made when first asked for."""
    name = f"_bcmend_{name}"
    if not hasattr(output, name):
        setattr(output, name, make())
    found: T = getattr(output, name)
    return found


@dataclass(slots=True)
class _End:
    """What is to be done when a trace is complete."""

    steps: list[Callable[[], None]] = field(default_factory=list)

    def come(self) -> None:
        steps, self.steps = self.steps, []
        for step in steps:
            step()


def at_the_end(output: Any, step: Callable[[], None]) -> None:
    """Have ``step`` called when the trace is complete, before its graph is compiled, if it has one.

    Dynamo's own finalizers are not called where the graph is empty.
    """
    end = kept(output, "end", _End)
    if not end.steps:
        output.register_finalizer_fns.append(lambda module: end.come())
    end.steps.append(step)


_DYNAMOS_END: Final = OutputGraph.compile_subgraph


def _compile_subgraph(output: OutputGraph, *arguments: Any, **keywords: Any) -> Any:
    found = _DYNAMOS_END(output, *arguments, **keywords)
    kept(output, "end", _End).come()
    return found


def install() -> None:
    """Have what is to be done at the end of a trace done for empty graphs too."""
    OutputGraph.compile_subgraph = _compile_subgraph  # type: ignore[assignment, method-assign]
