"""Where output can go, and where the calls stand: streams, consoles, progress bars, loggers."""

from __future__ import annotations

import io
import logging
import pprint
import sys
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


@pattern(
    signs,
    refused("output-shape"),
    because="The program computes with what the call that writes returns.",
)
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


@pattern(signs, OUTPUT, NO_MERGE)
def print_as_a_side_of_an_expression() -> Program:
    def program(x: Tensor) -> Tensor:
        print("up") if x.sum() > 0 else print("down", x.sum().item())
        x.min() > 0 and print("all up")
        return x * 2

    return program


class Described:
    """An object whose text is not the same before and after it is changed."""

    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"<count {self.count}>"


@pattern(signs, OUTPUT)
def text_of_an_object_changed_before() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.described = Described()

        def forward(self, x: Tensor) -> Tensor:
            self.described.count = x.numel()
            print(f"now {self.described} of {x.shape}", "and", self.described)
            logger.info(f"logged {self.described}")
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def print_of_an_object_changed_later() -> Program:
    def program(x: Tensor) -> Tensor:
        described = Described()
        print("first", described)
        described.count += 2
        print("second", described)
        return x * described.count

    return program


PATTERNS = patterns_among(list(vars().values()))
