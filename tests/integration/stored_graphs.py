"""Compiles mended programs with Inductor, each a kind of graph, and prints what the caches held.

``python -m tests.integration.stored_graphs [--around DTYPE] NAME...`` prints a JSON object: for
each program, in evaluation and, where it has parameters, in training, the counters of AOTAutograd's
cache, and whether the result is that of eager execution. ``--around`` has autocast around all.
"""

from __future__ import annotations

import argparse
import contextlib
import copy
import io
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

import numpy
import torch
from torch import Tensor, nn
from torch._dynamo.utils import counters

import bcmend

Program = tuple[nn.Module, Tensor]
PROGRAMS: Final[dict[str, Callable[[], Program]]] = {}


def _program(make: Callable[[], Program]) -> Callable[[], Program]:
    PROGRAMS[make.__name__] = make
    return make


class _Body(nn.Module):
    """A module with two layers whose ``forward`` is a function of both and an input."""

    def __init__(self, body: Callable[[Any, Tensor], Any], layers: int = 0) -> None:
        super().__init__()
        self.body, self.seen = body, 0
        self.layers = nn.ModuleList(nn.Linear(8, 8) for _ in range(layers))

    def forward(self, x: Tensor) -> Any:
        return self.body(self, x)


@_program
def select() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        y = x * 2 if x.sum() > 0 else x - 1
        return y + 1

    return _Body(body), torch.ones(4, 8)


@_program
def choice() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = self.layers[0](x).exp()
        else:
            x = self.layers[1](x).sin()
        return x + 1

    return _Body(body, 2), torch.ones(64, 8)


@_program
def check_and_output() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        if x.isnan().any():
            raise ValueError("not a number")
        print("mean", x.mean())
        return x * 3

    return _Body(body), torch.ones(4, 8)


@_program
def number() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        count = int(x.sum().item())
        return x.new_zeros(count).sum() + x * 5

    return _Body(body), torch.ones(4, 8)


@_program
def loop() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        while x.sum() < 100:
            x = x * 2
        return x

    return _Body(body), torch.ones(4, 8)


@_program
def loop_over_rows() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        found = []
        for high, wide in (x[:2, :2].abs() + 3).long().tolist():
            at = torch.arange(high).unsqueeze(1).expand(-1, wide)
            found.append(at.flatten() * 2)
        return torch.cat(found).sum() + x

    return _Body(body), torch.ones(4, 8)


@_program
def loop_of_numbers() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        total = x.new_zeros(())
        for turn in range(int(x.sum().item())):
            total = total + x[turn % 4].sum() * turn
        return total + x

    return _Body(body), torch.ones(4, 8)


@_program
def layer_drop() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        if torch.rand([]) < 0.5:
            x = self.layers[0](x)
        return x

    return _Body(body, 1), torch.ones(4, 8)


@_program
def draw_of_the_host() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        return x * 6 if numpy.random.rand() < 0.5 else x

    return _Body(body), torch.ones(4, 8)


@_program
def autocast() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            x = self.layers[0](x) if x.sum() > 0 else self.layers[0](x) * 2
        return x.float()

    return _Body(body, 1), torch.ones(4, 8)


@_program
def experts() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        result = torch.zeros_like(x)
        chosen = self.layers[0](x).argmax(-1) % 2
        for position, expert in enumerate(self.layers):
            (rows,) = torch.where(chosen == position)
            if rows.shape[0] > 0:
                result = result.index_add(0, rows, expert(x[rows]))
        return result

    return _Body(body, 2), torch.linspace(-1, 1, 80).reshape(10, 8)


@_program
def state() -> Program:
    def body(self: Any, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.seen += 1
            self.last = x * 2
        return x * 7

    return _Body(body), torch.ones(4, 8)


def _called(module: nn.Module, x: Tensor, *, training: bool) -> list[Tensor]:
    """Call a module, and go backward in training; return its result and gradients."""
    torch.manual_seed(0)
    numpy.random.seed(0)
    with contextlib.redirect_stdout(io.StringIO()):
        result = module(x)
    if not training:
        return [result]
    result.sum().backward()
    return [result, *(each.grad for each in module.parameters() if each.grad is not None)]


def _found(name: str, *, training: bool) -> dict[str, Any]:
    """Return the counters of a program, and whether it is equal to eager execution."""
    torch._dynamo.reset()
    counters.clear()
    torch.manual_seed(1)
    module, x = PROGRAMS[name]()
    expected = _called(copy.deepcopy(module), x, training=training)
    bcmend.patch(module)
    compiled: Any = torch.compile(module, fullgraph=True)
    found = _called(compiled, x, training=training)
    prefix = "autograd_cache_"
    cached = {
        each.removeprefix(prefix): count
        for each, count in counters["aot_autograd"].items()
        if each.startswith(prefix)
    }
    pairs = zip(found, expected, strict=True)
    is_equal = all(torch.allclose(one, other, atol=1e-2) for one, other in pairs)
    return {"equal": is_equal, **cached}


def _modes(names: list[str]) -> Iterator[tuple[str, bool]]:
    for name in names:
        yield name, False
        if list(PROGRAMS[name]()[0].parameters()):
            yield name, True


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--around", default="")
    parser.add_argument("names", nargs="*", default=list(PROGRAMS))
    given = parser.parse_args()
    outside: Any = contextlib.nullcontext()
    if given.around:
        outside = torch.autocast("cpu", dtype=getattr(torch, given.around))
    with outside:
        print(
            json.dumps(
                {
                    f"{name}-{'training' if training else 'evaluation'}": _found(
                        name, training=training
                    )
                    for name, training in _modes(given.names)
                }
            )
        )


if __name__ == "__main__":
    main()
