"""The call reads what its own output changes: attributes of classes, variables, lists of hooks."""

from __future__ import annotations

import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import assert_equivalent, call

LOGGER = logging.getLogger("counted")
COUNT = 0
SEEN: list[str] = []


class Filter(logging.Filter):
    count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        Filter.count += 1
        return True


class Handler(logging.Handler):
    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        global COUNT
        COUNT += 1
        type(self).count += 1
        SEEN.append(record.getMessage())


class Stream(io.StringIO):
    count = 0

    def write(self, text: str) -> int:
        Stream.count += 1
        return super().write(text)


STREAM = Stream()


def _logged(x: Tensor) -> Any:
    x = x * 2 if x.sum() > 0 else x - 1
    LOGGER.warning("sum %s", x.sum())
    return x + Filter.count, Filter.count


def _handled(x: Tensor) -> Any:
    if x.sum() > 0:
        LOGGER.warning("above")
    return x + Handler.count, Handler.count


def _handled_by_a_variable(x: Tensor) -> Any:
    x = x * 2 if x.sum() > 0 else x - 1
    LOGGER.warning("sum %s", x.sum())
    return x + COUNT, COUNT


def _written(x: Tensor) -> Any:
    x = x * 2 if x.sum() > 0 else x - 1
    print("sum", x.sum(), file=STREAM)
    return x + Stream.count, Stream.count


def _printed(x: Tensor) -> Any:
    x = x * 2 if x.sum() > 0 else x - 1
    print("sum", x.sum())
    return x + Stream.count, Stream.count


def _warned(x: Tensor) -> Any:
    if x.sum() > 0:
        warnings.warn("above", stacklevel=1)
    return x + len(SEEN), len(SEEN)


@contextlib.contextmanager
def _counting_logger() -> Iterator[None]:
    handler, each = Handler(), Filter()
    LOGGER.addHandler(handler)
    LOGGER.addFilter(each)
    try:
        yield
    finally:
        LOGGER.removeHandler(handler)
        LOGGER.removeFilter(each)


@contextlib.contextmanager
def _own_stream() -> Iterator[None]:
    with contextlib.redirect_stdout(Stream()):
        yield


@contextlib.contextmanager
def _own_warnings() -> Iterator[None]:
    def show(message: Any, *others: Any, **named: Any) -> None:
        SEEN.append(str(message))

    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.showwarning = show
        yield


@pytest.mark.parametrize(
    ("program", "around"),
    [
        *((each, _counting_logger) for each in (_logged, _handled, _handled_by_a_variable)),
        (_written, contextlib.nullcontext),
        (_printed, _own_stream),
        (_warned, _own_warnings),
    ],
    ids=lambda each: each.__name__,
)
def test_output_is_counted_before_the_count_is_read(
    program: Callable[[Tensor], Any], around: Callable[[], AbstractContextManager[None]]
) -> None:
    def results(called: Callable[[Tensor], Any]) -> list[Any]:
        global COUNT
        COUNT = Filter.count = Handler.count = Stream.count = 0
        SEEN.clear()
        return [(found.tolist(), count) for found, count in map(called, given)]

    given = [torch.ones(2), -torch.ones(2), torch.ones(2)]
    with around():
        expected = results(program)
        found = results(torch.compile(bcmend.patch(program), backend="eager"))
    bcmend.unpatch()
    assert found == expected
    assert expected[-1][1] > 0


def test_a_class_that_no_output_changes_is_read_in_one_graph() -> None:
    def program(x: Tensor) -> Any:
        x = x * 2 if x.sum() > 0 else x - 1
        LOGGER.warning("sum %s", x.sum())
        print(x.sum(), file=sys.stderr)
        return x + Filter.count, len(SEEN)

    assert_equivalent(lambda: program, lambda: [call(torch.ones(2)), call(-torch.ones(2))])
