"""How far a scan has come, on a terminal's standard error, for scans that take their time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

_QUIET: Final = 2.0  # seconds


@contextmanager
def shown(after: float = _QUIET) -> Iterator[Callable[[int, int], None]]:
    """Yield what `scan` tells its progress to; it shows a bar if more than ``after`` seconds pass.

    Where standard error is no terminal it shows nothing.
    """
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TimeRemainingColumn

    console, begun = Console(stderr=True), time.monotonic()
    with ExitStack() as bar:
        columns = (BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
        progress = Progress("scanning", *columns, console=console, transient=True)
        task = progress.add_task("", total=None)

        def show(done: int, files: int) -> None:
            if not console.is_terminal or time.monotonic() - begun < after:
                return
            if not progress.live.is_started:
                bar.enter_context(progress)
            progress.update(task, completed=done, total=files)

        yield show
