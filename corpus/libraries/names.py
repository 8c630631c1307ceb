"""Finds the public functions and modules of a library, each under its shortest name."""

from __future__ import annotations

import contextlib
import importlib
import inspect
import pkgutil
import random
import warnings
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import torch
from torch.nn import Module

from corpus.libraries.registry import Library

__all__ = ["found", "prepare", "sampled"]

#: Parts of a library that are no part of what it offers.
_BESIDE: Final = ("test", "tests", "testing", "conftest", "scripts", "examples", "utils", "typing")


def prepare(library: Library) -> None:
    """Import a library; operators that its torchvision misses without a compiler are declared."""
    with contextlib.suppress(RuntimeError):  # they are there, where torchvision is whole
        declared = torch.library.Library("torchvision", "DEF")
        declared.define("nms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        declared.define("qnms(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        _KEPT.append(declared)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        importlib.import_module(library.package)


#: What declares operators: they go with it.
_KEPT: Final[list[torch.library.Library]] = []


def sampled(library: Library, seed: int = 0) -> list[str]:
    """Return all names of a library in an order that depends on ``seed`` alone."""
    names = sorted(_names(library))
    random.Random(seed).shuffle(names)
    return names


def found(name: str) -> Any:
    """Return the function or class of a name."""
    module, _, last = name.rpartition(".")
    return getattr(importlib.import_module(module), last)


def _names(library: Library) -> set[str]:
    """Return a name for each public function and each class of modules."""
    shortest: dict[int, str] = {}
    for module in _modules(library):
        for last in _public(module):
            value = getattr(module, last, None)
            if not _is_wanted(value, library):
                continue
            name = f"{module.__name__}.{last}"
            known = shortest.get(id(value), name)
            shortest[id(value)] = min(known, name, key=lambda each: (each.count("."), each))
    return set(shortest.values())


def _modules(library: Library) -> Iterator[ModuleType]:
    for part in library.parts or (library.package,):
        with _quiet():
            module = importlib.import_module(part)
            yield module
            for each in pkgutil.walk_packages(getattr(module, "__path__", ()), f"{part}."):
                words = each.name.split(".")
                if not any(word.startswith("_") or word in _BESIDE for word in words):
                    with contextlib.suppress(Exception):  # what needs something that is not here
                        yield importlib.import_module(each.name)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings(), contextlib.suppress(ImportError):
        warnings.simplefilter("ignore")
        yield


def _public(module: ModuleType) -> list[str]:
    named = getattr(module, "__all__", None)
    return [each for each in (named or dir(module)) if not str(each).startswith("_")]


def _is_wanted(value: Any, library: Library) -> bool:
    if not str(getattr(value, "__module__", "")).startswith(library.package):
        return False
    if isinstance(value, FunctionType):
        return True
    return (
        inspect.isclass(value)
        and issubclass(value, Module)
        and not inspect.isabstract(value)
        and value.forward is not Module.forward
    )
