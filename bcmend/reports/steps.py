"""What a command does at the moment, on a terminal's standard error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import Final


class _Listening(threading.local):
    """Who is told of steps in this thread."""

    tell: Callable[[str], object] | None = None


_LISTENING: Final = _Listening()


def step(text: str) -> None:
    """Say what is done from here on, where somebody listens."""
    if _LISTENING.tell is not None:
        _LISTENING.tell(text)


@contextmanager
def shown(first: str) -> Iterator[None]:
    """Show the steps of a block while they are done, where standard error is a terminal.

    What the block writes itself goes where it would go without.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.spinner import Spinner

    spinner, console = Spinner("dots", first), Console(stderr=True)
    live = Live(
        spinner, console=console, transient=True, redirect_stdout=False, redirect_stderr=False
    )
    before = _LISTENING.tell
    with live if console.is_terminal else nullcontext():
        _LISTENING.tell = lambda text: spinner.update(text=text)
        try:
            yield
        finally:
            _LISTENING.tell = before
