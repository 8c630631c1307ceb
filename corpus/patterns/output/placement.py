"""Output in arms, loops, functions and modules."""

from __future__ import annotations

import functools
import logging
import pprint
import sys
import warnings
from collections import namedtuple
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from corpus.patterns.pattern import (
    COND,
    NO_MERGE,
    OUTPUT,
    WHERE,
    pairs,
    pattern,
    patterns_among,
    signs,
)

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@pattern(pairs, NO_MERGE, OUTPUT, training=False)
def truth_number_tested_and_printed() -> Program:
    def program(x: Tensor, y: Tensor) -> tuple[Tensor, float]:
        number = (x * y).sum().item()
        if number > 5:
            print("large:", number)
        return x + y, number

    return program


@pattern(signs, OUTPUT)
def print_in_a_loop() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(3):
            x = x + step
            print("step", step, x.sum().item())
        return x

    return program


@pattern(signs, OUTPUT)
def print_in_a_submodule() -> Any:
    class Inner(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print("inner", x.sum().item())
            return x + 1

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Inner()

        def forward(self, x: Tensor) -> Tensor:
            print("outer")
            y = self.inner(x) * self.inner(x + 1)
            print("done")
            return y

    return Net()


@pattern(signs, OUTPUT, WHERE)
def print_in_both_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        print("before")
        if x.sum() > 0:
            print("positive", x.sum().item())
            y = x * 2
        else:
            y = x - 1
            print(f"negative {y.min().item():.2f}")
        print("after")
        return y

    return program


@pattern(signs, NO_MERGE, OUTPUT)
def print_alone_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            print("negative")
        return x * 2

    return program


@pattern(signs, OUTPUT, WHERE)
def print_in_nested_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        if x.sum() < 0:
            if x.min() < -3:
                print("far below", y.sum().item())
                y = y * 2
            print("below")
        return y - 1

    return program


@pattern(signs, OUTPUT, WHERE)
def warning_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            warnings.warn("negative", RuntimeWarning, stacklevel=1)
            x = x.abs()
        return x * 2

    return program


@pattern(signs, COND, OUTPUT, zero_gradients=True)
def print_beside_a_linear_layer() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(3, 3)

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = self.linear(x)
                print("linear", f"{y.sum().item():.3f}")
            else:
                y = x - 1
                print("no linear")
            return y

    return Net()


Pair = namedtuple("Pair", ["first", "second"])


@pattern(signs, OUTPUT)
def message_in_a_function_that_is_called() -> Program:
    def show(name: str, value: Tensor, *rest: Any, digits: int = 2) -> None:
        print(f"{name:>6}: {value.mean().item():.{digits}f}", *rest)

    def program(x: Tensor) -> Tensor:
        show("x", x)
        y = x.detach() + 1
        show("y", y, "and", y, digits=4)
        y.zero_()
        show("zero", y)
        return x * 2

    return program


@pattern(signs, OUTPUT, WHERE, zero_gradients=True)
def tensors_with_a_history_in_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.sum() > 0:
            print("in", y, y * 2)
            z = y * 3
        else:
            z = y - 1
            print("else", z, y)
        return z

    return program


@pattern(signs, NO_MERGE, OUTPUT, zero_gradients=True)
def statistics_shown_by_one_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.sum() > 0:
            size = y.abs()
            print("large", size.max(), f"{size.mean().item():.3f}", size.std(), y)
        else:
            print("small", {"least": y.min().item()}, [y.argmax(), y > 1])
        z = y * 2
        return z + y.max()

    return program


@pattern(signs, OUTPUT, WHERE, zero_gradients=True)
def difference_shown_beside_the_result() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 3
        if y.max() > 2:
            z = y.clamp(max=2.0)
            print("cut by", (y - z).sum().item(), z)
            y = z
        return y + 1

    return program


@pattern(signs, NO_MERGE, OUTPUT, zero_gradients=True)
def named_tuples_made_and_shown_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            pair = Pair(y + 1, y.sort())
            print(pair, pair.second.indices, y.max(0))
        return y

    return program


adapter = logging.LoggerAdapter(logger, {"rank": 3})


@pattern(signs, OUTPUT)
def print_passed_on_by_a_helper() -> Program:
    def say(*arguments: object, **keywords: Any) -> None:
        print("[0]", *arguments, **keywords)

    def program(x: Tensor) -> Tensor:
        say("sum", x.sum().item(), sep=": ")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def result_of_a_print_used() -> Program:
    def program(x: Tensor) -> Any:
        y = print("now", x.sum().item()) or x * 2
        return y, print("at the end")

    return program


@pattern(signs, OUTPUT)
def print_in_comprehensions() -> Program:
    def program(x: Tensor) -> Any:
        parts = [x, x + 1]
        nothing = [print(part.sum().item()) for part in parts]
        also = {n: print(n, len(part)) for n, part in enumerate(parts)}
        return nothing, also, x * 2

    return program


@pattern(signs, OUTPUT)
def print_in_a_lambda() -> Program:
    show = lambda name, t: print(f"{name}: {t.mean().item():.3f}")  # noqa: E731

    def program(x: Tensor) -> Any:
        show("x", x)
        y = x * 2
        return show("y", y), y

    return program


@pattern(signs, OUTPUT)
def print_in_a_nested_function() -> Program:
    def program(x: Tensor) -> Tensor:
        def report(name: str) -> None:
            print(name, y.sum().item(), x.shape)

        y = x + 1
        report("first")
        y = y * 2
        report("second")
        return y

    return program


@pattern(signs, OUTPUT)
def print_in_hooks() -> Any:
    net = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.ReLU())
    for name, part in net.named_children():
        part.register_forward_hook(
            lambda module, given, out, name=name: print(name, type(module).__name__, out.shape)
        )
    net[0].register_forward_pre_hook(lambda module, given: print("before", len(given)))
    return net


@pattern(signs, OUTPUT, WHERE)
def sinks_in_arms() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            sys.stdout.write(f"up {x.sum().item():.1f}\n")
            logger.info("up")
            x = x * 2
        else:
            sys.stderr.write("down\n")
            adapter.warning("down %s", x.min().item())
        return x + 1

    return program


@pattern(signs, NO_MERGE, OUTPUT)
def sinks_in_a_loop_with_a_test() -> Program:
    def program(x: Tensor) -> Tensor:
        for step in range(3):
            if (x[step] > 0).item():
                sys.stdout.write(f"{step}: positive\n")
            pprint.pprint({"step": step, "shape": tuple(x.shape)})
        return x * 2

    return program


@pattern(signs, OUTPUT, NO_MERGE)
def print_as_a_side_of_an_expression() -> Program:
    def program(x: Tensor) -> Tensor:
        print("up") if x.sum() > 0 else print("down", x.sum().item())
        x.min() > 0 and print("all up")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def calls_logged_by_a_decorator() -> Program:
    def logged(function: Program) -> Program:
        @functools.wraps(function)
        def wrapper(*arguments: Any) -> Any:
            logger.info("enter %s", function.__name__)
            result = function(*arguments)
            logger.info("leave %s with %s", function.__name__, tuple(result.shape))
            return result

        return wrapper

    @logged
    def step(x: Tensor) -> Tensor:
        print("step", x.sum().item())
        return x + 1

    def program(x: Tensor) -> Tensor:
        return step(step(x))

    return program


@pattern(signs, NO_MERGE, OUTPUT)
def every_second_step() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("steps", torch.zeros((), dtype=torch.long))

        def forward(self, x: Tensor) -> Tensor:
            self.steps += 1
            if self.steps % 2 == 0:
                logger.info("step %d: %.3f", self.steps.item(), x.sum().item())
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def generators_that_talk() -> Program:
    def parts(x: Tensor) -> Iterator[Tensor]:
        for index in range(3):
            print("part", index, x[index].item())
            yield x * index

    def program(x: Tensor) -> Tensor:
        total = torch.zeros(3)
        for part in parts(x):
            print("got", part.sum().item())
            total = total + part
        return total

    return program


@pattern(signs, OUTPUT)
def recursion_that_talks() -> Program:
    def descend(x: Tensor, depth: int) -> Tensor:
        print("  " * depth, "in", x.sum().item())
        y = descend(x + 1, depth - 1) if depth else x * 2
        logger.info("out %d", depth)
        return y

    def program(x: Tensor) -> Tensor:
        return descend(x, 3)

    return program


@pattern(signs, COND, OUTPUT, zero_gradients=True)
def layers_that_talk_in_an_arm() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(2)])
            for number, layer in enumerate(self.layers):
                layer.register_forward_hook(
                    lambda module, given, out, number=number: logger.info(
                        "%d: %.3f", number, out.abs().mean().item()
                    )
                )

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                for layer in self.layers:
                    x = layer(x).relu()
                print("through", len(self.layers))
            return x + 1

    return Net()


@pattern(signs, OUTPUT, graphs=2)
def output_on_each_side_of_a_graph_break() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        print("first", y.sum().item())
        torch._dynamo.graph_break()
        print("second", y.max().item())
        return y + 1

    return program


PATTERNS = patterns_among(list(vars().values()))
