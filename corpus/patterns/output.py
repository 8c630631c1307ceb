"""Statements that print, log or warn."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    COND,
    NO_MERGE,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    signs,
)

Program = Callable[..., Any]

logger = logging.getLogger("corpus.patterns")
logger.setLevel(logging.INFO)


@pattern(signs, OUTPUT)
def print_of_text() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        print("in between")
        return y * 2

    return program


@pattern(signs, OUTPUT)
def print_with_separator_and_end() -> Program:
    def program(x: Tensor) -> Tensor:
        print("shape", tuple(x.shape), x.dtype, sep="|", end="; ")
        print("next", flush=True)
        print()
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_to_the_error_stream() -> Program:
    def program(x: Tensor) -> Tensor:
        print("to stderr", file=sys.stderr)
        print("to stdout")
        sys.stdout.write("written\n")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_a_formatted_number() -> Program:
    def program(x: Tensor) -> Tensor:
        print(f"mean {x.mean().item():>10.4f}, {x.sum().item()!r}, {len(x)=}")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_a_tensor() -> Program:
    def program(x: Tensor) -> Tensor:
        print("x is", x, [x.sum(), {"half": x / 2}])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_a_tensor_changed_later() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        print(y)
        y.add_(1)
        print(y)
        y[0] = 7
        return y

    return program


@pattern(signs, OUTPUT)
def print_of_a_list_appended_later() -> Program:
    def program(x: Tensor) -> Tensor:
        items = [1, "two"]
        print(items)
        items.append(3)
        print(items, len(items))
        items.clear()
        return x * 2

    return program


@pattern(signs, OUTPUT)
def print_of_an_attribute_changed_later() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("total", torch.zeros(3))
            self.label = "start"

        def forward(self, x: Tensor) -> Tensor:
            print(self.label, f"{self.total.sum().item():.1f}")
            self.total = self.total + x.detach()
            print(self.label, f"{self.total.sum().item():.1f}")
            return x * self.total

    return Net()


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


@pattern(signs, OUTPUT)
def string_representation() -> Program:
    def program(x: Tensor) -> Tensor:
        print(str(x), repr(x.shape), "%.2f" % x.sum().item())  # noqa: UP031
        print("{:.1f} {}".format(float(x.max()), x.ndim))  # noqa: UP032
        print(x.tolist(), *[1, 2], sep="-")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logging_with_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.info("mean %.3f of %s", x.mean().item(), tuple(x.shape))
        logger.warning("plain")
        logger.debug("not shown %s", x.sum().item())
        logger.log(logging.ERROR, "level %d", 4)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logging_to_the_root() -> Program:
    def program(x: Tensor) -> Tensor:
        logging.warning("total %s", x.sum().item())
        logging.info("not shown")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logger_held_by_an_object() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = logging.getLogger("corpus.patterns.net")

        def forward(self, x: Tensor) -> Tensor:
            self.log.warning("%s has %d", "vector", x.numel(), stack_info=False)
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def warning_with_a_category() -> Program:
    def program(x: Tensor) -> Tensor:
        warnings.warn("plain", stacklevel=1)
        warnings.warn(f"total {x.sum().item():.1f}", FutureWarning, stacklevel=1)
        warnings.warn(DeprecationWarning("old"), stacklevel=1)
        return x * 2

    return program


@pattern(signs, OUTPUT, WHERE)
def warning_in_an_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            warnings.warn("negative", RuntimeWarning, stacklevel=1)
            x = x.abs()
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exception_logged_by_its_handler() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            raise KeyError("missing")
        except KeyError:
            logger.exception("caught")
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


@pattern(signs, OUTPUT)
def print_of_objects() -> Program:
    class Label:
        def __init__(self, text: str) -> None:
            self.text = text

        def __str__(self) -> str:
            return f"<{self.text}>"

    label = Label("here")

    def program(x: Tensor) -> Tensor:
        print(label, None, True, (1, [2, {"three": 3.0}]), range(3), label.text.upper())
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
