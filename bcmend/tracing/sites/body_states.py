"""What to do when a mended body does not compile.

In this order: mend the code where Dynamo stopped, if it can be mended and was not; else let the
graph break there, as it would have without bcmend; else, where the failure is not a graph break,
withdraw the sites that the failed trace had mended.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from enum import Enum, auto
from types import CodeType, FunctionType
from typing import Any, Final

import sympy
import torch

from bcmend.analysis import run_once
from bcmend.bytecode.decode import operation
from bcmend.dynamo import compat, frames
from bcmend.dynamo.models import translators
from bcmend.dynamo.shape_env import symbols_in
from bcmend.dynamo.slots import Slot
from bcmend.tracing.search import budget, strict
from bcmend.tracing.search.assumptions import Claim, Finding, assume_again
from bcmend.tracing.search.falsified import Rewritten, weaken
from bcmend.tracing.sites import site_table, suspects
from bcmend.tracing.sites.live_state import LEFT_OUT_NOW, with_code
from bcmend.tracing.sites.live_state import BodyState as BodyState
from bcmend.tracing.sites.live_state import Stop as Stop
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.session import SESSION


def state_of(code: CodeType, *, is_body: bool = False) -> BodyState:
    """Return the state of a body, by the identity of its code.

    Code that Dynamo compiles and that no boundary has called as its body has a state as well, such
    as that of the function in which a frame goes on behind a break. Its graphs may break.
    """
    return SESSION.bodies.setdefault(code, lambda: BodyState(code.co_qualname, is_body))


def assume_anew(bodies: Iterable[CodeType]) -> None:
    """Assume of bodies all that was assumed at first, whatever came of it before."""
    for state in filter(None, map(SESSION.bodies.get, bodies)):
        state.findings = {}


def may_break(code: CodeType) -> bool:
    """Return whether graph breaks are allowed: in a body only once they could not be helped."""
    state = SESSION.bodies.get(code)
    return state is None or state.may_break


class TooManyVariants(BaseException):
    """As many variants are compiled of a body as Dynamo compiles, for numbers given to it."""


def require_room(code: CodeType) -> None:
    """Have the numbers of a call left in tensors if they would make one variant too many.

    Raises:
        TooManyVariants: they would.
    """
    state = SESSION.bodies.get(code)
    if state is not None and state.slices and frames.is_at_the_limit(code):
        raise TooManyVariants


def without_numbers(body: FunctionType, state: BodyState) -> FunctionType:
    """Return the function to call where numbers of tensors are left to Dynamo."""
    if state.spare is None:
        state.spare = body.__code__.replace()
        let_break(state_of(state.spare, is_body=True), "a number would make one variant too many")
    return with_code(body, state.spare)


def let_break(state: BodyState, evidence: str) -> None:
    """Allow graph breaks in a body, which is then told as on torch alone that it is compiled."""
    assume_again(state, Claim.COMPILED_PATH)
    weaken(Finding(Claim.WHOLE, state, evidence=evidence))


#: Whether a trace has come to a range up to a number that is not known.
HAS_OPEN_RANGES: Final[Slot[bool]] = Slot(bool, rolls_back=False)


def mend_inside(
    tx: compat.Tracer,
    error: compat.Unsupported | compat.UserError,
    to_be_widened: Collection[site_table.LiveSite] = (),
) -> None:
    """Mend what an arm stopped at, which the boundary would not see, since the branch stops first.

    Turns of a loop over a range that is not known are arms too: its number is had first. Code is
    not split for a branch ``to_be_widened``, which may stop inside itself, as in turns of a loop.

    Raises:
        Rewritten: something was mended, or numbers are computed in front of the graph.
    """
    if HAS_OPEN_RANGES.of(tx.output):
        take_ahead(tx)
    with site_table.to_be_widened(to_be_widened):
        _mend_at(tx, _stops(error), error)


#: Where iterations of loops have asked whether a number is in a range, as ``n < 30`` does.
_QUESTIONS: Final[Slot[list[list[Stop]]]] = Slot(list, rolls_back=False)


def note_question(tx: compat.Tracer, error: compat.UserError) -> None:
    """Note a question about a carried number: the loop is unrolled, where that is not too much."""
    _QUESTIONS.of(tx.output).append(_stops(error))


def mend_at_questions(tx: compat.Tracer) -> None:
    """Mend the jumps at such questions, for a loop that is too long to be unrolled.

    Raises:
        Rewritten: something was mended.
    """
    for stops in _QUESTIONS.of(tx.output):
        _mend_at(tx, stops, None)


def _mend_where_stopped(stops: list[Stop]) -> bool:
    """Mend further where a trace has stopped, while there is time; return whether that is new."""
    return not budget.is_over() and SESSION.patcher.mend_where_stopped(stops)


def mend_without_boundary(code: CodeType, error: BaseException) -> bool:
    """Mend where a trace of ``code`` has stopped, without a boundary; return whether it is new."""
    state = state_of(code)
    return _mend_where_stopped(_stops(error)) or state.look_at_items() or state.sides.leave()


def _mend_at(tx: compat.Tracer, stops: list[Stop], cause: BaseException | None) -> None:
    captured_whole = tx.one_graph or tx.error_on_graph_break
    is_awaited = not may_break(tx.output.root_tx.f_code)
    if captured_whole and is_awaited and _mend_where_stopped(stops):
        raise Rewritten from cause


def split_where_read(
    tx: compat.Tracer, site: site_table.LiveSite | None, *findings: Finding
) -> None:
    """Split the code being traced where it is, for it reads what ``site`` has left.

    ``findings`` are then made.

    Raises:
        Rewritten: that was possible.
    """

    def split(stops: list[Stop]) -> bool:
        is_split = SESSION.patcher.split_where_read(stops, site)
        return is_split and (weaken(*findings) or True)

    _trace_anew_if(tx, split, *findings)


def mend_jump(tx: compat.Tracer) -> None:
    """Have the jump that is being traced become a site, for what it tests has two forms.

    Raises:
        Rewritten: that was possible.
    """
    _trace_anew_if(tx, SESSION.patcher.mend_jump)


def widen(
    tx: compat.Tracer, site: site_table.LiveSite, refusal: Refusal, *findings: Finding
) -> None:
    """Have the arms of a branch go on further: what they leave is read, and cannot be merged.

    ``findings`` are then made. The next trace would refuse the branch and stop at its jump.

    Raises:
        Rewritten: that was possible.
    """

    def widened(_: list[Stop]) -> bool:
        site.refuse(refusal.slug, str(refusal))
        if not SESSION.patcher.widen(site):
            return False
        weaken(*findings)
        return True

    _trace_anew_if(tx, widened, *findings)


def mask_loop(tx: compat.Tracer) -> None:
    """Have a loop be able to skip iterations. Raises ``Rewritten`` if that was possible."""
    _trace_anew_if(tx, SESSION.patcher.mask_loop)


def join_exits(tx: compat.Tracer, site: site_table.LiveSite) -> None:
    """Have the turns of a loop end at one test. Raises ``Rewritten`` if that was possible."""
    _trace_anew_if(tx, lambda _: SESSION.patcher.join_exits(site))


def _trace_anew_if(
    tx: compat.Tracer, rewrite: Callable[[list[Stop]], bool], *findings: Finding
) -> None:
    """Raise ``Rewritten`` if the frames being traced may be changed, and ``rewrite`` does it."""
    state = state_of(tx.output.root_tx.f_code)
    if (state.may_break and not tx.one_graph) or budget.is_over():
        return
    stops = list(map(_stop_at, frames.outwards(tx)))
    if stops and rewrite(stops):
        raise Rewritten(*findings)


def take_ahead(tx: compat.Tracer, asked: Iterable[Any] = ()) -> None:
    """Have the numbers that the trace has noted computed in front of the graph, if there are any.

    ``asked`` are the symbols of those of which something has to be known.

    Raises:
        Rewritten: there are.
    """
    state = state_of(tx.output.root_tx.f_code)
    if not state.may_break and state.have_numbers(asked):
        raise Rewritten


def take_condition_ahead(tx: compat.Tracer, condition: Any) -> None:
    """Have the numbers that a condition compares computed in front, if the trace has noted them.

    Raises:
        Rewritten: it has.
    """
    if isinstance(condition, torch.SymBool) and symbols_in(condition):
        state = state_of(tx.output.root_tx.f_code)
        take_ahead(tx, _symbols_asked(state, condition.node.expr))


def have_tried(state: BodyState) -> None:
    """Have computed in front what a trace has gone by, which is of the call being traced.

    Raises:
        Rewritten: always, but where another thread has done so.
    """
    if state.have_tried():
        raise Rewritten


#: For lists to which one side appends so often there is a path for each length, of which there are
#: eight; of more items the condition under which one is there is looked at first.
_FEW_ITEMS: Final = 3


class Next(Enum):
    """How a call goes on after its body was not captured."""

    AGAIN = auto()  # the body is traced again
    PLAINLY = auto()  # the call runs in plain Python


def next_try(
    state: BodyState,
    generation: int,
    error: compat.TorchDynamoException
    | compat.GuardOnDataDependentSymNode
    | Rewritten
    | IndexError
    | AssertionError,
) -> Next:
    """Assume less of a body that was not captured, so that its next trace does better."""
    with state.lock:
        if state.generation != generation:
            return Next.AGAIN  # another thread met the same failure and has acted on it
        state.generation += 1
        if isinstance(error, Rewritten):
            return Next.AGAIN
        behind = _behind(error)
        if budget.is_long_over():
            if not state.sides.leave():
                let_break(state, budget.over())
        elif isinstance(behind, (compat.Unsupported, compat.UserError)):
            return _next_behind_a_break(state, error, behind)
        elif isinstance(error, compat.TorchRuntimeError) and (
            SESSION.patcher.call_on_the_host(_stops(error)) or state.have_sizes()
        ):
            pass  # an operation may have failed for what was assumed of a size
        elif not (
            state.have_numbers(_asked_about(state, error))
            or state.leave_numbers()
            or state.look_at_items()
            or _takes_the_other_path(state)
        ):
            strict.require_foreign(error)
            was_changed = suspects.withdraw_recent("not-captured", summary(error))
            if not (was_changed or state.sides.turn()):
                let_break(state, summary(error))
        return Next.AGAIN


def _next_behind_a_break(state: BodyState, error: Any, behind: BaseException) -> Next:
    if _tells_a_tensor(behind) and weaken(Finding(Claim.SETTLED, state)):
        return Next.PLAINLY  # no substitute has it; what the call computes is told so once
    stops = _stops(error, behind)
    if (
        (is_of_the_program(error) and state.take_constants_for_data())
        or (budget.is_half_over() and state.leave_empty())
        or _mend_where_stopped(stops)
        or _look_at_items(state, behind, _FEW_ITEMS)
        or _have_numbers(state, error, behind)
        or (_is_a_branch(behind) and state.have_truth())
        or _look_at_items(state, behind)
        or state.leave_empty()
        or state.sides.leave()
    ):
        return Next.AGAIN
    if _sets_up(stops) and weaken(Finding(Claim.SETTLED, state)):
        return Next.PLAINLY
    if not _takes_the_other_path(state):
        let_break(state, "")
    return Next.AGAIN


#: What is said where a list decides a jump of which it depends on data how long it is.
LIST_DECIDES: Final = "a jump on a list"
#: Why a branch is refused that has changed what is read later.
READ_LATER: Final = Refusal("arms-differ", "what the sides of a branch change is read later")


def _look_at_items(state: BodyState, behind: BaseException, at_most: int | None = None) -> bool:
    """Take nothing for granted of lists to which one side appends; return whether that is new.

    A jump on such a list would look at it in the next trace too: what the branch leaves is merged
    then, or its arms go on further, at once.
    """
    branches = {(each.subject, each.of) for each in state.noted_open if _is_added_up(each)}
    if not state.look_at_items(at_most):
        return False
    if getattr(behind, "gb_type", "") == f"bcmend: {LIST_DECIDES}" and len(branches) == 1:
        ((site, form),) = branches
        weaken(Finding(Claim.READ_APART, site, form))
        if isinstance(site, site_table.LiveSite) and not form:
            site.refuse(READ_LATER.slug, READ_LATER.detail)
            SESSION.patcher.widen(site)
    return True


def _is_added_up(finding: Finding) -> bool:
    return finding.claim is Claim.ADDED_UP


def _have_numbers(state: BodyState, error: BaseException, behind: BaseException) -> bool:
    """Have numbers computed in front, and the condition of a branch that later traces pass by."""
    is_new = state.have_numbers(_asked_about(state, error))
    slug, _ = site_table.recent_refusal() or ("", "")
    is_passed_by = slug in LEFT_OUT_NOW and _is_a_branch(behind)
    return (is_passed_by and state.have_truth()) or is_new


def _takes_the_other_path(state: BodyState) -> bool:
    """Have code that asks whether it is being compiled told no; return whether that is new."""
    return state.asks_whether_compiled and weaken(Finding(Claim.COMPILED_PATH, state))


def note_captured(state: BodyState) -> None:
    """Let a later call of a captured body run in plain Python again, should it set something up."""
    assume_again(state, Claim.SETTLED)
    state.sides.note_captured()


def is_of_the_program(error: BaseException) -> bool:
    """Return whether the program raises an exception that it does not catch, wherever it goes."""
    return getattr(_behind(error), "gb_type", "") == "Observed exception"


#: What is said where the order of tuples depends on data.
UNKNOWN_ORDER: Final = "the order of tuples"


def _is_a_branch(error: BaseException | None) -> bool:
    """Return whether Dynamo has stopped at a jump on data, or at a comparison that decides one."""
    kinds = ("Data-dependent branching", f"bcmend: {UNKNOWN_ORDER}")
    return getattr(error, "gb_type", "") in kinds


def _behind(error: BaseException) -> BaseException | None:
    """Return what an error is about: Dynamo fails where it would show a graph that is empty."""
    behind: BaseException | None = error
    while isinstance(behind, (compat.InternalTorchDynamoError, SyntaxError)):
        behind = behind.__context__
    return behind


def _asked_about(state: BodyState, error: BaseException) -> set[Any]:
    """Return the symbols of data-dependent numbers that torch wanted to know something of."""
    found: set[Any] = set()
    pending: BaseException | None = error
    while pending is not None:
        if isinstance(pending, compat.GuardOnDataDependentSymNode):
            found |= _symbols_asked(state, pending.cond)
        if isinstance(pending, compat.AsPythonConstantNotImplementedError):
            found |= symbols_in(getattr(pending.vt, "sym_num", None))
        pending = pending.__cause__ or pending.__context__
    return found


def _symbols_asked(state: BodyState, condition: Any) -> set[Any]:
    """Return the symbols of a condition, and of the fractions that are read beside its own.

    That is of those alone of which it asks for the whole part, as of a size: where torch has to
    know one of the sizes that a line reads, it mostly has to know the others.
    """
    whole = [each for each in condition.atoms(sympy.Function) if each.is_integer]
    parts = {symbol for each in whole for symbol in each.free_symbols if not symbol.is_integer}
    return set(condition.free_symbols) | state.read_beside(parts)


def summary(error: BaseException) -> str:
    """Return the first two lines of a message; the first alone often only names the back end."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:2])}"


def _stops(*errors: BaseException) -> list[Stop]:
    """Return the frames being traced when errors were raised, the outer ones first, from within."""
    traced = {id(each): each for error in errors for each in frames.traced_in(error)}
    return [_stop_at(each) for each in reversed(traced.values())]


def _tells_a_tensor(behind: BaseException) -> bool:
    """Return whether Dynamo has stopped where a tensor from outside is told to have gradients."""
    return getattr(behind, "gb_type", "") == "Unsupported Tensor.requires_grad_() call"


def _sets_up(stops: Sequence[Stop]) -> bool:
    """Return whether Dynamo has stopped in code that runs in a first call alone."""
    return run_once.runs_once(
        run_once.Place(SESSION.patcher.source_of(each.code), each.position, each.names)
        for each in stops
        if frames.is_of_the_program(each.code)
    )


def _stop_at(translator: Any) -> Stop:
    instruction = translator.current_instruction
    position = () if instruction.positions is None else tuple(instruction.positions)
    function = translators.function_of(translator)
    known = function if isinstance(function, FunctionType) else None
    return Stop(known, translator.f_code, position, operation(instruction), translator.f_globals)
