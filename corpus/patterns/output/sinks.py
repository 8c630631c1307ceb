"""Output by other callables: `print`, streams, consoles, writers."""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import pprint
import sys
import traceback
from collections.abc import Callable
from functools import partial
from sys import stdout
from typing import Any

import rich
import torch
import tqdm
from rich import print as rich_print
from rich.console import Console
from torch import Tensor, nn
from tqdm import tqdm as bar

import bcmend
from corpus.patterns.pattern import NO_MERGE, OUTPUT, pattern, patterns_among, refused, signs

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
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


@pattern(signs, graphs=None, changes_with=(2, 14), changed_outcome=(refused("cannot-snapshot"),))
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


@pattern(
    signs,
    OUTPUT,
    NO_MERGE,
    graphs=None,
    changes_with=(2, 14),
    changed_outcome=(OUTPUT, refused("arm-untraceable"), refused("cannot-snapshot")),
    changed_worse="Frames are resumed in the block, where the stream is another one.",
)
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
def sinks_looked_up_by_name() -> Program:
    sinks: dict[str, Callable[..., Any]] = {"print": print, "log": logger.info}

    def program(x: Tensor) -> Tensor:
        for name in ("print", "log"):
            sinks[name](f"{name}: {x.sum().item():.1f}")
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
