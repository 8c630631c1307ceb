"""How arguments of output are computed: formatted, starred, failing."""

from __future__ import annotations

import io
import json
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import OUTPUT, WHERE, pattern, patterns_among, signs
from tests.equivalence import Call, call

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@pattern(signs, OUTPUT)
def texts_put_together_before_they_are_written() -> Program:
    def program(x: Tensor) -> Tensor:
        line = "sum " + f"{x.sum().item():.2f}"
        line += f" of {x.numel()}"
        print(line + "!", " {} ".join([line, "or", f"{x.max().item()}"]))
        print(", ".join(f"{each.item():.1f}" for each in x))
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_a_formatted_number() -> Program:
    def program(x: Tensor) -> Tensor:
        print(f"mean {x.mean().item():>10.4f}, {x.sum().item()!r}, {len(x)=}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def string_representation() -> Program:
    def program(x: Tensor) -> Tensor:
        print(str(x), repr(x.shape), "%.2f" % x.sum().item())  # noqa: UP031
        print("{:.1f} {}".format(float(x.max()), x.ndim))  # noqa: UP032
        print(x.tolist(), *[1, 2], sep="-")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def format_specifications() -> Program:
    def program(x: Tensor) -> Tensor:
        total = x.sum()
        print(f"{total.item():+.2e}|{total.item():>12.3f}|{total.item():<9.1%}|{int(total):05d}")
        print(f"{total.detach():.3f} {x.shape[0]:3d} {x.shape!s:>20} {x.dtype!r:.5} {'text':*^10}")
        width = 8
        print(f"{total.item():{width}.{width // 4}f}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def percent_formatting() -> Program:
    def program(x: Tensor) -> Tensor:
        print("%s has %d elements, mean %.2f" % ("x", x.numel(), x.mean()))  # noqa: UP031
        print("%(name)s=%(value)6.2f" % {"name": "sum", "value": x.sum().item()})  # noqa: UP031
        print("%s" % x.detach())  # noqa: UP031
        return x * 2

    return program


@pattern(signs, OUTPUT)
def formatting_by_a_method() -> Program:
    def program(x: Tensor) -> Tensor:
        print("{} {:.2f} {name}".format(x.shape, x.mean().item(), name="x"))
        template = "{0!r:>8} {1[0]} {2.shape}"
        print(template.format("a", x.tolist(), x))
        return x * 2

    return program


@pattern(signs, OUTPUT)
def map_and_generator_as_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        print(*map(str, range(3)), *(step * step for step in range(3)))
        print(" ".join(str(step) for step in x.tolist()))
        print(list(map(float, x)), sorted(x.tolist()), max(x.tolist()))
        print(*[f"{value:.1f}" for value in x.tolist()], sep=", ")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def enumeration_in_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        names = ["a", "b", "c"]
        print({name: value for name, value in zip(names, x.tolist(), strict=True)})  # noqa: C416
        print([(index, name) for index, name in enumerate(names)])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def choice_in_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        print("up" if x.sum().item() > 0 else "down", x.max().item() > 2 and "large")
        print(f"{'many' if x.numel() > 2 else 'few'}: {x.sum().item() or 'nothing'}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def arithmetic_of_numbers_in_an_argument() -> Program:
    def program(x: Tensor) -> Tensor:
        step = 3
        print(f"{x.sum().item() / (step + 1):.3f}", step % 2, step**2, 100.0 * x.mean().item())
        step += 1
        print("step", step, f"{(x > 0).float().mean().item():.0%}", x.norm().item() ** 2)
        return x * step

    return program


@pattern(signs, OUTPUT)
def text_built_beforehand() -> Program:
    def program(x: Tensor) -> Tensor:
        text = f"{tuple(x.shape)} of {x.dtype}"
        text += "!"
        print(text)
        text = text.upper()
        logger.info(text)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_with_starred_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        parts = ["a", 1, x.sum().item()]
        how = {"sep": "-", "end": ".\n"}
        print(*parts, **how)
        print("first", *parts, "last", **how)
        parts.append("later")
        how["sep"] = "?"
        return x * 2

    return program


def _numbers() -> Sequence[Call]:
    """Vectors whose sum is a number, zero, infinite, and not a number."""
    last = (1.0, -3.0, math.inf, math.nan)
    return [call(torch.tensor([1.0, 2.0, each])) for each in last]


@pattern(_numbers, OUTPUT)
def division_by_a_number_that_may_be_zero() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.stage = "new"
            self.register_buffer("total", torch.zeros(3))

        def forward(self, x: Tensor) -> Tensor:
            self.stage = "first"
            self.total.add_(x.detach())
            print("ratio", f"{1 / x.sum().item():.3f}")
            self.stage = "second"
            self.total.mul_(2)
            print("after")
            return x * 2

    return Net()


@pattern(signs, OUTPUT, WHERE)
def variables_bound_in_the_call() -> Any:
    class Net(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print(
                "x", x := x + 1, "sum", total := x.sum(), f"{(mean := x.mean()).item():.2f}", total
            )
            logger.debug("never written %s", scaled := x * 2)
            x.add_(1)
            if total > 0:
                logger.info("positive %.2f", bound := total + mean)
                scaled = scaled + bound
            return scaled * total

    return Net()


@pattern(signs, OUTPUT)
def number_out_of_several() -> Any:
    class Net(torch.nn.Module):
        stage = "none"

        def forward(self, x: Tensor) -> Tensor:
            self.stage = "first"
            print("before")
            print(f"{x.item():.2f}")
            self.stage = "second"
            return x * 2

    return Net()


@pattern(_numbers, OUTPUT)
def whole_number_of_what_is_none() -> Program:
    def program(x: Tensor) -> Tensor:
        print("rounded", int(x.sum()), round(x[2].item()))
        logger.info("%d percent", int(x.sum().item() * 100))
        return x + 1

    return program


@pattern(_numbers, OUTPUT)
def failure_below_the_level() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.debug("not shown %s", 1 / x.sum().item())
        logger.debug("nor this %.3f", x.sum().item())
        return x * 2

    return program


@pattern(_numbers, OUTPUT)
def failure_that_is_caught() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            print("inverse", 1 / x.sum().item())
        except ZeroDivisionError as error:
            print("none:", error)
            x = x + 1
        return x * 2

    return program


@pattern(_numbers, OUTPUT)
def failure_that_a_caller_catches() -> Program:
    def helper(x: Tensor) -> Tensor:
        logger.info("mean of %d", int(x.sum().item()))
        return x * 3

    def program(x: Tensor) -> Tensor:
        try:
            return helper(x)
        except (ValueError, OverflowError):
            logger.warning("not finite")
            return x

    return program


@pattern(_numbers, OUTPUT, WHERE)
def failure_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x[0] + x[1] + x[2] < 1:
            print("inverse", f"{1 / x.sum().item():.2f}")
            x = x * 2
        else:
            print(f"{int(x.sum().item()):d}")
        return x + 1

    return program


@pattern(_numbers, OUTPUT)
def failure_among_starred_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        print(*[round(each) for each in x.tolist()], sep=", ")
        print(*x.tolist(), 1 % x.sum().item(), sep=", ")
        return x + 1

    return program


@pattern(_numbers, OUTPUT)
def function_of_a_number_out_of_its_range() -> Program:
    def program(x: Tensor) -> Tensor:
        print(math.log(x.sum().item()), "and", math.sqrt(x[2].item()))
        print("%d" % x[2].item(), x.tolist()[2:][0])  # noqa: UP031
        return x + 1

    return program


@pattern(signs, OUTPUT)
def place_that_may_not_be_there() -> Program:
    def program(x: Tensor) -> Tensor:
        print("the last of", len(x), {1: "one", 3: "three"}[len(x)], x.tolist()[int(x.max())])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def metrics_as_json() -> Program:
    def program(x: Tensor) -> Tensor:
        print(json.dumps({"mean": round(x.mean().item(), 3), "count": x.numel()}))
        stats = {"mean": x.mean(), "max": x.max()}
        print(", ".join(f"{name}={value.item():.2f}" for name, value in stats.items()))
        return x * 2

    return program


@pattern(signs, OUTPUT)
def generator_that_prints_among_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        print(*(print("inside", each) or each for each in range(2)), x.sum().item())
        return x * 2

    return program


@pattern(signs, OUTPUT, graphs=None)
def argument_that_breaks_the_graph() -> Program:
    def program(x: Tensor) -> Tensor:
        text = io.StringIO()
        print("kept", 3, file=text)
        print(text.getvalue().strip(), "and", x.sum().item())
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
