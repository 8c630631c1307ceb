"""What one program is: a few lines, arguments of its calls, the hooks that torch has to call."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

Arguments = tuple[Any, ...]
Inputs = Callable[[], Sequence[Arguments]]
#: Returns what to call of a program that was patched, given the options of ``torch.compile``.
Way = Callable[[Any, dict[str, Any]], Callable[..., Any]]


@dataclass(frozen=True, slots=True)
class Program:
    """One small program.

    Attributes:
        name: the name of its factory.
        proves: what compiling it has to call: hooks, rows and handlers by their targets, or by
            their purposes where each release has other targets; with a colon and what the call is
            about, as in "TensorVariable.call_method:tolist", where many things go through one
            (``counting``).
        make: returns the program, a function or a module, with state of its own.
        inputs: builds the arguments of all calls, which take both sides of a branch.
        backend: the back end that it takes.
        fullgraph: whether it is captured as one graph.
        training: whether gradients flow back from the result.
        way: how it is compiled.
    """

    name: str
    proves: tuple[str, ...]
    make: Callable[[], Any]
    inputs: Inputs
    backend: str
    fullgraph: bool
    training: bool
    way: Way

    def claims(self, target: str, purpose: str) -> bool:
        """Return whether it has to call what has this target and this purpose."""
        return purpose in self.proves or any(
            each == target or each.startswith(f"{target}:") for each in self.proves
        )


def compiled(program: Any, options: dict[str, Any]) -> Callable[..., Any]:
    """Compile the program itself."""
    found: Callable[..., Any] = torch.compile(program, **options)
    return found


def signs() -> list[Arguments]:
    """Three calls with one vector: of positive sum, of negative sum, of mixed signs."""
    return [(torch.tensor(each),) for each in ([1.0, 2, 3], [-1.0, -2, -3], [4.0, -1, 0.5])]


def beside(*makes: Callable[[], Any]) -> Inputs:
    """Return the calls of ``signs`` with more arguments, each of which is made anew."""
    return lambda: [(*each, *(make() for make in makes)) for each in signs()]


def program(
    *proves: str,
    inputs: Inputs = signs,
    backend: str = "eager",
    fullgraph: bool = True,
    training: bool = False,
    way: Way = compiled,
) -> Callable[[Callable[[], Any]], Program]:
    """Make a program of the factory that is decorated; see ``Program``."""

    def declare(make: Callable[[], Any]) -> Program:
        return Program(make.__name__, proves, make, inputs, backend, fullgraph, training, way)

    return declare


def programs_among(values: Iterable[object]) -> tuple[Program, ...]:
    """Return the programs among the values of a module, in its order."""
    return tuple(value for value in values if isinstance(value, Program))
