"""Messages that are logged or warned of: levels, callers, exceptions, and once only."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import (
    GUARD,
    OUTPUT,
    WHERE,
    pattern,
    patterns_among,
    signs,
)

Program = Callable[..., Any]

logger = logging.getLogger("corpus.patterns.logs")
logger.setLevel(logging.INFO)
adapter = logging.LoggerAdapter(logger, {"rank": 3})


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


@pattern(signs, OUTPUT)
def logger_found_by_an_expression() -> Any:
    class Net(torch.nn.Module):
        log = logging.getLogger("corpus.of_the_class")

        def __init__(self) -> None:
            super().__init__()
            self.logs = {"first": logger, "second": logging.getLogger("corpus.second")}

        def forward(self, x: Tensor, level: str = "warning") -> Tensor:
            type(self).log.error("of the type")
            self.__class__.log.error("of the class")
            self.logs["first"].info("sum %s", x.sum().item())
            self.logs["second"].debug("not shown %s", x.sum().item())
            getattr(self.log, level)("by name %s", x.sum().item())
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def level_asked_before_logging() -> Program:
    def program(x: Tensor) -> Tensor:
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("not shown %s", x.sum().item())
        if logger.isEnabledFor(logging.INFO):
            logger.info("shown %s", x.sum().item())
        return x * 2

    return program


@pattern(signs, GUARD, OUTPUT)
def warned_before_a_check_fails() -> Program:
    def check(x: Tensor) -> None:
        print("checking", x.sum().item())
        if x.sum() < 0:
            warnings.warn("negative", stacklevel=2)
            raise ValueError("negative")

    def program(x: Tensor) -> Tensor:
        check(x)
        print("fine")
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
