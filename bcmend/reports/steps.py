"""What takes its time at the moment, on standard error: drawn on a terminal, else in lines."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.table import Table


@dataclass(frozen=True, slots=True)
class Step:
    """What is done, the share that is done of all, and how many seconds are left, where known."""

    text: str
    share: float | None = None
    left: float | None = None


class _Listening(threading.local):
    """Who is told of steps in this thread."""

    tell: Callable[[Step], object] | None = None


_LISTENING: Final = _Listening()


def step(text: str, share: float | None = None, left: float | None = None) -> None:
    """Say what is done from here on, where somebody listens."""
    if _LISTENING.tell is not None:
        _LISTENING.tell(Step(text, share, left))


#: From how many seconds on steps are said where they are not drawn.
_LONG: Final = 10.0


@contextmanager
def shown(first: str) -> Iterator[None]:
    """Show the steps of a block while they are done, where standard error is a terminal.

    Elsewhere the present one is a line there after ten seconds, as is each later one. What the
    block writes itself goes where it would go without. A block inside one that shows its steps adds
    to what that shows.
    """
    if _LISTENING.tell is not None:
        step(first)
        yield
        return
    from rich.console import Console

    console = Console(stderr=True)
    with _drawn(first, console) if console.is_terminal else _said(first) as tell:
        _LISTENING.tell = tell
        try:
            yield
        finally:
            _LISTENING.tell = None


@contextmanager
def _drawn(first: str, console: Console) -> Iterator[Callable[[Step], object]]:
    from rich.live import Live
    from rich.table import Table

    lines = _Lines(Step(first))
    with Live(
        get_renderable=lambda: lines.drawn(
            Table(box=None, padding=(0, 1), show_header=False, pad_edge=False)
        ),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    ):
        yield lines.show


@contextmanager
def _said(first: str) -> Iterator[Callable[[Step], object]]:
    voice = _Voice(first)
    timer = threading.Timer(_LONG, voice.begin)
    timer.daemon = True
    timer.start()
    try:
        yield voice.hear
    finally:
        timer.cancel()


class _Voice:
    """A line for each kind of step since ``begin``, on what standard error is when it is made."""

    def __init__(self, first: str) -> None:
        self._text, self._stream, self._speaks = first, sys.stderr, False
        self._said: set[str] = set()

    def begin(self) -> None:
        self._speaks = True
        self._said.add(self._text)
        print(f"bcmend: {self._text} ...", file=self._stream, flush=True)

    def hear(self, told: Step) -> None:
        self._text = told.text
        if self._speaks and told.text not in self._said:
            self.begin()


class _Lines:
    """A step as a line for a terminal: a spinner, what is done, a bar and the time that is left."""

    def __init__(self, first: Step) -> None:
        from rich.spinner import Spinner

        self._step, self._spinner = first, Spinner("dots")

    def show(self, told: Step) -> None:
        self._step = told

    def drawn(self, grid: Table) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.text import Text

        told = self._step
        cells: list[RenderableType] = [self._spinner, Text(told.text)]
        if told.share is not None:
            cells.append(ProgressBar(total=1.0, completed=told.share, width=30))
        if told.left is not None:
            cells.append(Text(f"{told.left:.0f} s left"))
        grid.add_row(*cells)
        return grid
