"""What to do when a mended body does not compile.

In this order: mend the code where Dynamo stopped, if it can be mended and was not; else let the
graph break there, as it would have without bcmend; else, where the failure is not a graph break,
withdraw the sites that the failed trace had mended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

from bcmend.dynamo import compat, frames
from bcmend.tracing.sites import site_table, strict, suspects
from bcmend.tracing.sites.session import SESSION

#: A body is mended further at most so many times for one call. Each try is a trace; of 59
#: patterns of the corpus, drawn at random, none takes more than one.
MOST_TRIES: Final = 64


@dataclass(frozen=True, slots=True)
class Stop:
    """A frame that Dynamo was tracing when it stopped.

    ``function`` is ``None`` for a frame that no function object is known of. ``position`` is the
    source position of the instruction: line, last line, column, last column (Dynamo renumbers
    instructions, so an offset would not do). ``opname`` is what Dynamo calls the instruction.
    """

    function: FunctionType | None
    code: CodeType
    position: tuple[int | None, ...]
    opname: str = ""


@dataclass(slots=True, eq=False)
class BodyState:
    """What is known of one body.

    ``may_break``: it cannot be captured whole, so graph breaks are allowed again.
    ``repeatable``: no graph of it changed an argument in place or drew random numbers, so that a
    call that failed can be made once more; ``None`` before there was one with records.
    ``timing``: whether the records of its statements run "inline" or "deferred"; empty where the
    policy of the first one tells.
    ``takes_numbers``: a trace of it has taken numbers out of tensors without having been asked for
    one graph; ``leaves_numbers``: that went wrong, so that later traces leave it.
    ``newer``: code that replaced it since, from which to make the function for the next try.
    ``has_choices``: what it returns may hold choices that are made after the graph.
    ``changing``: where it has found buffers of modules that do not stay as they are.
    """

    may_break: bool = False
    repeatable: bool | None = None
    timing: str = ""
    takes_numbers: bool = False
    leaves_numbers: bool = False
    tries: int = 0
    generation: int = 0
    newer: CodeType | None = None
    has_choices: bool = False
    changing: set[str] = field(default_factory=set)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def leave_numbers(self) -> bool:
        """Take no more numbers out of tensors; return whether any were."""
        taken, self.takes_numbers = self.takes_numbers, False
        self.leaves_numbers = self.leaves_numbers or taken
        return taken

    def replacement(self, body: FunctionType) -> FunctionType:
        """Return the function to call at the next try."""
        if self.newer is None:
            return body
        return FunctionType(
            self.newer, body.__globals__, body.__name__, body.__defaults__, body.__closure__
        )


def state_of(code: CodeType, *, is_body: bool = False) -> BodyState:
    """Return the state of a body, by the identity of its code.

    Code that Dynamo compiles and that no boundary has called as its body has a state as well, such
    as that of the function in which a frame goes on behind a break. Its graphs may break.
    """
    return SESSION.bodies.setdefault(code, lambda: BodyState(may_break=not is_body))


def begin_anew(bodies: Iterable[CodeType]) -> None:
    """Ask for whole bodies, with numbers of tensors, whatever came of it before."""
    for state in filter(None, map(SESSION.bodies.get, bodies)):
        state.may_break = state.leaves_numbers = False
        state.tries = 0


def may_break(code: CodeType) -> bool:
    """Return whether graph breaks are allowed: in a body only once they could not be helped."""
    state = SESSION.bodies.get(code)
    return state is None or state.may_break


class MendedFurther(compat.Unsupported):
    """The code being traced has meanwhile been mended further, and is to be traced anew."""

    def __init__(self) -> None:
        super().__init__("bcmend: mended where an arm stopped")


class CodeSplit(BaseException):
    """The code being traced has meanwhile been split, and is to be traced anew.

    No ``Exception``: Dynamo takes any of those for "no" where it asks a value something. Raised
    only where a boundary waits for it.
    """


def mend_inside(tx: compat.Tracer, error: compat.Unsupported | compat.UserError) -> None:
    """Mend what an arm stopped at, which the boundary would not see, since the branch stops first.

    Raises:
        MendedFurther: something was mended.
    """
    captured_whole = tx.one_graph or tx.error_on_graph_break
    is_awaited = not may_break(tx.output.root_tx.f_code)
    if captured_whole and is_awaited and SESSION.patcher.mend_where_stopped(_stops(error)):
        raise MendedFurther from error


def split_where_read(tx: compat.Tracer, site: site_table.LiveSite | None) -> None:
    """Split the code being traced where it is, for it reads what ``site`` has left.

    Raises:
        CodeSplit: that was possible.
    """
    _trace_anew_if(tx, lambda stops: SESSION.patcher.split_where_read(stops, site))


def mask_loop(tx: compat.Tracer) -> None:
    """Rewrite the loop that is being traced, so that it can skip iterations.

    Raises:
        CodeSplit: that was possible.
    """
    _trace_anew_if(tx, SESSION.patcher.mask_loop)


def _trace_anew_if(tx: compat.Tracer, rewrite: Callable[[list[Stop]], bool]) -> None:
    """Raise ``CodeSplit`` if the frames being traced may be changed, and ``rewrite`` does it."""
    state = state_of(tx.output.root_tx.f_code)
    if state.may_break or state.tries >= MOST_TRIES:
        return
    stops = list(map(_stop_at, frames.outwards(tx)))
    if stops and rewrite(stops):
        raise CodeSplit


def try_again(
    state: BodyState,
    generation: int,
    error: compat.TorchDynamoException
    | compat.GuardOnDataDependentSymNode
    | CodeSplit
    | IndexError,
) -> bool:
    """Change something so that the next try may do better; ``False`` if nothing is left."""
    with state.lock:
        if state.generation != generation:
            return True  # another thread met the same failure and has acted on it
        state.generation += 1
        state.tries += 1
        if state.tries > MOST_TRIES:
            return False
        if isinstance(error, (MendedFurther, CodeSplit)):
            return True
        if isinstance(error, (compat.Unsupported, compat.UserError)):
            if not SESSION.patcher.mend_where_stopped(_stops(error)):
                state.may_break = True
        elif not state.leave_numbers():
            strict.require_foreign(error)
            if not suspects.withdraw_recent("not-captured", summary(error)):
                state.may_break = True
        return True


def summary(error: BaseException) -> str:
    """Return the first two lines of a message; the first alone often only names the back end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"


def _stops(error: BaseException) -> list[Stop]:
    """Return the frames being traced when ``error`` was raised, innermost first."""
    translators = {id(each): each for each in _translators(error)}
    return [_stop_at(each) for each in reversed(translators.values())]


def _translators(error: BaseException | None) -> Iterator[Any]:
    """Yield Dynamo's translators in the tracebacks of an error and of its causes."""
    while error is not None:
        traceback = error.__traceback__
        while traceback is not None:
            owner = traceback.tb_frame.f_locals.get("self")
            if isinstance(owner, compat.InstructionTranslatorBase):
                yield owner
            traceback = traceback.tb_next
        error = error.__cause__


def _stop_at(translator: Any) -> Stop:
    instruction = translator.current_instruction
    position = () if instruction.positions is None else tuple(instruction.positions)
    function = getattr(getattr(translator, "funcvar", None), "fn", None)
    known = function if isinstance(function, FunctionType) else None
    return Stop(known, translator.f_code, position, instruction.opname)
