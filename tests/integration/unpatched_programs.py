"""Compiles programs that were never patched and prints all that can be seen of it.

``python unpatched_programs.py`` runs them on torch alone; with the argument ``patched`` another
model is patched before and compiled again between any two of them.
"""

from __future__ import annotations

import io
import sys
import traceback
import warnings
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any

import torch
from torch import Tensor, nn

X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 4.0, -1.0]])
PROGRAMS: dict[str, tuple[Callable[..., Any], list[tuple[Any, ...]]]] = {}
counter = 0


def program(*calls: tuple[Any, ...]) -> Callable[[Any], Any]:
    def add(function: Any) -> Any:
        PROGRAMS[function.__name__] = (function, list(calls) or [(X,), (-X,), (X[:1],)])
        return function

    return add


def helper(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * 2
    return x - 1


@program()
def branch(x: Tensor) -> Tensor:
    return helper(x + 1) * 3


@program()
def guard_that_raises(x: Tensor) -> Tensor:
    if (x < 0).all():
        raise ValueError("all negative", x.shape)
    return x.sqrt()


@program()
def output(x: Tensor) -> Tensor:
    print("sum", x.sum().item())
    warnings.warn("about to add", stacklevel=2)
    return x + x.amax()


@program()
def numbers(x: Tensor) -> Any:
    n = x.sum().item()
    return x * n, int(x.abs().amax().item()), n > 0


@program()
def loop(x: Tensor) -> Tensor:
    steps = 0
    while x.abs().sum() > 1 and steps < 4:
        x, steps = x / 2, steps + 1
    return x * steps


@program()
def indexing(x: Tensor) -> Tensor:
    y = x.clone()
    y[x > 0] = 0.0
    return y[y.sum(1) < 0], x.nonzero()


@program()
def changed_globals(x: Tensor) -> Tensor:
    global counter
    counter += 1
    if counter > 2:
        return x + counter
    return x


@program()
def containers(x: Tensor) -> dict[str, Any]:
    found: dict[str, list[Tensor]] = {"rows": []}
    for row in x:
        found["rows"].append(row.sin())
        if any(bool(v) for v in row > 2):
            found["last"] = [row]
    return found


@program((X, 3), (X, 4), (X, 5), (X, "no"))
def wrong_argument(x: Tensor, times: Any) -> Tensor:
    return x.reshape(-1)[: times * 1] + torch.ones(times)


@program()
def shape_error(x: Tensor) -> Tensor:
    return x @ torch.ones(5, 2)


@program()
def caught(x: Tensor) -> Tensor:
    try:
        with torch.no_grad():
            return helper(x) @ torch.ones(5, 2)
    except RuntimeError as error:
        return x + len(str(error).split())


@program()
def random_numbers(x: Tensor) -> Tensor:
    torch.manual_seed(3)
    y = torch.dropout(x, 0.5, True)
    return torch.where(torch.rand(1) > 0.5, y, x)


@program()
def context_managers(x: Tensor) -> Tensor:
    with torch.autocast("cpu", dtype=torch.bfloat16), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return helper(x @ x.T)


@program()
def unsupported_call(x: Tensor) -> Tensor:
    return x + len(repr(sys._getframe(0).f_code.co_name)) + id(x) * 0


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * 2

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        return gradient * 2


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.linear, self.drop = nn.Linear(3, 3), nn.Dropout(0.1)
        self.register_buffer("seen", torch.zeros(1))

    def forward(self, x: Tensor) -> Tensor:
        self.seen += 1
        y = self.drop(self.linear(x))
        if torch.isnan(y).any():
            raise RuntimeError("nan")
        y = Double.apply(y)
        self.last = y.detach()
        return y if y.sum() > 0 else y.tanh()


@program()
def module(x: Tensor) -> Tensor:
    torch.manual_seed(1)
    net = NET
    net.zero_grad()
    y = net(x)
    y.sum().backward()
    return y, net.linear.weight.grad, net.seen


NET = Net()


class Other(nn.Module):
    """The model that is patched: branch, guard, output, loop, number and random numbers."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = torch.dropout(x, 0.5, True) * 2
        print("other", x.sum())
        if x.isnan().any():
            raise ValueError("nan")
        for _ in range(2):
            if x.abs().sum() < 1:
                break
            x = x / 2
        return x + x.amax().item()


def compile_patched(graphs: list[Any]) -> Callable[..., Any]:
    """Return the patched model, compiled by a back end that collects its graphs."""
    import bcmend

    def backend(graph: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., Any]:
        graphs.append(graph)
        return graph.forward

    model = Other()
    bcmend.patch(model)
    return torch.compile(model, backend=backend, fullgraph=True)


def report(name: str, fullgraph: bool, sink: Callable[[str], Any]) -> None:
    global counter
    counter = 0
    function, calls = PROGRAMS[name]
    torch._dynamo.reset()

    def backend(graph: torch.fx.GraphModule, examples: list[Tensor]) -> Callable[..., Any]:
        sink(graph.print_readable(print_output=False, include_stride=True, include_device=True))
        sink(repr([(type(e).__name__, getattr(e, "shape", e)) for e in examples]))
        return graph.forward

    compiled = torch.compile(function, backend=backend, fullgraph=fullgraph)
    for given in calls:
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                sink(f"result {compiled(*given)!r}")
        except Exception:
            sink(traceback.format_exc())
        sink(repr([(str(each.message), each.filename, each.lineno) for each in warned]))


def main() -> None:
    graphs: list[Any] = []
    other = compile_patched(graphs) if "patched" in sys.argv else None
    for name in PROGRAMS:
        for fullgraph in (False, True):
            if other is not None:
                torch._logging.set_logs()
                torch._dynamo.reset()
                graphs.clear()
                with redirect_stdout(io.StringIO()) as shown:
                    other(X)
                assert len(graphs) == 1 and shown.getvalue()
            torch._logging.set_logs(graph_breaks=True, guards=True, recompiles=True)
            print(f"=== {name} {fullgraph}")
            print(f"=== {name} {fullgraph}", file=sys.stderr)
            report(name, fullgraph, print)


if __name__ == "__main__":
    main()
