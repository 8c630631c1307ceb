"""Which code the frames of all threads go on with."""

from __future__ import annotations

import gc
import threading
from collections.abc import Iterator

from bcmend.dynamo import frames


def _steps() -> Iterator[int]:
    yield 1
    yield 2


def _other() -> None:
    pass


CODES = [_steps.__code__, _other.__code__]


def test_generators_have_frames_until_they_end() -> None:
    gc.collect()
    assert frames.running(CODES) == set()
    steps = _steps()
    assert frames.running(CODES) == {id(_steps.__code__)}
    list(steps)
    assert frames.running(CODES) == set()


def test_frames_of_this_and_of_other_threads_count() -> None:
    here = test_frames_of_this_and_of_other_threads_count.__code__
    entered, leaves = threading.Event(), threading.Event()

    def wait() -> None:
        entered.set()
        leaves.wait(60)

    thread = threading.Thread(target=wait)
    thread.start()
    assert entered.wait(60)
    assert frames.running([here, wait.__code__, *CODES]) == {id(here), id(wait.__code__)}
    leaves.set()
    thread.join()
    assert frames.running([wait.__code__]) == set()
