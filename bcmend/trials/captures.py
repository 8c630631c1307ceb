"""Whether a call that is captured is what it is in eager execution, all over its domain.

Makes programs of a `Domain`: the call on its own, twice, in one arm and in both, in a loop, in a
handler, printed, stored. Each program is called several times, in both of its ways, and compared
as `bcmend.verify` does. A program is text, so that one that differs can be run again.
"""

from __future__ import annotations

import functools
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from importlib import import_module
from pathlib import Path
from textwrap import indent
from typing import Any, Final

from bcmend.knowledge.domains import Domain, Place
from bcmend.reports.verdict import Difference
from bcmend.trials.apart import TriedCall, makes_copies
from bcmend.trials.observed import Way, observed_apart
from bcmend.trials.verifying import first_of

_BRANCH: Final = "if flag.sum() > 0:\n    x = x + 1\n"

#: What programs do with a call, by name; ``flag`` is a tensor of one number, of either sign. Each
#: has something that stock torch breaks at: bcmend leaves alone what torch captures as a whole.
FORMS: Final = {
    "alone": f"{_BRANCH}result = {{call}}\nreturn x, result",
    "twice": f"first = {{call}}\n{_BRANCH}second = {{call}}\nreturn x, first, second",
    "in an arm": (
        "result = None\nif flag.sum() > 0:\n    result = {call}\n    x = x + 1\nreturn x, result"
    ),
    "in both arms": (
        "if flag.sum() > 0:\n    result = {call}\nelse:\n    result = {call}\n    x = x * 3\n"
        "return x, result"
    ),
    "behind a check": (
        "if flag.sum() > 100:\n    raise ValueError(str(flag))\nresult = {call}\nreturn x, result"
    ),
    "in a loop": (
        "found = []\nfor _ in range(2):\n    found.append({call})\n"
        "    if flag.sum() > 0:\n        x = x + 1\nreturn x, found"
    ),
    "handled": (
        "try:\n    result = {call}\nexcept Exception as error:\n"
        f"    result = type(error).__name__, str(error)\n{_BRANCH}return x, result"
    ),
    "printed": f"result = {{call}}\nprint(result)\n{_BRANCH}return x",
    "stored": (
        "held['before'] = x + 1\nheld['result'] = {call}\n"
        "if flag.sum() > 0:\n    held['after'] = held['result']\nreturn x"
    ),
}
#: The form in which a call of the domain has to be captured.
ALONE: Final = "alone"

_HEAD: Final = (
    "import math\nimport random\n\nimport numpy\nimport torch\nfrom math import inf, nan\n"
)
#: What Dynamo raises where one graph is asked for that it cannot make.
_REFUSALS: Final = ("Unsupported:", "UserError:", "UncapturedHigherOrderOpError:")
_X: Final = "torch.tensor([0.5, -1.0, 2.0, 0.0, 3.5, -0.25])"
_FLAGS: Final = (2.0, -1.0)


@dataclass(frozen=True, slots=True)
class Program:
    """A program with a call, and with which arguments it is called in turn, all as text."""

    form: str
    text: str
    calls: tuple[str, ...]
    is_whole: bool = False

    def __str__(self) -> str:
        lines = [f"program({each})" for each in self.calls]
        return "\n".join([self.text, "", "", *lines])


def programs(domain: Domain, chooser: random.Random, calls: int = 4) -> Iterator[Program]:
    """Yield programs without end: all forms, in any order, and again."""
    while True:
        for form in chooser.sample(list(FORMS), len(FORMS)):
            yield _program(domain, form, chooser, calls)


def _program(domain: Domain, form: str, chooser: random.Random, calls: int) -> Program:
    lines, choices = [], {}
    for name, values in domain.arguments.items():
        kind = chooser.choice(values.of_kinds)
        if values.place is Place.CONSTANT:
            lines.append(f"{name} = {kind[0]}")
            continue
        # Mostly of one kind, so that later calls run what the first has compiled.
        choices[name] = kind if chooser.random() < 0.75 else values.texts
        if values.place is Place.READ:
            choices[name] = tuple(f"torch.tensor({each})" for each in choices[name])
            lines.append(f"{name} = {name}.item()")
        elif values.place is Place.MADE:
            lines.append(f"{name} = {name}.clone()")
    body = "\n".join([*lines, FORMS[form].format(call=domain.call)])
    head = f"def program(x, flag, held{''.join(f', {name}' for name in choices)}):\n"
    text = f"{_HEAD}{domain.setup}\n\n\n{head}{indent(body, '    ')}\n"
    made = []
    for number in range(calls):
        sign = _FLAGS[number % 2] if number < 2 else chooser.choice(_FLAGS)
        given = [_X, f"torch.tensor([{sign}])", "{}", *map(chooser.choice, choices.values())]
        made.append(", ".join(given))
    return Program(form, text, tuple(made), domain.is_whole or form == ALONE)


@dataclass(frozen=True, slots=True)
class Tried:
    """What became of a program.

    Attributes:
        difference: the first one from eager execution; ``stock`` says that stock has the same.
        is_one_graph: whether one graph was asked for, and made.
        raised: what calls raise in eager execution, in one line each; empty where they return.
    """

    difference: Difference | None
    is_one_graph: bool
    raised: tuple[str, ...]


def tried(
    program: Program, target: Callable[..., Any] | None, *, backend: str = "eager", trains: bool
) -> Tried:
    """Return what calls of a program show, mended, beside eager execution.

    Raises:
        TrialError: the calls could not be made.
    """
    with _made(program, target, trains=trains) as subject:
        runs = len(program.calls)
        return _compared(subject, Way(backend, True, runs, trains, program.is_whole))


def taken_by_stock(program: Program, target: Callable[..., Any] | None) -> bool:
    """Return whether stock torch makes one graph, and an equal one, of a program without a branch.

    It is asked for one graph.
    """
    plain = replace(program, text=program.text.replace(indent(_BRANCH, "    "), ""))
    with _made(plain, target, trains=False) as subject:
        eager = Way(None, False, len(program.calls), False)
        whole = replace(eager, backend="eager", is_whole=True)
        once = partial(observed_apart, subject, keeps_all=whole.keeps_all, is_copied=makes_copies())
        expected, found = once(eager), once(whole)
        is_refused = any(each.startswith(_REFUSALS) for each in found.raised)
        return not is_refused and first_of(expected.shown, found.shown, "eager") is None


@contextmanager
def _made(
    program: Program, target: Callable[..., Any] | None, *, trains: bool
) -> Iterator[TriedCall]:
    """Yield the program, from a file, with its calls."""
    with tempfile.TemporaryDirectory(prefix="bcmend-") as folder:
        file = Path(folder, "program.py")
        file.write_text(program.text)
        space: dict[str, Any] = {"__name__": "program", "__file__": str(file), "target": target}
        exec(compile(program.text, str(file), "exec"), space)
        first, *later = [eval(f"({each},)", space) for each in program.calls]
        for given in (first, *later) if trains else ():
            given[0].requires_grad_()
        yield TriedCall(space["program"], first, {}, later=tuple((each, {}) for each in later))


@functools.cache
def _load_all() -> None:
    """Import what each copy of the process would import anew."""
    import_module("torch._dynamo")
    for name in ("installer", "retrace", "told", "waiting"):
        import_module(f"bcmend.patching.{name}")


def _compared(subject: TriedCall, way: Way) -> Tried:
    _load_all()
    is_copied = makes_copies(goes_back=way.trains)
    calls = partial(observed_apart, subject, keeps_all=way.keeps_all, is_copied=is_copied)
    expected = calls(replace(way, backend=None, is_mended=False, is_whole=False))
    found = calls(way)
    difference = first_of(expected.shown, found.shown, way.backend)
    is_refused = way.is_whole and any(each.startswith(_REFUSALS) for each in found.raised)
    if difference is not None and is_refused:
        difference = None
    if difference is not None:
        stock = calls(replace(way, is_mended=False))
        that_call = slice(difference.call - 1, difference.call)
        in_stock = first_of(expected.shown[that_call], stock.shown[that_call], way.backend)
        is_alike = in_stock is not None and replace(in_stock, call=difference.call) == difference
        difference = replace(difference, stock=is_alike)
    return Tried(difference, way.is_whole and not is_refused, expected.raised)
