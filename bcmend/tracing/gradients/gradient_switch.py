"""Runs a graph with inputs whose gradients depend on the sides that it has taken.

They enter the graph by one identity. Its backward looks at the predicates, which the graph returns
behind its other results, and gives ``None`` where no path is live. It reads them once, together.

Autograd calls the hooks of a tensor with ``None``, too. So one that has hooks gets zeros.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

import torch

from bcmend.dynamo.values import has_hooks
from bcmend.tracing.gradients.gradient_paths import Routes


class _Taken:
    """The sides that one run of a graph has taken; known when the graph has run."""

    __slots__ = ("_done", "_hooked", "_inputs", "_live", "_routes", "_truths")

    def __init__(self, routes: Routes, inputs: Sequence[torch.Tensor]) -> None:
        self._routes = routes
        self._inputs = [weakref.ref(each) for each in inputs]
        self._hooked = [has_hooks(each) for each in inputs]
        self._truths: list[torch.Tensor] | None = None  # until the graph has run
        self._done: list[torch.cuda.Event] = []
        self._live: tuple[bool, ...] | None = None

    def fill(self, truths: Sequence[torch.Tensor]) -> None:
        """Take the predicates. Those on a GPU are copied while the program goes on."""
        self._truths = []
        for each in truths:
            if each.is_cuda:
                self._truths.append(each.to("cpu", non_blocking=True))
                event = torch.cuda.Event()  # type: ignore[no-untyped-call]
                event.record(torch.cuda.current_stream(each.device))
                self._done.append(event)
            else:
                self._truths.append(each)

    def passed_on(self, gradients: Sequence[torch.Tensor | None]) -> Sequence[torch.Tensor | None]:
        """Return the gradients of the inputs, without those that no live path leads to."""
        if self._live is None:
            if self._truths is None:
                return gradients  # the graph itself goes backward
            for event in self._done:
                event.synchronize()
            values = tuple(value for each in self._truths for value in each.tolist())
            self._live = self._routes.live(values)
            self._truths, self._done = [], []
        return [
            gradient if is_live or hooked or has_hooks(given()) else None
            for gradient, is_live, hooked, given in zip(
                gradients, self._live, self._hooked, self._inputs, strict=True
            )
        ]


class _Enter(torch.autograd.Function):
    """The identity by which inputs enter a graph."""

    @staticmethod
    def forward(context: Any, taken: _Taken, *inputs: torch.Tensor) -> Any:
        context.taken = taken
        context.set_materialize_grads(False)
        # What is returned shares memory and version with the input, and is no view to autograd.
        return tuple(each.detach() for each in inputs)

    @staticmethod
    def backward(context: Any, *gradients: torch.Tensor | None) -> Any:
        return None, *context.taken.passed_on(gradients)


def switched(
    graph: Callable[..., Any],
    places: Sequence[int],
    apart: Sequence[int],
    routes: Routes,
    more: int,
) -> Callable[..., Any]:
    """Return ``graph`` for calls without its last ``more`` results, the predicates.

    The inputs at ``places`` get no gradient where ``routes`` has no live path for them, and those
    at ``apart`` none at all: autograd would go on from those, through a history that may be gone.
    """

    def run(*inputs: Any) -> Any:
        is_captured = torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
        if is_captured or not torch.is_grad_enabled():
            results = graph(*inputs)
            return results[: len(results) - more]
        given, plain = list(inputs), [inputs[place] for place in places]
        for place in apart:
            given[place] = inputs[place].detach()
        taken = _Taken(routes, plain)
        entered = _Enter.apply(taken, *plain) if plain else ()  # type: ignore[no-untyped-call]
        for place, each in zip(places, entered, strict=True):
            given[place] = each
        results = graph(*given)
        results, truths = results[: len(results) - more], results[len(results) - more :]
        taken.fill(truths)
        return results

    return run
