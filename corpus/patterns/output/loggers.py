"""Output by loggers and warnings: levels, callers, adapters, filters."""

from __future__ import annotations

import functools
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import OUTPUT, WHERE, pattern, patterns_among, signs

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@pattern(signs, OUTPUT)
def logging_with_arguments() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.info("mean %.3f of %s", x.mean().item(), tuple(x.shape))
        logger.warning("plain")
        logger.debug("not shown %s", x.sum().item())
        logger.log(logging.ERROR, "level %d", 4)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logging_to_the_root() -> Program:
    def program(x: Tensor) -> Tensor:
        logging.warning("total %s", x.sum().item())
        logging.info("not shown")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def logger_held_by_an_object() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.log = logging.getLogger("corpus.patterns.net")

        def forward(self, x: Tensor) -> Tensor:
            self.log.warning("%s has %d", "vector", x.numel(), stack_info=False)
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def warning_with_a_category() -> Program:
    def program(x: Tensor) -> Tensor:
        warnings.warn("plain", stacklevel=1)
        warnings.warn(f"total {x.sum().item():.1f}", FutureWarning, stacklevel=1)
        warnings.warn(DeprecationWarning("old"), stacklevel=1)
        return x * 2

    return program


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


@pattern(
    signs,
    "refused: cannot-snapshot",
    graphs=None,
    because="The block keeps its warnings in a list, which the call reads.",
)
def warnings_are_gathered_and_counted() -> Program:
    def program(x: Tensor) -> Tensor:
        with warnings.catch_warnings(record=True) as gathered:
            warnings.simplefilter("always")
            warnings.warn(f"sum {x.detach().sum()}", stacklevel=1)
            warnings.warn("again", stacklevel=1)
        for each in gathered:
            print("gathered", each.message)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def child_of_a_logger() -> Program:
    def program(x: Tensor) -> Tensor:
        logger.getChild("part").warning("sum %s", x.sum().item())
        child = logger.getChild("other")
        child.info("max %.1f", x.max().item())
        return x * 2

    return program


class _Stepped(logging.LoggerAdapter):  # type: ignore[type-arg]
    def process(self, msg: Any, kwargs: Any) -> Any:
        return f"[{(self.extra or {})['step']}] {msg}", kwargs


@pattern(signs, OUTPUT)
def adapter_whose_step_changes() -> Program:
    extra = {"step": 0}
    adapter = _Stepped(logger, extra)

    def program(x: Tensor) -> Tensor:
        extra["step"] = 1
        adapter.info("first %s", x.sum().item())
        extra["step"] = 2
        adapter.warning("second")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def warnings_silenced_for_a_while() -> Program:
    def program(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("hidden", stacklevel=1)
        warnings.warn("shown", stacklevel=1)
        return x * 2

    return program


PATTERNS = patterns_among(list(vars().values()))
