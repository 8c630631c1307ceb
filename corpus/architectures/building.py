"""Builds an architecture: a small configuration, its class, and arguments that it takes."""

from __future__ import annotations

import contextlib
import inspect
import logging
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy
import torch
from torch.nn import Module

from corpus.architectures.arguments import found_arguments
from corpus.architectures.classes import model_class
from corpus.architectures.shrinking import small_configurations
from corpus.configured.sizes import Inputs

#: Models of more parameters are left out: it would be their arithmetic that is measured.
LARGEST: Final = 40_000_000


class NotBuildable(Exception):
    """No small model of an architecture could be built and called; says why in one line."""


@dataclass(frozen=True, slots=True)
class Architecture:
    """A small model of an architecture; ``given`` are arguments that eager execution accepts."""

    name: str
    model: Any
    configuration: Any
    given: Inputs

    def build(self) -> Module:
        """Make the module, drawing its weights from torch's generator."""
        built: Module = self.model(self.configuration)
        return built

    def inputs(self) -> Inputs:
        """Return copies of the arguments."""
        return {name: value.clone() for name, value in self.given.items()}


def architecture(name: str, *, training: bool = False) -> Architecture:
    """Return the smallest model of a registered type that can be called.

    Raises `NotBuildable` with the first error of all attempts.
    """
    first: Exception | None = None
    with _unlogged():
        for configuration in small_configurations(name):
            found = _attempt(name, configuration, training=training)
            if isinstance(found, Architecture):
                return found
            first = first or found
    assert first is not None
    raise NotBuildable(_line(first)) from first


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """Drop what models and configurations log about options that do not suit them."""
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(logging.NOTSET)


def _attempt(name: str, configuration: Any, *, training: bool) -> Architecture | Exception:
    if isinstance(configuration, Exception):
        return configuration
    try:
        return _called(name, configuration, training=training)
    except Exception as error:
        # any exception of a model means that this configuration or call does not suit it
        return error


def _line(error: BaseException) -> str:
    lines = [each.strip() for each in str(error).splitlines() if each.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:160]}"


def _called(name: str, configuration: Any, *, training: bool) -> Architecture:
    seed(0)
    model_type = model_class(configuration)
    with torch.device("meta"):
        size = sum(each.numel() for each in _on_meta(model_type, configuration))
    if size > LARGEST:
        raise ValueError(f"{size / 1e6:.0f} million parameters")
    model = model_type(configuration).train(training)

    def call(given: Inputs) -> None:
        with torch.set_grad_enabled(training):
            model(**{name: value.clone() for name, value in given.items()})

    parameters = inspect.signature(model.forward).parameters
    given = found_arguments(parameters, configuration, call)
    return Architecture(name, model_type, configuration, given)


def _on_meta(model_type: Any, configuration: Any) -> list[Any]:
    """Return the parameters without their data; none where a model cannot be built so."""
    with contextlib.suppress(Exception):
        return list(model_type(configuration).parameters())
    return []


def seed(number: int) -> None:
    """Seed each generator that models draw from."""
    torch.manual_seed(number)
    random.seed(number)
    numpy.random.seed(number)
