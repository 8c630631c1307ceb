"""Runs of a program that begin with the same globals, and what reads these."""

from __future__ import annotations

import collections
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from bcmend.trials.named_globals import named_globals

_CONTAINERS = (list, dict, set, collections.deque)


@contextmanager
def globals_of(make: object) -> Iterator[Callable[[], dict[str, Any]]]:
    """Yield what reads the globals that belong to a program; put them back on leaving.

    The factory of the program says which these are, before anything is patched.
    """
    found = named_globals(make)
    before = found.read()
    copies: dict[int, tuple[Any, Any]] = {}
    for value in before.values():
        _copy(value, copies)
    try:
        yield found.read
    finally:
        for key, value in before.items():
            namespace, name = found.places[key]
            namespace[name] = value
        for value, copied in copies.values():
            _put_back(value, copied)


def _copy(value: Any, copies: dict[int, tuple[Any, Any]]) -> None:
    """Note what a container or a tensor has, and what those in it have."""
    if isinstance(value, Tensor):
        copies[id(value)] = value, value.detach().clone()
    if id(value) in copies or not isinstance(value, _CONTAINERS):
        return
    copies[id(value)] = value, value.copy()
    for each in value.values() if isinstance(value, dict) else value:
        _copy(each, copies)


def _put_back(value: Any, copied: Any) -> None:
    if isinstance(value, Tensor):
        if value.shape == copied.shape and not torch.equal(value, copied):
            value.detach().copy_(copied)
        return
    value.clear()
    if isinstance(value, (dict, set)):
        value.update(copied)
    else:
        value.extend(copied)
