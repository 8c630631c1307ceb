"""Random functions as source: statements over small numbers, for property tests.

A program is ``f(log, a, b)``. All that it changes outside its frame is ``log``, and it ends after a
bounded number of iterations, since every iteration of a loop appends to ``log``.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator
from types import FunctionType

NAMES = ("a", "b", "c", "d")
MOST_ITERATIONS = 60


class OutOfIterations(Exception):
    """A program has looped for long enough."""


def iterate(log: list[object]) -> bool:
    """Count an iteration of a loop; always true."""
    log.append("iteration")
    if log.count("iteration") > MOST_ITERATIONS:
        raise OutOfIterations
    return True


@contextlib.contextmanager
def managed(log: list[object], swallow: bool) -> Iterator[int]:
    """Note entry and exit, and with ``swallow`` stop arithmetic errors."""
    log.append("enter")
    try:
        yield len(log) % 3
    except ArithmeticError:
        log.append("error")
        if not swallow:
            raise
    finally:
        log.append("exit")


class Into:
    """A file that writes into a log."""

    def __init__(self, log: list[object]) -> None:
        self._log = log

    def write(self, text: str) -> None:
        self._log.append(text)


def function_of(source: str) -> FunctionType:
    """Compile a program."""
    names = {
        "iterate": iterate,
        "managed": managed,
        "Into": Into,
        "__name__": "random_program",
    }
    exec(compile(source, "random_program.py", "exec"), names)
    function = names["f"]
    assert isinstance(function, FunctionType)
    return function


def program(seed: int, *, with_handlers: bool) -> str:
    """Write the program of a seed; only ``with_handlers`` may it catch or clean up exceptions."""
    writer = _Writer(random.Random(seed), with_handlers)
    head = ["def f(log, a, b):"]
    if not writer.maybe(4):
        head.append("    c = a")
    if not writer.maybe(4):
        head.append("    d = 3")
    if writer.maybe(4):
        head += [
            "    def inner(e):",
            "        nonlocal a, b",
            f"        if e > {writer.constant()}:",
            f"            a = e - {writer.constant()}",
            "        else:",
            "            b += 1",
            "        return a",
        ]
        writer.has_inner = True
    body = writer.block(1, 2 + writer.maybe(3), in_loop=False)
    return "\n".join([*head, *body, "    return a, b, c, d", ""])


class _Writer:
    """Draws statements and prints them."""

    def __init__(self, source: random.Random, with_handlers: bool) -> None:
        self._random = source
        self._with_handlers = with_handlers
        self.has_inner = False

    def maybe(self, one_in: int) -> bool:
        return self._random.randrange(one_in) == 0

    def constant(self) -> str:
        return self._random.choice(["0", "1", "2", "-1", "5"])

    def name(self) -> str:
        return self._random.choice(NAMES)

    def comparison(self) -> str:
        return self._random.choice(["<", "<=", "==", "!=", ">"])

    def expression(self, depth: int = 2) -> str:
        if depth == 0 or self.maybe(3):
            return self.name() if self.maybe(2) else self.constant()
        one, two, three = (self.expression(depth - 1) for _ in range(3))
        sign = self._random.choice(["+", "-", "//"])
        forms = [
            f"({one} {sign} {two})",
            f"({one} if {two} {self.comparison()} {three} else {two})",
            f"({one} and {two})",
            f"({one} or {two})",
            f"({one} {self.comparison()} {two} {self.comparison()} {three})",
            f"({self.name()} := {one})",
            f"(not {one})",
            f"max({one}, {two})",
            f"sum([x + 1 for x in ({self.name()}, {self.constant()}) if x > {one}])",
        ]
        return self._random.choice(forms)

    def condition(self) -> str:
        if self.maybe(2):
            return f"{self.expression(1)} {self.comparison()} {self.expression(1)}"
        return self.expression()

    def block(self, indent: int, depth: int, *, in_loop: bool) -> list[str]:
        lines: list[str] = []
        for _ in range(self._random.randint(1, 3)):
            lines += self._statement(indent, depth, in_loop)
        return lines

    def _statement(self, indent: int, depth: int, in_loop: bool) -> list[str]:
        compound = ["if", "if", "if", "for", "while", "match"]
        if self._with_handlers:
            compound += ["try", "finally", "with"]
        simple = ["set", "set", "add", "log", "print", "return", "raise", "assert", "del", "pair"]
        if in_loop:
            simple += ["break", "continue"]
        if self.has_inner:
            simple.append("call")
        kinds = simple if depth == 0 else [*compound, *compound, *simple]
        kind = self._random.choice(kinds)
        space = "    " * indent
        if kind in simple:
            return [space + self._simple(kind)]
        return [space + line for line in self._compound(kind, depth - 1, in_loop)]

    def _simple(self, kind: str) -> str:
        name, value = self.name(), self.expression()
        return {
            "set": f"{name} = {value}",
            "add": f"{name} += {value}",
            "pair": f"{name}, d = {value}, {name}",
            "log": f"log.append({value})",
            "print": f"print({value}, f'{{{name}!r:>3}}', file=Into(log))",
            "return": f"return {value}",
            "raise": f"raise ValueError({value})",
            "assert": f"assert {value}, {name}",
            "del": f"del {name}",
            "call": f"{name} = inner({value})",
        }.get(kind, kind)

    def _compound(self, kind: str, depth: int, in_loop: bool) -> list[str]:
        block = self.block(1, depth, in_loop=in_loop or kind in ("for", "while"))
        condition = self.condition()
        if kind == "if":
            return [f"if {condition}:", *block, *self._otherwise(depth, in_loop)]
        if kind == "for":
            head = self._random.choice(["range(3)", "(1, -1, 2)", "[a, b]"])
            return [f"for {self.name()} in {head}:", *block]
        if kind == "while":
            return [f"while iterate(log) and ({condition}):", *block]
        if kind == "match":
            return [
                f"match ({self.expression()}, {self.name()}):",
                "    case (0, d):",
                *(f"    {line}" for line in block),
                f"    case (c, _) if {condition}:",
                *(f"    {line}" for line in self.block(1, depth, in_loop=in_loop)),
            ]
        if kind == "with":
            swallow = self.maybe(2)
            return [f"with managed(log, {swallow}) as {self.name()}:", *block]
        other = self.block(1, depth, in_loop=in_loop)
        if kind == "finally":
            return ["try:", *block, "finally:", *other]
        caught = self._random.choice(["ValueError as error", "ArithmeticError", "Exception"])
        return ["try:", *block, f"except {caught}:", *other]

    def _otherwise(self, depth: int, in_loop: bool) -> list[str]:
        lines: list[str] = []
        kind = self._random.choice(["none", "else", "elif", "elif else"])
        if "elif" in kind:
            lines += [f"elif {self.condition()}:", *self.block(1, depth, in_loop=in_loop)]
        if "else" in kind:
            lines += ["else:", *self.block(1, depth, in_loop=in_loop)]
        return lines
