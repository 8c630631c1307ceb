"""The graph breaks of a block, each once, noted where Dynamo makes it.

Dynamo logs a break in the attempt that comes to it, and makes it in the next one; an attempt that
fails has broken nothing. A frame that is left to Python as a whole is logged alone.
"""

from __future__ import annotations

import functools
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from traceback import FrameSummary
from types import FrameType, MethodType
from typing import Any, Final

import torch

from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods

_NUMBER: Final = re.compile(r"/(gb\d+)\.html")  # of the page that the message names
_EXPLANATION: Final = re.compile(r"Explanation: (.*?)(?=\n +Hint: |\n *\n|\Z)", re.DOTALL)
_RESUMED: Final = re.compile(r"torch_dynamo_resume_in_(.+)_at_\d+")
_DYNAMO: Final = str(Path(compat.DYNAMO_FILE).parent)
#: What Dynamo says where it goes back to an earlier place: the break itself is what it logged.
_AT_A_CHECKPOINT: Final = "step_unsupported"


@dataclass(frozen=True, slots=True)
class Break:
    """One graph break.

    Attributes:
        file, line, function: where the program is that broke the graph.
        kind: what Dynamo calls it.
        number: that of torch's registry, such as "GB0170"; empty where it has none.
        explanation: Dynamo's, in one line; empty where it gives none.
        module: the path of the submodule it is in; None where that is not known.
        is_whole_frame: whether all of the frame was left to Python.
        position: line, last line, column and last column of the expression, as `co_positions` has
            them; None where they are not known.
    """

    file: str
    line: int | None
    function: str
    kind: str
    number: str
    explanation: str
    module: str | None
    is_whole_frame: bool = False
    position: tuple[int, int, int, int] | None = None


class NotedBreaks(list[Break]):
    """The breaks of a block, with what is compiled at the moment.

    Attributes:
        paths: those of the submodules, by identity.
        frame: the path of the module of which the frame that is compiled is a method, or is called
            by one; None where there is none.
    """

    def __init__(self, paths: Mapping[int, str]) -> None:
        super().__init__()
        self.paths = paths
        self.frame: str | None = None

    def path_of(self, node: torch.fx.Node) -> str | None:
        """Return the path of the innermost module that a node of a graph is computed in."""
        for key in reversed(node.meta.get("nn_module_stack") or {}):
            identity = str(key).partition("@")[0]  # behind it stands which call it is
            if identity.isdecimal() and (path := self.paths.get(int(identity))) is not None:
                return path
        return self.frame


@dataclass(slots=True)
class _Conversion:
    """What was logged and made while one frame was compiled."""

    logged: list[Break] = field(default_factory=list)
    made: list[Break] = field(default_factory=list)


class _Notes:
    def __init__(self, modules: Mapping[int, str]) -> None:
        self.modules = modules
        self.found = NotedBreaks(modules)
        self.conversions: list[_Conversion] = []

    def convert(self, inner: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Compile a frame, and keep what was made of its graph."""
        self.conversions.append(_Conversion())
        try:
            converted = inner(*given, **named)
            current = self.conversions[-1]
            is_skipped = getattr(converted, "guarded_code", None) is None
            if is_skipped and current.logged:
                self.found.append(replace(current.logged[-1], is_whole_frame=True))
            elif not is_skipped:
                self.found += current.made
            return converted
        finally:
            self.conversions.pop()

    def trace(self, inner: Callable[..., Any], *given: Any, **named: Any) -> Any:
        """Make one attempt: what an earlier one has made is void."""
        if self.conversions:
            self.conversions[-1].made.clear()
        return inner(*given, **named)

    def log(self, inner: Callable[..., Any], tx: Any, *given: Any, **named: Any) -> Any:
        """Keep what Dynamo says of a break."""
        error = named.get("exc", given[-1] if given else None)
        if self.conversions and not getattr(error, "logged", False):
            self.conversions[-1].logged.append(self._described(tx, error))
        return inner(tx, *given, **named)

    def compile_subgraph(
        self,
        inner: Callable[..., Any],
        output: Any,
        tx: Any,
        reason: Any,
        *given: Any,
        **named: Any,
    ) -> Any:
        """Keep a break that is made."""
        if self.conversions and getattr(reason, "graph_break", True):
            self.conversions[-1].made.append(self._made(tx, reason))
        self.found.frame = self._module_of(output.root_tx)
        return inner(output, tx, reason, *given, **named)

    def _made(self, tx: Any, reason: Any) -> Break:
        logged = self.conversions[-1].logged
        place = _innermost(getattr(reason, "user_stack", None))
        here = [each for each in logged if place and (each.file, each.line) == place[:2]]
        if here or (logged and reason.reason == _AT_A_CHECKPOINT):
            return (here or logged)[-1]
        first_line = str(reason.reason).strip().partition("\n")[0]
        file, line, function = place or _place_of(tx)
        where = self._module_of(tx), False, _position((tx,), file, line)
        return Break(file, line, function, first_line, "", "", *where)

    def _described(self, tx: Any, error: Any) -> Break:
        text = str(getattr(error, "msg", None) or error)
        kind = getattr(error, "gb_type", None) or text.strip().partition("\n")[0]
        number, explained = _NUMBER.search(text), _EXPLANATION.search(text)
        file, line, function = _innermost(getattr(error, "real_stack", None)) or _place_of(tx)
        return Break(
            file,
            line,
            function,
            kind or type(error).__name__,
            number[1].upper() if number else "",
            " ".join(explained[1].split()) if explained else "",
            self._module_of(tx, error),
            position=_position([*frames.outwards(tx), *frames.traced_in(error)], file, line),
        )

    def _module_of(self, tx: Any, error: BaseException | None = None) -> str | None:
        """Return the path of the innermost module in one of whose methods a trace was, or runs."""
        handled = (
            None if error is None else error.__context__
        )  # of a break while another is handled
        traced = [*frames.traced_in(error), *frames.traced_in(handled)]
        for frame in (*reversed(traced), *frames.outwards(tx)):
            path = self.modules.get(id(_first_argument(frame)))
            if path is not None:
                return path
        running: FrameType | None = sys._getframe(1)
        while running is not None:
            path = self.modules.get(id(running.f_locals.get("self")))
            if path is not None:
                return path
            running = running.f_back
        return None


def _first_argument(frame: Any) -> object:
    """Return the object that a frame being traced was given first, where that is known."""
    own = frames.resumed(frame.f_code).co_varnames[:1]
    variable = frame.symbolic_locals.get(own[0]) if own else None
    if variable is not None and variable.is_realized():
        model = variable.realize()
        return model.value if isinstance(model, compat.UserDefinedObjectVariable) else None
    return getattr(frame, "f_locals", {}).get(own[0]) if own else None


def _position(
    traced: Iterable[Any], file: str, line: int | None
) -> tuple[int, int, int, int] | None:
    """Return the position of the innermost frame of ``traced`` that is at a place."""
    at_place = [each for each in traced if each.f_code.co_filename == file and each.lineno == line]
    return next(filter(None, map(frames.position_of, reversed(at_place))), None)


def _innermost(stack: Any) -> tuple[str, int | None, str] | None:
    summaries: list[FrameSummary] = list(stack or ())
    outside = [each for each in summaries if not each.filename.startswith(_DYNAMO)]
    for each in reversed(outside or summaries):
        return each.filename, each.lineno, _resumed(each.name)
    return None


def _resumed(name: str) -> str:
    """Return the name of a function, of one that goes on behind a graph break as well."""
    found = _RESUMED.fullmatch(name)
    return found[1] if found else name


def _place_of(tx: Any) -> tuple[str, int | None, str]:
    return tx.f_code.co_filename, tx.lineno, _resumed(tx.f_code.co_name)


def modules_of(called: Any) -> dict[str, torch.nn.Module]:
    """Return the submodules, by path, of a module that is called or of which a method is."""
    while isinstance(called, (functools.partial, MethodType)):
        called = called.func if isinstance(called, functools.partial) else called.__self__
    return dict(called.named_modules()) if isinstance(called, torch.nn.Module) else {}


@contextmanager
def noted_breaks(called: Any = None) -> Iterator[NotedBreaks]:
    """Yield a list that gets the graph breaks of what is compiled in the block.

    Other threads must not compile meanwhile.

    Args:
        called: what is called; of a module, or a method of one, breaks have the paths of its parts.
            Breaks of all that is compiled are noted, whatever it is; None for no paths.
    """
    notes = _Notes({id(module): name for name, module in modules_of(called).items()})
    replaced = (
        (compat.CatchErrorsWrapper, methods.CALL, notes.convert),
        (compat.convert_frame, methods.TRACE_FRAME, notes.trace),
        (compat.InstructionTranslatorBase, methods.LOG_GRAPH_BREAK, notes.log),
        (compat.OutputGraph, methods.COMPILE_SUBGRAPH, notes.compile_subgraph),
    )
    with _behind_the_hooks():
        before = [(owner, name, getattr(owner, name)) for owner, name, _ in replaced]
        for owner, name, function in replaced:
            setattr(owner, name, _in_front(function, getattr(owner, name)))
    try:
        yield notes.found
    finally:
        with _behind_the_hooks():
            for owner, name, function in before:
                setattr(owner, name, function)


@contextmanager
def _behind_the_hooks() -> Iterator[None]:
    """Have what is exchanged in the block stand behind all that bcmend replaces."""
    is_wanted = hooks.REGISTRY.is_watch_wanted
    hooks.REGISTRY.watch(is_wanted=False)
    hooks.REGISTRY.subclasses.clear()  # whose methods lead to what was there when they were made
    try:
        yield
    finally:
        hooks.REGISTRY.watch(is_wanted=is_wanted)


def _in_front(function: Callable[..., Any], inner: Callable[..., Any]) -> Callable[..., Any]:
    def noting(*given: Any, **named: Any) -> Any:
        return function(inner, *given, **named)

    return noting
