"""Output in `try` and `with` blocks, and handlers that show an exception."""

from __future__ import annotations

import contextlib
import functools
import logging
import sys
import traceback
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor

from corpus.patterns.pattern import OUTPUT, WHERE, pattern, patterns_among, refused, signs
from corpus.patterns.shared_exceptions import Coded, TooLong, reject

Program = Callable[..., Any]
logger = logging.getLogger(__name__)
logger.setLevel(logging.INFO)


@pattern(signs, OUTPUT)
def exception_logged_by_its_handler() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            raise KeyError("missing")
        except KeyError:
            logger.exception("caught")
        return x * 2

    return program


def reject_through_another(x: Tensor) -> Tensor:
    return (
        reject(
            x,
        )
        + x
    )


def handed_on(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return wrapper


@handed_on
@torch.no_grad()
def reject_when_decorated(x: Tensor) -> Tensor:
    return reject(x)


class Rejecting(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        if x.dim() == 1:
            raise TooLong(len(x))
        return x


@pattern(signs, OUTPUT)
def exception_of_a_called_function_is_logged() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            x = reject_through_another(x)
        except ValueError:
            logger.exception("for %s", x.shape)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exception_given_by_a_keyword() -> Program:
    def program(x: Tensor) -> Tensor:
        kept = None
        try:
            reject_through_another(x)
        except ValueError as error:
            logger.warning("now", exc_info=error)
            kept = error
        logger.warning("later", exc_info=kept)
        logger.warning("nothing is handled any more", exc_info=True)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def keywords_from_a_dictionary() -> Program:
    how = {"exc_info": True}

    def program(x: Tensor) -> Tensor:
        try:
            reject(x)
        except ValueError:
            logger.error("rejected", **how)  # type: ignore[arg-type]
        return x * 2

    return program


@pattern(signs, OUTPUT)
def traceback_printed() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            reject_when_decorated(x)
        except ValueError as error:
            traceback.print_exc()
            traceback.print_exception(error, file=sys.stdout)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def traceback_formatted_in_a_message() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            reject(x)
        except ValueError as error:
            print("failed:", traceback.format_exc())
            print("".join(traceback.format_exception_only(error)), sys.exc_info()[1])
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exception_of_a_submodule() -> Any:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.ReLU(), Rejecting())

        def forward(self, x: Tensor) -> Tensor:
            try:
                x = self.inner(x)
            except TooLong as error:
                logger.exception("%s: %d", error, error.length)
            return x * 2

    return Net()


@pattern(signs, OUTPUT)
def exception_while_another_is_handled() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            try:
                reject(x)
            except ValueError:
                raise KeyError("second") from None
        except KeyError:
            logger.exception("without what was handled")
        try:
            try:
                reject(x)
            except ValueError:
                x = {"a": x}["b"]
        except KeyError:
            logger.exception("with what was handled")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exception_from_another() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            try:
                reject(x)
            except ValueError as error:
                raise RuntimeError("not usable") from error
        except RuntimeError:
            traceback.print_exc()
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exception_raised_again() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            try:
                reject(x)
            except ValueError as error:
                print("first", error)
                raise
            finally:
                print("on the way")
        except ValueError as error:
            try:
                raise error
            except ValueError:
                logger.exception("raised three times")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exceptions_of_classes_of_the_program() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            raise TooLong(len(x))
        except TooLong as error:
            print(error, repr(error), error.args, error.length)
        try:
            raise Coded(7, x.detach().sum(), "sum")
        except Coded as error:
            warnings.warn(f"{error} {error!r}", stacklevel=1)
            logger.exception("coded")
        return x * 2

    return program


@pattern(signs, OUTPUT)
def exception_in_every_iteration() -> Program:
    def program(x: Tensor) -> Tensor:
        texts = []
        for turn in range(3):
            try:
                if turn != 1:
                    raise IndexError(turn)
            except IndexError as error:
                logger.exception("turn %d", turn)
                texts.append(str(error))
        print(", ".join(texts))
        return x * 2

    return program


@pattern(
    signs,
    refused("output-shape"),
    graphs=None,
    because="Dynamo's model of Python raises the exception, with a text of its own.",
)
def exception_that_no_statement_raises() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            x = (x,)[1]
        except IndexError as error:
            print("caught", error)
        return x * 2

    return program


@pattern(
    signs,
    refused("output-shape"),
    graphs=None,
    because="The traceback goes through the frame of a generator, which others resume.",
)
def exception_of_a_generator() -> Program:
    def numbers(x: Tensor) -> Any:
        yield x
        raise ValueError("no more")

    def program(x: Tensor) -> Tensor:
        try:
            for each in numbers(x):
                x = x + each
        except ValueError:
            logger.exception("caught")
        return x * 2

    return program


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
def exception_shown_by_a_keyword() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            raise KeyError("missing")
        except KeyError as error:
            logger.error("caught %s", error, exc_info=True)
        return x * 2

    return program


@pattern(signs, OUTPUT)
def stages_entered_and_left() -> Program:
    @contextlib.contextmanager
    def stage(name: str) -> Iterator[None]:
        logger.info("begin %s", name)
        yield
        logger.info("end %s", name)

    def program(x: Tensor) -> Tensor:
        with stage("first"):
            y = x * 2
            print("inside", y.max().item())
        return y + 1

    return program


@pattern(signs, OUTPUT, WHERE)
def output_before_and_behind_a_block() -> Program:
    def program(x: Tensor) -> Tensor:
        try:
            with torch.autocast("cpu", enabled=False):
                print("in", x.shape[0])
                if x.sum() > 0:
                    print("early")
                    return x * 2
                print("late")
            x = x + 1
        finally:
            print("end")
        return x

    return program


PATTERNS = patterns_among(list(vars().values()))
