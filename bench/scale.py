"""Counts what one, two, four and more turns of each kind of break cost, in counts that do not vary.

`python -m bench.scale [KIND ...]` prints for each kind the nodes of the graphs, the graphs, the
traces and the Python calls of a first call. A kind grows as fast as its turns where these double
with the turns; what grows faster stands in `QUADRATIC`, with the reason.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.fx import GraphModule

import bcmend
from bench.python_calls import python_calls

#: The numbers of turns that are printed.
TURNS: Final = (1, 2, 4, 8, 16, 32)
WIDTH: Final = 4


class Turns(torch.nn.Module):
    """Takes and returns a tensor of shape (WIDTH, WIDTH), through a body for each of its layers.

    Args:
        turns: how many.
        body: takes this module, the tensor, the number of the turn and its layer.
    """

    def __init__(self, turns: int, body: Body) -> None:
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(turns))
        self.body, self.count, self.kept = body, 0, []  # type: ignore[var-annotated]

    def forward(self, x: Tensor) -> Tensor:
        for number, layer in enumerate(self.layers):
            x = self.body(self, x, number, layer)
        return x


Body = Callable[[Turns, Tensor, int, torch.nn.Module], Tensor]


def where(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        x = x * 2
    else:
        x = x - 1
    return x


def cond(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        x = layer(x).exp()
    else:
        x = layer(x).sin()
    return x


def prints(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    print(number, x.sum())
    return x + 1


def checks(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.isnan().any():
        raise ValueError("not a number")
    return x + 1


def counts(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        model.count += 1
    return x + 1


def appends(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        model.kept.append(x)
    return x + 1


def lists(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        model.kept.append(x.tolist())
    return x + 1


def numbers(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    size = int(x.abs().sum().item()) % 3 + 1
    return x + x.new_ones(size).sum()


def strides(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        x = x.t().contiguous().t()
    else:
        x = x + 1
    return x


def nested(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        if x.max() > 2:
            x = x * 2
        else:
            x = x * 3
    else:
        x = x - 1
    return x


def loops(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    while x.sum() < 10:
        x = x + 1
    return x / 2


def drops(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if torch.rand([]) < 0.5:
        x = layer(x)
    return x


def optional(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    other = x
    if x.sum() > 1000 + number:
        other = None  # type: ignore[assignment]
    return x + 1 if other is not None else x


def returns_early(model: Turns, x: Tensor, number: int, layer: torch.nn.Module) -> Tensor:
    if x.sum() > number:
        return layer(x)
    return x - 1


KINDS: Final[tuple[Body, ...]] = (
    where,
    cond,
    prints,
    checks,
    counts,
    appends,
    lists,
    numbers,
    strides,
    nested,
    loops,
    drops,
    optional,
    returns_early,
)

#: What grows faster than its turns, as their square at most. Sides whose results differ in strides
#: cannot be one value, since ``stride()`` and the form of each later result tell them apart: what
#: follows stands in both sides. Of each number of a list it is asked anew what it is computed from.
QUADRATIC: Final[tuple[Body, ...]] = (strides, lists)


@dataclass(frozen=True, slots=True)
class Counts:
    """What a first call is made of.

    Attributes:
        nodes: those of all graphs, with those inside choices and loops.
        graphs: how many the back end was given.
        traces: how often Dynamo began.
        calls: of Python functions, patching among them.
    """

    nodes: int
    graphs: int
    traces: int
    calls: int


def counted(body: Body, turns: int) -> Counts:
    """Count a first call in evaluation, without gradients."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    model, given = Turns(turns, body).eval(), torch.linspace(-1, 2, WIDTH * WIDTH)
    sizes: list[int] = []

    def back_end(graph: GraphModule, _inputs: Any) -> Any:
        inside = [each for each in graph.modules() if isinstance(each, GraphModule)]
        sizes.append(sum(len(each.graph.nodes) for each in inside))
        return graph

    def call() -> None:
        compiled = torch.compile(bcmend.patch(model), backend=back_end)
        compiled(given.reshape(WIDTH, WIDTH))

    try:
        with torch.no_grad(), contextlib.redirect_stdout(io.StringIO()):
            calls = python_calls(call)
        traces = len(bcmend.why(model).traces)
    finally:
        bcmend.unpatch()
    return Counts(sum(sizes), len(sizes), traces, calls)


def main(names: list[str]) -> None:
    """Print a row for each kind and number of turns."""
    shown = Table(title=f"First calls by the number of turns, torch {torch.__version__}")
    for heading in ("kind", "turns", "nodes", "graphs", "traces", "Python calls"):
        shown.add_column(heading, justify="left" if heading == "kind" else "right")
    for body in (each for each in KINDS if not names or each.__name__ in names):
        counted(body, 1)  # fills the caches
        for turns in TURNS:
            found = counted(body, turns)
            numbers_of_it = (turns, found.nodes, found.graphs, found.traces, found.calls)
            shown.add_row(body.__name__, *(f"{each:,}" for each in numbers_of_it))
    Console(width=100).print(shown)


if __name__ == "__main__":
    main(sys.argv[1:])
