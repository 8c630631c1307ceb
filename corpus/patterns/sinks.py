"""Where output can go: streams, loggers, warnings, progress bars, consoles, writers of metrics."""

from __future__ import annotations

import functools
import io
import logging
import pprint
import sys
import warnings
from collections.abc import Callable
from functools import partial
from sys import stdout
from typing import Any

import rich
import torch
import tqdm
from rich import print as rich_print
from rich.console import Console
from torch import Tensor
from tqdm import tqdm as bar

from corpus.patterns.pattern import (
    NO_MERGE,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    refused,
    signs,
)

Program = Callable[..., Any]

logger = logging.getLogger("corpus.patterns.sinks")
logger.setLevel(logging.INFO)
adapter = logging.LoggerAdapter(logger, {"rank": 3})


class Lines(io.TextIOBase):
    """A stream whose text is an attribute, so that it counts as state."""

    def __init__(self) -> None:
        self.text = ""

    def write(self, text: str) -> int:
        self.text += text
        return len(text)


@pattern(signs, OUTPUT)
def print_to_streams_of_its_own() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lines, self.string = Lines(), io.StringIO()

        def forward(self, x: Tensor) -> Tensor:
            print("one", x.sum().item(), file=self.lines, sep="\t", flush=True)
            print(1, 2, 3, end="!", file=self.lines)
            print("not looked at", file=self.string)
            self.lines.write(f"{x.min().item():.1f}\n")
            self.string.write("not looked at")
            return x * 2

    return Net()


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


@pattern(signs, OUTPUT)
def print_in_a_try_block() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            print("trying", x.sum().item())
            y = x * 2
        except ValueError as error:
            print("failed", error)
            raise
        finally:
            print("done")
        try:
            raise ValueError("on purpose", 3)
        except ValueError as error:
            print("caught", error, type(error).__name__)
            logger.warning("caught %s", error)
        return y

    return program


@pattern(signs, OUTPUT)
def print_in_context_managers() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            print("without", x.sum().item())
            y = x.detach() * 2
        with torch.autocast("cpu", enabled=False):
            print("inside", torch.is_autocast_enabled("cpu"))
        return x + y

    return program


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


@pattern(signs, OUTPUT)
def write_to_the_streams() -> Program:
    def program(x: Tensor) -> Tensor:
        sys.stdout.write("plain\n")
        sys.stdout.write(f"sum {x.sum().item():.2f}\n")
        sys.stderr.writelines(["one\n", "two\n"])
        sys.stdout.flush()
        print("after", file=sys.stdout)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def write_to_an_imported_stream() -> Program:
    def program(x: Tensor) -> Tensor:
        stdout.write("")
        stdout.flush()
        return x * 2

    return program


@pattern(signs, refused("output-shape"), graphs=None)
def number_of_characters_written() -> Program:
    def program(x: Tensor) -> Any:
        count = sys.stdout.write("some text\n")
        return x * count

    return program


@pattern(signs, OUTPUT, training=False)
def pretty_printed() -> Program:
    def program(x: Tensor) -> Tensor:
        pprint.pprint({"b": [1, 2], "a": (x, "text" * 30), "c": list(range(30))}, width=40)
        pprint.pp({"z": 1, "a": x.sum().item()})
        print(pprint.pformat({"one": 1}))
        return x * 2

    return program


@pattern(signs, OUTPUT)
def printed_around_a_progress_bar() -> Program:
    def program(x: Tensor) -> Tensor:
        tqdm.tqdm.write(f"mean {x.mean().item():.3f}")
        bar.write("to stderr", file=sys.stderr, end="|\n")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def printed_by_rich() -> Program:
    def program(x: Tensor) -> Tensor:
        rich.print("[bold]sum[/bold]", x.sum().item())
        rich_print({"shape": tuple(x.shape)})
        return x * 2

    return program


@pattern(signs, OUTPUT)
def printed_on_a_console() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.console = Console(width=60)

        def forward(self, x: Tensor) -> Tensor:
            self.console.print("sum", x.sum().item())
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def logged_by_an_adapter() -> Program:
    def program(x: Tensor) -> Tensor:
        adapter.info("mean %.2f", x.mean().item())
        adapter.debug("not shown")
        adapter.log(logging.WARNING, "level")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logged_with_keywords() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.info("with extra", extra={"size": x.numel()})
        logger.warning("no error", exc_info=False, stack_info=False)
        logger.error("deeper", stacklevel=1)
        logger.log(logging.ERROR, "mapping %(a)s", {"a": x.sum().item()})
        logger.log(logging.DEBUG, "not shown")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logged_below_the_level_with_the_exception() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            raise ValueError("missing")
        except ValueError:
            logger.debug("caught", exc_info=True)
        logger.debug("where", stack_info=True)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logged_by_name() -> Program:
    def program(x: Tensor) -> Tensor:
        logging.getLogger("corpus.named").warning("sum %s", x.sum().item())
        logging.getLogger(__name__).error("of the module")
        logging.getLogger("corpus.silent").debug("not shown %s", x)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logger_in_a_variable() -> Program:
    def program(x: Tensor) -> Tensor:
        log = logging.getLogger("corpus.variable")
        log.warning("sum %s", x.sum().item())
        other = logging.getLogger("corpus.other")
        say = log.error
        say("said")
        other.error("other")
        log.warning("again")
        return x * 2

    return program


@functools.lru_cache(None)
def _warn_once(message: str) -> None:
    logger.warning(message)


@functools.cache
def _print_once(*parts: object) -> None:
    print(*parts, file=sys.stderr)


@pattern(signs, OUTPUT)
def written_once() -> Program:
    _warn_once.cache_clear()
    _print_once.cache_clear()

    def program(x: Tensor) -> Tensor:
        for step in range(3):
            _warn_once("deprecated")
            _print_once("step", step // 2)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def writing_functions_under_other_names() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.say = print
            self.note = logger.info
            self.err = partial(print, file=sys.stderr)
            self.sinks = [print, logger.warning]

        def forward(self, x: Tensor) -> Tensor:
            self.say("said", x.sum().item())
            self.note("noted %s", x.sum().item())
            show = print
            show("shown")
            for sink in self.sinks:
                sink("sunk")
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def a_sink_as_a_parameter() -> Program:
    def helper(x: Tensor, log: Callable[..., None] = print) -> None:
        log(f"mean {x.mean().item():.2f}")

    def program(x: Tensor) -> Tensor:
        helper(x)
        helper(x + 1, log=logger.warning)
        return x * 2

    return program


@pattern(signs)
def methods_that_only_sound_like_output() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.metrics = {"loss": torch.zeros(()), "written": torch.zeros(3)}

        def log(self, name: str, value: Tensor) -> None:
            self.metrics[name] = value

        def write(self, value: Tensor) -> None:
            self.metrics["written"] = value

        def forward(self, x: Tensor) -> Tensor:
            self.log("loss", x.sum())
            self.write(x + 1)
            return x * self.metrics["loss"] + self.metrics["written"]

    return Net()


@pattern(signs, OUTPUT)
def warned_with_a_stack_level() -> Program:
    def helper(x: Tensor) -> Tensor:
        warnings.warn("old", FutureWarning, stacklevel=2)
        warnings.warn("older", FutureWarning, 3)
        logger.warning("deprecated", stacklevel=2)
        return x + 1

    def program(x: Tensor) -> Tensor:
        y = helper(x)
        return (
            helper(
                y,
            )
            * 2
        )

    return program


@pattern(signs, OUTPUT, WHERE)
def warned_in_arms_with_a_stack_level() -> Program:
    def helper(x: Tensor, level: int) -> Tensor:
        if x.sum() > 0:
            warnings.warn("positive", stacklevel=level)
            x = x + 1
        return x

    def program(x: Tensor) -> Tensor:
        if x.min() < 0:
            x = helper(x, 2)
        else:
            logger.warning("none", stacklevel=2)
            x = helper(x, 3) * 2
        return x * 2

    return program


@pattern(signs, OUTPUT)
def warned_in_modules_with_a_stack_level() -> Any:
    class Inner(torch.nn.Module):
        def helper(self) -> None:
            for level in range(1, 8):
                warnings.warn(f"level {level}", stacklevel=level)

        def forward(self, x: Tensor) -> Tensor:
            self.helper()
            return x + 1

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner, self.layers = Inner(), torch.nn.Sequential(Inner(), torch.nn.ReLU())

        def forward(self, x: Tensor) -> Tensor:
            y = self.inner(x) + self.inner.forward(x)
            return self.layers(y)

    return Net()


PATTERNS = patterns_among(list(vars().values()))
