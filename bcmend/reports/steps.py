"""What a command does at the moment, on a terminal's standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from rich.console import RenderableType
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


@contextmanager
def shown(first: str) -> Iterator[None]:
    """Show the steps of a block while they are done, where standard error is a terminal.

    What the block writes itself goes where it would go without. A block inside one that shows its
    steps adds to what that shows.
    """
    if _LISTENING.tell is not None:
        step(first)
        yield
        return
    from rich.console import Console
    from rich.live import Live
    from rich.table import Table

    console = Console(stderr=True)
    lines = _Lines(Step(first))
    live = Live(
        get_renderable=lambda: lines.drawn(
            Table(box=None, padding=(0, 1), show_header=False, pad_edge=False)
        ),
        console=console,
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
    )
    with live if console.is_terminal else nullcontext():
        _LISTENING.tell = lines.show
        try:
            yield
        finally:
            _LISTENING.tell = None


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
