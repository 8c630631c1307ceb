"""Logging as models in production have it: stages, monitors, writers, stacks, other streams."""

from __future__ import annotations

import contextlib
import functools
import io
import json
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

import bcmend
from corpus.patterns.pattern import (
    COND,
    NO_MERGE,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    refused,
    signs,
)

Program = Callable[..., Any]

logger = logging.getLogger("corpus.patterns.production")
logger.setLevel(logging.INFO)


class Lines(io.TextIOBase):
    """A stream whose text is an attribute, so that it counts as state."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


class SummaryWriter:
    """Has the shape of TensorBoard's."""

    def __init__(self) -> None:
        self.rows: list[tuple[object, ...]] = []

    def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
        self.rows.append((tag, float(value), global_step))

    def add_histogram(self, tag: str, values: Tensor, global_step: int | None = None) -> None:
        self.rows.append((tag, values.tolist(), global_step))


for _method in (SummaryWriter.add_scalar, SummaryWriter.add_histogram):
    bcmend.register_output(_method, returns_none=True)


@pattern(signs, OUTPUT)
def callers_shown_as_far_as_is_said() -> Program:
    def helper(x: Tensor) -> Tensor:
        traceback.print_stack(limit=2)
        return x + 1

    def program(x: Tensor) -> Tensor:
        y = helper(x)
        traceback.print_stack(None, 1, sys.stdout)
        return y * 2

    return program


@pattern(
    signs,
    refused("frame-introspection"),
    graphs=None,
    only_writes=True,
    because="The program writes all frames of the stack, those of the compiler among them.",
)
def callers_shown_from_the_outermost() -> Program:
    def program(x: Tensor) -> Tensor:
        traceback.print_stack(limit=-1)
        return x * 2

    return program


@pattern(signs, graphs=None)
def print_mapped_over_a_list() -> Program:
    def program(x: Tensor) -> Tensor:
        list(map(print, [x.sum().item(), "text"]))
        return x * 2

    return program


@pattern(signs, graphs=None)
def print_while_the_stream_is_redirected() -> Program:
    def program(x: Tensor) -> Tensor:
        hidden = io.StringIO()
        with contextlib.redirect_stdout(hidden):
            print("hidden", x.sum().item())
        print("shown", len(hidden.getvalue()) > 0)
        return x * 2

    return program


class _Heard:
    """The text of functions that it wraps, gathered in one buffer."""

    def __init__(self) -> None:
        self.buffer = io.StringIO()

    def __call__(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def heard(*arguments: Any) -> Any:
            with contextlib.redirect_stdout(self.buffer):
                return function(*arguments)

        return heard

    def text(self) -> str:
        """Return what was written since it was last asked."""
        text = self.buffer.getvalue()
        self.buffer.seek(0)
        self.buffer.truncate()
        return text


@pattern(signs, OUTPUT, NO_MERGE, graphs=None)
def text_of_a_function_is_gathered_and_read() -> Program:
    heard = _Heard()

    @heard
    def scaled(x: Tensor) -> Tensor:
        print("sum", x.sum())
        if x.sum() > 0:
            print("positive")
        return x * 2

    def program(x: Tensor) -> Tensor:
        print("before", x.sum())
        y = scaled(x)
        print("heard", heard.text().upper())
        return y + 1

    return program


@pattern(signs, graphs=None)
def warnings_are_gathered_and_counted() -> Program:
    def program(x: Tensor) -> Tensor:
        with warnings.catch_warnings(record=True) as gathered:
            warnings.simplefilter("always")
            warnings.warn(f"sum {x.detach().sum()}", stacklevel=1)
            warnings.warn("again", stacklevel=1)
        for each in gathered:
            print("gathered", each.message)
        return x * 2

    return program


class _Redirected:
    """Replaces the stream as code of the program does."""

    def __init__(self, lines: Lines) -> None:
        self.lines = lines

    def __enter__(self) -> None:
        self.before, sys.stdout = sys.stdout, self.lines

    def __exit__(self, *error: object) -> None:
        sys.stdout = self.before


@pattern(
    signs,
    refused("cannot-snapshot"),
    graphs=None,
    only_writes=True,
    because="Each record would have to be written while the stream is what it was at its call.",
)
def print_while_the_program_replaces_the_stream() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lines = Lines()

        def forward(self, x: Tensor) -> Tensor:
            with _Redirected(self.lines):
                print("hidden", x.sum().item())
            print("shown")
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def exception_shown_by_a_keyword() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            raise KeyError("missing")
        except KeyError as error:
            logger.error("caught %s", error, exc_info=True)
        return x * 2

    return program


@pattern(signs, OUTPUT, NO_MERGE)
def scalars_and_histograms() -> Any:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.writer = SummaryWriter()

        def forward(self, x: Tensor) -> Tensor:
            self.writer.add_scalar("sum", x.sum(), 3)
            y = x.detach() * 2
            self.writer.add_histogram("doubled", y, global_step=1)
            y.add_(1)
            if x.sum() > 0:
                self.writer.add_scalar("positive", x.mean().item())
            return x * y

    return Net()


@pattern(signs, OUTPUT)
def stages_entered_and_left() -> Program:
    @contextlib.contextmanager
    def stage(name: str) -> Iterator[None]:
        logger.info("begin %s", name)
        yield
        logger.info("end %s", name)

    def program(x: Tensor) -> Tensor:
        with stage("first"):
            y = x * 2
            print("inside", y.max().item())
        return y + 1

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


@pattern(signs, OUTPUT)
def metrics_as_json() -> Program:
    def program(x: Tensor) -> Tensor:
        print(json.dumps({"mean": round(x.mean().item(), 3), "count": x.numel()}))
        stats = {"mean": x.mean(), "max": x.max()}
        print(", ".join(f"{name}={value.item():.2f}" for name, value in stats.items()))
        return x * 2

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


@pattern(signs, NO_MERGE, OUTPUT, WHERE)
def places_of_bad_values() -> Program:
    def program(x: Tensor) -> Tensor:
        print("positive", x[x > 0], x[~(x > 0)].tolist(), x.round().unique().tolist())
        if torch.isnan(x).any() or (x < -3).any():
            logger.warning("%s at %s", x.min().item(), (x < -3).nonzero().tolist())
        return x.clamp(min=-3)

    return program


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


@pattern(signs, OUTPUT)
def child_of_a_logger() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.getChild("part").warning("sum %s", x.sum().item())
        child = logger.getChild("other")
        child.info("max %.1f", x.max().item())
        return x * 2

    return program


@pattern(signs, OUTPUT)
def sinks_looked_up_by_name() -> Program:
    sinks: dict[str, Callable[..., Any]] = {"print": print, "log": logger.info}

    def program(x: Tensor) -> Tensor:
        for name in ("print", "log"):
            sinks[name](f"{name}: {x.sum().item():.1f}")
        return x * 2

    return program


class _Stepped(logging.LoggerAdapter):  # type: ignore[type-arg]
    def process(self, msg: Any, kwargs: Any) -> Any:
        return f"[{(self.extra or {})['step']}] {msg}", kwargs


@pattern(signs, OUTPUT)
def adapter_whose_step_changes() -> Program:
    extra = {"step": 0}
    adapter = _Stepped(logger, extra)

    def program(x: Tensor) -> Tensor:
        extra["step"] = 1
        adapter.info("first %s", x.sum().item())
        extra["step"] = 2
        adapter.warning("second")
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


@pattern(signs, graphs=None)
def warnings_silenced_for_a_while() -> Program:
    def program(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden", stacklevel=1)
        warnings.warn("shown", stacklevel=1)
        return x * 2

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


PATTERNS = patterns_among(list(vars().values()))
