"""What to do when a mended body does not compile.

Reads the exception that Dynamo raised and the state of the body; says whether to try again. In this
order: mend the code where Dynamo stopped, if it can be mended and was not; else let the graph break
there, as it would have without bcmend; else, where the failure is not a graph break, withdraw the
sites that the failed trace had mended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import CodeType, FunctionType, TracebackType
from typing import Any, Final

from torch._dynamo import exc
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

from bcmend.runtime import sites

__all__ = [
    "BodyState",
    "CodeSplit",
    "MendedFurther",
    "Stop",
    "leave_turns_out",
    "may_break",
    "mend_inside",
    "on_read",
    "on_stop",
    "on_turns",
    "split_where_read",
    "state_of",
    "summary",
    "try_again",
]

#: A body is mended further at most so many times for one call.
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

    ``code``: the body itself, kept so that its identity stays its own.
    ``may_break``: it cannot be captured whole, so graph breaks are allowed again.
    ``repeatable``: no graph of it changed an argument in place or drew random numbers, so that a
    call that failed can be made once more; ``None`` before there was one with records.
    ``takes_numbers``: a trace of it has taken numbers out of tensors without having been asked for
    one graph; ``leaves_numbers``: that went wrong, so that later traces leave it.
    ``has_choices``: what it returns may hold choices that are made after the graph.
    ``changing``: where it has found buffers of modules that do not stay as they are.
    ``timing``: whether the records of its statements run "inline" or "deferred"; empty where the
    policy of the first one tells.
    ``newer``: code that replaced it since, from which to make the function for the next try.
    """

    code: CodeType
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
        """Take no more numbers out of tensors; ``False`` if none were."""
        taken, self.takes_numbers = self.takes_numbers, False
        self.leaves_numbers = self.leaves_numbers or taken
        return taken

    def replacement(self, body: FunctionType) -> FunctionType:
        if self.newer is None:
            return body
        return FunctionType(
            self.newer, body.__globals__, body.__name__, body.__defaults__, body.__closure__
        )


_STATES: dict[int, BodyState] = {}


def state_of(code: CodeType, *, is_body: bool = False) -> BodyState:
    """Return the state of a body, by the identity of its code.

    Code that Dynamo compiles and that no boundary has called as its body has a state as well, such
    as that of the function in which a frame goes on behind a break. Its graphs may break.
    """
    state = _STATES.get(id(code))
    if state is None:
        state = _STATES.setdefault(id(code), BodyState(code, may_break=not is_body))
    return state


def may_break(code: CodeType) -> bool:
    """Whether graph breaks are allowed in code: in a body only once they could not be helped."""
    state = _STATES.get(id(code))
    return state is None or state.may_break


def _nobody(stops: list[Stop]) -> bool:
    return False


def _no_split(stops: list[Stop], site: sites.LiveSite | None) -> bool:
    return False


#: Asked to mend the code where Dynamo stopped, innermost frame first; says whether it mended any.
on_stop: Callable[[list[Stop]], bool] = _nobody

#: Asked to split the code that reads a value which a site has left with one form on each side,
#: innermost frame first; says whether it did. No site is given for what no branch has left.
on_read: Callable[[list[Stop], sites.LiveSite | None], bool] = _no_split


#: Asked to let a loop leave turns out, innermost frame first; says whether it did.
on_turns: Callable[[list[Stop]], bool] = _nobody


class MendedFurther(exc.Unsupported):
    """The code being traced has meanwhile been mended further, and is to be traced anew."""

    def __init__(self) -> None:
        super().__init__("bcmend: mended where an arm stopped")


class CodeSplit(BaseException):
    """The code being traced has meanwhile been split, and is to be traced anew.

    No ``Exception``: many a place in Dynamo asks a value something and takes any of its own for
    "no". Raised only where a boundary waits for it.
    """


def mend_inside(tx: Any, error: exc.Unsupported | exc.UserError) -> None:
    """Mend what an arm stopped at, which the boundary would not see, since the branch stops first.

    Raises:
        MendedFurther: something was mended.
    """
    captured_whole = tx.one_graph or tx.error_on_graph_break
    is_awaited = not may_break(tx.output.root_tx.f_code)
    if captured_whole and is_awaited and on_stop(list(_stops(error))):
        raise MendedFurther from error


def split_where_read(tx: Any, site: sites.LiveSite | None) -> None:
    """Have the code being traced split where it is, for it reads what ``site`` has left.

    Raises:
        CodeSplit: that was possible.
    """
    stops = _frames_of(tx)
    if stops and on_read(stops, site):
        raise CodeSplit


def leave_turns_out(tx: Any) -> None:
    """Have the loop that is being traced written anew, so that it can leave turns out.

    Raises:
        CodeSplit: that was possible.
    """
    stops = _frames_of(tx)
    if stops and on_turns(stops):
        raise CodeSplit


def _frames_of(tx: Any) -> list[Stop]:
    """Return the frames being traced; none where their code is not to be changed any more."""
    state = state_of(tx.output.root_tx.f_code)
    if state.may_break or state.tries >= MOST_TRIES:
        return []
    stops = []
    while tx is not None:
        stops.append(_stop_at(tx))
        tx = getattr(tx, "parent", None)
    return stops


def try_again(
    state: BodyState,
    generation: int,
    error: exc.TorchDynamoException | GuardOnDataDependentSymNode | CodeSplit | IndexError,
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
        if isinstance(error, (exc.Unsupported, exc.UserError)):
            if on_stop(list(_stops(error))):
                return True
            state.may_break = True
            return True
        if state.leave_numbers():
            return True
        withdrawn = sites.withdraw_recent("not-captured", summary(error))
        if not withdrawn:
            state.may_break = True
        return True


def summary(error: BaseException) -> str:
    """Return the first two lines of a message; the first alone often only names the back end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"


def _stops(error: BaseException) -> Iterator[Stop]:
    """Return the frames being traced when ``error`` was raised, innermost first."""
    translators: dict[int, Any] = {}
    pending: list[BaseException | None] = [error]
    while pending:
        current = pending.pop()
        if current is None:
            continue
        _collect(current.__traceback__, translators)
        pending.append(current.__cause__)
    for translator in reversed(translators.values()):
        yield _stop_at(translator)


def _stop_at(translator: Any) -> Stop:
    instruction = translator.current_instruction
    position = () if instruction.positions is None else tuple(instruction.positions)
    return Stop(_function_of(translator), translator.f_code, position, instruction.opname)


def _collect(traceback: TracebackType | None, translators: dict[int, Any]) -> None:
    while traceback is not None:
        owner = traceback.tb_frame.f_locals.get("self")
        if isinstance(owner, InstructionTranslatorBase):
            translators.setdefault(id(owner), owner)
        traceback = traceback.tb_next


def _function_of(translator: Any) -> FunctionType | None:
    variable = getattr(translator, "funcvar", None)
    function = getattr(variable, "fn", None)
    return function if isinstance(function, FunctionType) else None
