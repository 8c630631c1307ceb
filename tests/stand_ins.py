"""Run mended functions in plain Python, with stand-ins for what decides while Dynamo traces.

A stand-in answers for the five primitives that rewritten code calls, and for the boundary. Every
truth jump of a function is asked for, whatever is tested, so that ordinary numbers can stand where
a model has tensors.
"""

from __future__ import annotations

import copy
import dis
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any

from bcmend.names import CALLBACK, NAMESPACE, TRACING, UNBOUND
from bcmend.policy import DEFAULT, Policy
from bcmend.rewrite.mended import Context, Mended
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import Site, SiteRefusal


@dataclass
class NothingToMend:
    """Answers as the primitives do outside a trace: control goes to the original instructions."""

    asked: list[str] = field(default_factory=list)
    UnboundLocalError = UnboundLocalError

    def data_dependent(self, key: str, condition: object) -> bool:
        self.asked.append(key)
        return False

    def known(self, key: str, condition: object) -> object:
        self.asked.append(key)
        return condition

    def recording(self, key: str, *receiver: object) -> bool:
        self.asked.append(key)
        return False

    def branch(self, *arguments: object) -> None:
        raise AssertionError("asked for a branch after the answer no")

    guard = record = branch

    def undecided(self, key: str, operands: tuple[Any, ...], subscripts: bool) -> bool:
        return False

    def unbound(self, value: object) -> bool:
        return value is UNBOUND

    def run(self, body: FunctionType, arguments: tuple[Any, ...]) -> Any:
        return body(*arguments, [])


class EverythingMended(NothingToMend):
    """Calls the arm that the condition chooses, and every action at its place."""

    def data_dependent(self, key: str, condition: object) -> bool:
        self.asked.append(key)
        return True

    def recording(self, key: str, *receiver: object) -> bool:
        self.asked.append(key)
        return True

    def branch(  # type: ignore[override]
        self,
        key: str,
        form: int,
        condition: object,
        function: FunctionType,
        first: tuple[Any, ...],
        entry: int,
        inputs: tuple[Any, ...],
    ) -> Any:
        return function(*first, function, entry if condition else entry + 1, inputs)

    def guard(  # type: ignore[override]
        self,
        key: str,
        condition: object,
        raises_if: bool,
        action: FunctionType,
        inputs: tuple[Any, ...],
    ) -> bool:
        if bool(condition) is raises_if:
            action(*inputs)
            raise AssertionError("the raising arm came back")
        return True

    def record(  # type: ignore[override]
        self, key: str, action: FunctionType, inputs: tuple[Any, ...], *more: Any
    ) -> bool:
        if len(more) > 2 and not any(hasattr(each, "__next__") for each in inputs):
            # Fails where the statement itself does. A list that is being made is not to grow by it;
            # an iterator would be at its end, and the runtime tries nothing that has one.
            more[2](*(copy.copy(each) if type(each) is list else each for each in inputs))
        action(*inputs)
        return True


class RefusedWhileTraced(EverythingMended):
    """Says that there is something to mend, then that it cannot be mended."""

    def branch(self, *arguments: object) -> None:  # type: ignore[override]
        return None

    def guard(self, *arguments: object) -> bool:  # type: ignore[override]
        return False


class TakenBack(EverythingMended):
    """Takes back what an arm did if it raises, as a trace of an arm is thrown away.

    ``log`` is the only object that the arms change. A loop whose iterations are arms in one another
    would be run again at every level, so after some branches the rest is left unchanged.
    """

    MOST_CALLS = 60

    def __init__(self, log: list[object]) -> None:
        super().__init__()
        self.log = log
        self.calls = 0

    def branch(  # type: ignore[override]
        self,
        key: str,
        form: int,
        condition: object,
        function: FunctionType,
        first: tuple[Any, ...],
        entry: int,
        inputs: tuple[Any, ...],
    ) -> Any:
        self.calls += 1
        if self.calls > self.MOST_CALLS:
            return None
        cells = _cells_of(function, *inputs)
        before = list(self.log)
        contents = [_content(cell) for cell in cells]
        # An iterator cannot be set back, so an arm that is given one is tried with a copy, and
        # with a copy of the list that a comprehension is making.
        copies = tuple(self._copy(each) for each in inputs)
        tried = [copies, inputs] if any(map(_is_iterator, inputs)) else [inputs]
        result = None
        for given in tried:
            self.log[:] = before
            for cell, content in zip(cells, contents, strict=True):
                _fill(cell, content)
            try:
                result = super().branch(key, form, condition, function, first, entry, given)
            except Exception:
                self.log[:] = before
                for cell, content in zip(cells, contents, strict=True):
                    _fill(cell, content)
                return None
        return result

    def _copy(self, value: object) -> object:
        is_made = isinstance(value, list) and value is not self.log
        return copy.copy(value) if is_made or _is_iterator(value) else value

    def guard(self, *arguments: object) -> bool:  # type: ignore[override]
        return False


def _cells_of(*values: object) -> list[Any]:
    """Return the cells of functions, and of the functions in these."""
    cells: list[Any] = []
    pending = list(values)
    while pending:
        found = getattr(pending.pop(), "__closure__", None) or ()
        new = [each for each in found if not any(each is known for known in cells)]
        cells += new
        pending += [_content(each) for each in new]
    return cells


def _is_iterator(value: object) -> bool:
    """Return whether a value is an iterator of something built in, which can be copied."""
    return isinstance(value, Iterator) and hasattr(value, "__length_hint__")


_EMPTY = object()


def _content(cell: Any) -> object:
    try:
        return cell.cell_contents
    except ValueError:
        return _EMPTY


def _fill(cell: Any, content: object) -> None:
    if content is not _EMPTY:
        cell.cell_contents = content
    elif _content(cell) is not _EMPTY:
        del cell.cell_contents


def mended(
    code: CodeType, names: Mapping[str, Any], policy: Policy = DEFAULT, *, ask: bool = True
) -> Mended:
    """Mend ``code``, and with ``ask`` as if Dynamo had stopped at each of its jumps."""
    asked = frozenset(jumps_in(code)) if ask else frozenset()
    return mend(code, Context("module", names, policy, asked))


def jumps_in(code: CodeType) -> Iterator[tuple[int, int]]:
    """Yield the places of all instructions of a function and of those nested in it."""
    for instruction in dis.get_instructions(code):
        yield id(code), instruction.offset
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from jumps_in(constant)


def installed(function: FunctionType, primitives: object, *, ask: bool = True) -> FunctionType:
    """Return ``function`` with its shell, which takes the body as if traced by Dynamo."""
    names = {
        **function.__globals__,
        NAMESPACE: primitives,
        TRACING: lambda: True,
        CALLBACK: lambda: None,
    }
    return with_code(function, mended(function.__code__, names, ask=ask).shell, names)


def with_code(function: FunctionType, code: CodeType, names: dict[str, Any]) -> FunctionType:
    """Return a function that differs from ``function`` in its code and globals alone."""
    copy = FunctionType(code, names, function.__name__, function.__defaults__, function.__closure__)
    copy.__kwdefaults__ = function.__kwdefaults__
    return copy


def sites_of(function: FunctionType, *, ask: bool = True) -> list[Site]:
    """Return the planned sites of ``function`` and of those nested in it."""
    found = mended(function.__code__, function.__globals__, ask=ask).sites
    return [site for _, site in found]


def refusals_of(function: FunctionType, *, ask: bool = True) -> set[str]:
    """Return the slugs with which sites of ``function`` are refused."""
    decisions = [site.decision for site in sites_of(function, ask=ask)]
    return {each.slug for each in decisions if isinstance(each, SiteRefusal)}


@dataclass(frozen=True)
class Outcome:
    """What can be seen of a call: the value or the error, and the last line of the traceback."""

    value: object
    error: tuple[type[BaseException], tuple[object, ...], int | None] | None


def outcome_of(function: Callable[..., object], *arguments: object, **keywords: object) -> Outcome:
    """Call ``function`` and say what became of it."""
    try:
        return Outcome(function(*arguments, **keywords), None)
    except Exception as error:
        lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__)]
        return Outcome(None, (type(error), error.args, lines[-1]))
