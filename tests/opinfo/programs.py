"""Programs around an operation: in an arm, as a condition, as a number, in a loop, by a check.

The operation is ``f``, called with a sample; ``gate`` decides which way is taken. Each program is
made anew from its factory, so that it is code which nobody has met.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Program = Callable[[torch.Tensor, list[Any], dict[str, Any]], torch.Tensor]


def total(value: Any) -> torch.Tensor:
    """Return all numbers of a result in one."""
    if isinstance(value, torch.Tensor):
        number = value.abs() if value.is_complex() else value
        return torch.nan_to_num(number.to(torch.float64), nan=0.5, posinf=9.0, neginf=-9.0).sum()
    if isinstance(value, (tuple, list)):
        found = torch.zeros((), dtype=torch.float64)
        for each in value:
            found = found + total(each)
        return found
    if isinstance(value, (bool, int, float)):
        return torch.zeros((), dtype=torch.float64) + value
    return torch.ones((), dtype=torch.float64)


def arm(f: Any) -> Program:
    def program(gate: torch.Tensor, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        if gate.sum() > 0:
            y = total(f(*args, **kwargs))
        else:
            y = gate.sum() * 0.5
        return y + gate.sum()

    return program


def condition(f: Any) -> Program:
    def program(gate: torch.Tensor, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        y = total(f(*args, **kwargs))
        if y > gate.sum():
            return gate * 2 + y
        return gate - 1

    return program


def number(f: Any) -> Program:
    def program(gate: torch.Tensor, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        y = total(f(*args, **kwargs))
        n = y.detach().to(torch.int64).item()
        return gate * n + y

    return program


def loop(f: Any) -> Program:
    def program(gate: torch.Tensor, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        y = gate.sum()
        while y < 2:
            y = y + 1 + total(f(*args, **kwargs)).abs().clamp(max=1.0)
        return y

    return program


def check(f: Any) -> Program:
    def program(gate: torch.Tensor, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        y = total(f(*args, **kwargs))
        if gate.sum() < -5:
            raise ValueError("too small")
        return y * 2 + total(f(*args, **kwargs))

    return program


#: Each program's factory, by name.
PROGRAMS: dict[str, Callable[[Any], Program]] = {
    each.__name__: each for each in (arm, condition, number, loop, check)
}

GATES = ((1.0, 2.0), (-1.0, -1.5), (2.0, 2.0), (-1.0, 0.5), (-9.0, -9.0), (3.0, 0.0))


def of_constants(make: Callable[[Any], Program], f: Any) -> Program:
    """Return a program that makes the tensors of its sample of constants."""
    inner = make(f)

    def program(gate: torch.Tensor, args: list[Any], kwargs: dict[str, Any]) -> torch.Tensor:
        return inner(gate, made(args), {name: made(each) for name, each in kwargs.items()})

    return program


class Constant:
    """A tensor as its numbers."""

    def __init__(self, numbers: Any, dtype: torch.dtype) -> None:
        self.numbers, self.dtype = numbers, dtype


def made(value: Any) -> Any:
    if isinstance(value, Constant):
        return torch.tensor(value.numbers, dtype=value.dtype)
    if isinstance(value, list):
        return [made(each) for each in value]
    if isinstance(value, tuple):
        return tuple([made(each) for each in value])
    return value
