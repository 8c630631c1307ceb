"""One random program: its text, its calls, and how they become what `tests.equivalence` takes.

A program is a module's text that defines `make`, and for each call the text of its arguments, so
that it can be read, shrunk, saved and run again. Reads text; produces a factory and its inputs.
"""

from __future__ import annotations

import functools
import linecache
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any, Final

import bcmend
from tests.equivalence import Call, call

FILE: Final = "random_program.py"
INDENT: Final = "    "

HEADER: Final = """\
import collections
import contextlib
import contextvars
import copy
import functools
import io
import logging
import math
import pprint
import random
import sys
import threading
import time
import traceback
import types
import warnings

import bcmend
import numpy
import torch
from torch import nn
from torch.nn import functional

logger = logging.getLogger("random_program")
logger.setLevel(logging.INFO)
inf, nan = float("inf"), float("nan")
"""


@dataclass(frozen=True, slots=True)
class Program:
    """A random program.

    Attributes:
        body: the definitions behind `HEADER`, `make` among them.
        calls: the text between the parentheses of each call.
        training: whether gradients flow.
        policy: the text of what `bcmend.Policy` is given.
    """

    body: str
    calls: tuple[str, ...]
    training: bool = False
    policy: str = ""

    @property
    def source(self) -> str:
        return f"{HEADER}\n\n{self.body}"

    @property
    def text(self) -> str:
        """The program with its calls, to be read by people."""
        calls = "\n".join(f"# program({each})" for each in self.calls)
        policy = f"# Policy({self.policy})\n" if self.policy else ""
        return f"{self.body.rstrip()}\n{policy}{calls}\n"


@functools.lru_cache(maxsize=64)
def _code_of(source: str) -> CodeType:
    return compile(source, FILE, "exec")


def names_of(program: Program) -> dict[str, Any]:
    """Run the module of a program; return what it defines."""
    names: dict[str, Any] = {"__name__": "random_program"}
    linecache.cache[FILE] = (len(program.source), None, program.source.splitlines(True), FILE)
    exec(_code_of(program.source), names)
    return names


def factory_of(program: Program) -> Callable[[], Any]:
    """Return the function that builds a program; each object is of a module of its own."""

    def make() -> Any:
        _code_of.cache_clear()  # code that neither Dynamo nor bcmend has met
        return names_of(program)["make"]()

    return make


def inputs_of(program: Program) -> Callable[[], Sequence[Call]]:
    """Return the function that makes the arguments of all calls anew."""
    names = names_of(program)

    def inputs() -> list[Call]:
        return [eval(f"_call({each})", {**names, "_call": call}) for each in program.calls]

    return inputs


def policy_of(program: Program) -> bcmend.Policy:
    """Return the policy that a program is compiled with."""
    policy: bcmend.Policy = eval(f"Policy({program.policy})", {"Policy": bcmend.Policy})
    return policy
