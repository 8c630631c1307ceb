"""The callables that rewritten bytecode names, and what Dynamo does when it meets one.

Each is a higher-order operator, Dynamo's own extension point: while a frame is traced, the
variable class registered for its name decides; in plain Python the call returns at once, with the
answer that sends control to the original instructions.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from torch._dynamo import exc, graph_break_hints
from torch._dynamo.exc import unimplemented
from torch._dynamo.trace_rules import SkipResult
from torch._dynamo.variables import (
    BuiltinVariable,
    NestedUserFunctionVariable,
    TensorVariable,
    TupleVariable,
    higher_order_ops,
)
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.higher_order_ops import TorchHigherOrderOperatorVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._ops import HigherOrderOperator
from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

from bcmend.names import TURN_IS_MADE, UNBOUND
from bcmend.runtime import (
    arrays,
    asserted,
    assertions,
    attributes,
    backoff,
    callees,
    callers,
    clocks,
    context_variables,
    copy_calls,
    deleted,
    doubles,
    exception_classes,
    exported,
    extremes,
    failing_graphs,
    failures,
    float_tests,
    frames,
    guards,
    held_contexts,
    host_calls,
    host_functions,
    index_loops,
    inline,
    item_reads,
    ladder,
    leaves,
    lower,
    masked_stores,
    open_ranges,
    operands,
    per_trace,
    raised,
    recurrent,
    replacements,
    scalars,
    searches,
    shown_exceptions,
    sinks,
    sites,
    sizes,
    splits,
    substitution,
    texts,
    torch_checks,
    trials,
    truths,
    uncounted,
    unmerged,
    verdicts,
)
from bcmend.runtime.arms import Arm
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.open_ranges import OpenIterator
from bcmend.runtime.unmerged import Choice, Unmerged
from bcmend.runtime.watches import SiteChanged

__all__ = [
    "branch",
    "data_dependent",
    "guard",
    "nothing",
    "record",
    "recording",
    "split",
    "turn_is_made",
    "unbound",
    "undecided",
]


class _Primitive(HigherOrderOperator):
    """A callable that only means something while Dynamo traces."""

    def __init__(self, name: str, otherwise: object) -> None:
        super().__init__(f"bcmend_{name}")  # type: ignore[no-untyped-call]
        self._otherwise = otherwise

    def __call__(self, *arguments: Any, **keywords: Any) -> Any:
        return self._otherwise


class _RecordingPrimitive(_Primitive):
    """``recording`` in plain Python: output of a program that is being exported is left out."""

    def __call__(self, key: str, *question: Any) -> Any:
        return exported.is_left_out(key, question)


class _RecordPrimitive(_Primitive):
    """``record`` where Dynamo broke the graph right at it, or in a program that is exported.

    The statement runs now, or not at all.
    """

    def __call__(self, key: str, action: Any, inputs: tuple[Any, ...], *more: Any) -> Any:
        return True if exported.drop_plainly(key) else action(*inputs)


class _UnboundPrimitive(_Primitive):
    """``unbound`` in plain Python."""

    def __call__(self, value: Any) -> Any:
        return value is UNBOUND


data_dependent = _Primitive("data_dependent", False)
branch = _Primitive("branch", None)
guard = _Primitive("guard", False)
recording = _RecordingPrimitive("recording", False)
record = _RecordPrimitive("record", None)
undecided = _Primitive("undecided", False)
split = _Primitive("split", None)
nothing = _Primitive("nothing", None)
unbound = _UnboundPrimitive("unbound", None)
turn_is_made = _Primitive(TURN_IS_MADE, True)


@contextmanager
def _withdrawn_if_it_fails(site: sites.LiveSite) -> Iterator[None]:
    """Have the frame traced again without the site, where mending it goes wrong half-way."""
    try:
        yield
    except (exc.RestartAnalysis, exc.SkipFrame, backoff.MendedFurther, failures.BothRaise):
        raise
    except Exception as error:
        first = str(error).strip().splitlines()[:1]
        site.withdraw("not-captured", f"{type(error).__name__}: {' '.join(first)}")
        raise SiteChanged(restart_reason=f"bcmend: {site.key} withdrawn") from error


class _DataDependent(TorchHigherOrderOperatorVariable):
    """``data_dependent(key, condition)``: whether Dynamo would stop at a jump on ``condition``."""

    _HOP_NAME = "bcmend.data_dependent"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, condition = args[0].as_python_constant(), args[1].realize()
        site = sites.find(key)
        if site is None or not site.active or sites.not_now(site):
            return constant(False)
        if frames.drains_for_the_caller(tx):
            site.refuse("generator", "the call hands the generator out")
            return constant(False)
        return constant(_depends_on_data(tx, site, condition))


def _depends_on_data(tx: Any, site: sites.LiveSite, condition: VariableTracker) -> bool:
    if isinstance(condition, SymNodeVariable):
        if sizes.is_implied(condition):
            return False  # Dynamo is told which
        # A number out of an argument has a known value, and a guard on it; better none.
        return bool(free_unbacked_symbols(condition.sym_num)) or scalars.has_tensor(tx, condition)
    if isinstance(condition, Unmerged):
        # What is decided by the side alone is left to a split, which knows the other values too.
        is_left = frames.ends_at_a_boundary(tx) and verdicts.is_decided_by_the_side(condition)
        return not is_left and verdicts.has_truth(condition)
    if type(condition) is not TensorVariable:
        return False
    count = example_of(condition).numel()
    if not isinstance(count, int) or count != 1:
        site.refuse("multi-element-condition", f"{count} elements")
        return False
    return True


def _have_inlined(tx: Any, function: VariableTracker) -> None:
    """Tell Dynamo that it may trace a region function, as it traces the function around it.

    Finding out for itself, it would read all that the function closes over, and give up at a cell
    that the arms are the first to fill (``trace_rules.check_verbose``).
    """
    context = tx.output.tracing_context
    if isinstance(function, NestedUserFunctionVariable) and context is not None:
        verdict = SkipResult(False, "a part of a function that is being traced")
        context.previously_inlined_functions.setdefault(function.get_code(), verdict)


def _arms_of(
    tx: Any,
    function: VariableTracker,
    first: VariableTracker,
    entry: VariableTracker,
    inputs: VariableTracker,
) -> tuple[Arm, Arm]:
    """Return the two arms of which a region function is called: at ``entry`` and behind it."""
    assert isinstance(first, TupleVariable)
    _have_inlined(tx, function)
    number = entry.as_python_constant()
    then_arm, else_arm = (
        Arm(function, (*first.items, function, constant(each), inputs))
        for each in (number, number + 1)
    )
    return then_arm, else_arm


class _Branch(TorchHigherOrderOperatorVariable):
    """``branch(key, form, condition, function, first, entry, live_ins)``: live-outs, or ``None``.

    ``function`` is a region function, entered at ``entry`` if the condition is true and at the next
    one if not; ``form`` is how far the region goes (0: up to where the arms meet).
    """

    _HOP_NAME = "bcmend.branch"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, form, condition, function, first, entry, inputs = args
        site = sites.find(key.as_python_constant())
        assert site is not None
        arms = _arms_of(tx, function, first, entry, inputs)
        with _withdrawn_if_it_fails(site):
            outcome = ladder.mend_branch(
                tx,
                self.value,
                site,
                form.as_python_constant(),
                verdicts.truth_of(tx, condition.realize()),
                arms,
            )
        return constant(None) if outcome is None else outcome


class _Undecided(TorchHigherOrderOperatorVariable):
    """``undecided(key, operands)``: whether one of them has one form on each side of a branch."""

    _HOP_NAME = "bcmend.undecided"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, operands = args
        site = sites.find(key.as_python_constant())
        assert isinstance(operands, TupleVariable)
        if site is None or not site.active or sites.not_now(site):
            return constant(False)
        found = splits.first_open(tx, operands.items)
        if isinstance(found, Unmerged):
            found.require_both_sides(site)
        return constant(isinstance(found, (Choice, OpenIterator)))


class _Split(TorchHigherOrderOperatorVariable):
    """``split(key, form, function, first, entry, inputs, operands)``: live-outs, or ``None``.

    The condition is the one behind the first of ``operands`` that has two forms.
    """

    _HOP_NAME = "bcmend.split"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, form, function, first, entry, inputs, operands = args
        site = sites.find(key.as_python_constant())
        assert site is not None and isinstance(operands, TupleVariable)
        found = splits.first_open(tx, operands.items)
        if not isinstance(found, (Choice, OpenIterator)):
            return constant(None)
        arms = _arms_of(tx, function, first, entry, inputs)
        with _withdrawn_if_it_fails(site):
            outcome = splits.split(
                tx,
                self.value,
                site,
                form.as_python_constant(),
                found,
                arms,
            )
        return constant(None) if outcome is None else outcome


class _Nothing(TorchHigherOrderOperatorVariable):
    """``nothing()``: ``None``."""

    _HOP_NAME = "bcmend.nothing"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return constant(None)


class _TurnIsMade(TorchHigherOrderOperatorVariable):
    """``turn_is_made()``: whether the program makes the turn whose item lies on the stack."""

    _HOP_NAME = "bcmend.turn_is_made"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        return index_loops.turn_is_made(tx)


def _is_open_for(tx: Any, site: sites.LiveSite) -> bool:
    is_open = sinks.is_open(tx)
    if not is_open:
        site.refuse("export")
    return is_open


def _timing(tx: Any, site: sites.LiveSite, *, raises: bool) -> str:
    return "inline" if inline.is_wanted(tx, site, raises=raises) else "deferred"


class _Guard(TorchHigherOrderOperatorVariable):
    """``guard(key, condition, raises_if, action, live_ins)``: whether the exception is deferred."""

    _HOP_NAME = "bcmend.guard"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, condition, raises_if, action, inputs = args
        site = sites.find(key.as_python_constant())
        assert site is not None
        if site.guards == "keep" or not _is_open_for(tx, site):
            return constant(False)
        with _withdrawn_if_it_fails(site):
            truth = verdicts.truth_of(tx, condition.realize())
            predicate = guards.predicate_of(tx, site, truth)
            if not raises_if.as_python_constant():
                predicate = lower.negated(tx, predicate)
            made = guards.make_guard(tx, site, action, inputs, predicate)
        if made:
            sizes.note_fact(tx, condition.realize(), not raises_if.as_python_constant())
            site.mended(_timing(tx, site, raises=True))
        return constant(made)


class _Unbound(TorchHigherOrderOperatorVariable):
    """``unbound(value)``: whether a local holds the mark that it is unbound."""

    _HOP_NAME = "bcmend.unbound"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        (value,) = args
        if not value.is_realized():  # an argument of the function in which a frame goes on
            if value.peek_value() is not UNBOUND:  # type: ignore[attr-defined]
                return constant(False)  # the read that follows makes a guard on it
            value = value.realize()
        is_known = unmerged.may_be_unbound(value.unwrap())
        if is_known and isinstance(value, unmerged.Unmerged):
            value.ask()
        if is_known and not frames.is_captured_whole(tx) and not guards.handled_by_a_caller(tx):
            # What comes before is a graph then; an exception would have all of it left to Python.
            unimplemented(
                gb_type="bcmend: a local is not bound",
                context="",
                explanation="A local that has no value is read.",
                hints=[*graph_break_hints.USER_ERROR],
            )
        return constant(is_known)


#: What ``recording`` tells ``record``, which follows in the same frame, by an attribute of its
#: translator. It is not there if an argument has broken the graph in between.
_WRITES_NOTHING: Final = "_bcmend_writes_nothing"


class _Recording(TorchHigherOrderOperatorVariable):
    """``recording(key, ...)``: whether an output statement is to become a record.

    Where only a trace can tell whether the statement writes, the rest is ``callee, method, first,
    unless_silent, is_dropped``: see ``rewrite.plan.Callee`` and ``OutputLowering``.
    """

    _HOP_NAME = "bcmend.recording"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, *callee = args
        site = sites.find(key.as_python_constant())
        if site is None or not site.active or site.output == "keep":
            return constant(False)
        setattr(tx, _WRITES_NOTHING, False)
        if callee and not _writes(tx, site, *callee):
            return constant(False)
        if frames.drains_for_the_caller(tx):
            site.refuse("generator", "the call hands the generator out")
            return constant(False)
        if raised.has_doubtful_text(tx):
            site.refuse("output-shape", "the text of an exception was read that may be another one")
            return constant(False)
        return constant(True)


def _writes(
    tx: Any,
    site: sites.LiveSite,
    callee: VariableTracker,
    method: VariableTracker,
    first: VariableTracker,
    unless_silent: VariableTracker,
    is_dropped: VariableTracker,
) -> bool:
    """Whether a call is one that writes and that can be deferred."""
    name = method.as_python_constant()
    known = callees.known_as(callee, name)
    if known is None:
        return False
    if not (known.returns_none or is_dropped.as_python_constant()):
        site.refuse("output-shape", "the result of the call is used")
        return False
    is_silent = callees.is_silent(callee, name, first)
    setattr(tx, _WRITES_NOTHING, is_silent)
    reason = unless_silent.as_python_constant()
    if reason and not is_silent:
        site.refuse("output-shape", reason)
        return False
    return True


class _Record(TorchHigherOrderOperatorVariable):
    """``record(key, action, inputs[, level, shows[, trial, facts]])``: defer an output statement.

    Whether it could be. ``level`` and ``shows`` are there if the output is attributed to a caller
    or may show tracebacks, ``trial`` and ``facts`` if its arguments may fail: see
    ``OutputLowering``.
    """

    _HOP_NAME = "bcmend.record"
    _ALLOW_FALLBACK_TO_EAGER = True

    def _call_function(
        self, tx: Any, args: list[VariableTracker], kwargs: dict[str, VariableTracker]
    ) -> VariableTracker:
        key, action, inputs, *more = args
        site = sites.find(key.as_python_constant())
        assert site is not None
        (level, shows), trial = _constants(more[:2]) or (1, False), more[2:]
        if site.output == "drop":
            site.mended("dropped")
            return constant(True)
        if not sinks.is_open(tx):
            exported.drop(tx, site)
            return constant(True)
        if trial:
            with _withdrawn_if_it_fails(site):
                trials.add(tx, site, trial[0], trial[1], inputs)
        if getattr(tx, _WRITES_NOTHING, False):  # no: the graph broke since then
            site.mended("deferred", "nothing is written at this level")
            return constant(True)
        with _withdrawn_if_it_fails(site):
            if level != 1:
                action, inputs = callers.inside(tx, level, action, inputs)
            action, inputs = shown_exceptions.as_of_now(
                tx, site, action, inputs, shows_tracebacks=shows
            )
            made = guards.make_record(tx, site, action, inputs)
        if made:
            site.mended(_timing(tx, site, raises=False))
        return constant(made)


def _constants(values: Sequence[VariableTracker]) -> Any:
    return [each.as_python_constant() for each in values]


#: Modules that register answers for calls when they are imported.
ANSWERING: Final = (
    arrays,
    clocks,
    context_variables,
    copy_calls,
    doubles,
    float_tests,
    held_contexts,
    host_calls,
    host_functions,
    leaves,
    replacements,
    torch_checks,
)


def _install() -> None:
    per_trace.install()
    failing_graphs.install()
    attributes.install()
    asserted.install()
    scalars.install()
    texts.install()
    truths.install()
    operands.install()
    searches.install()
    open_ranges.install()
    deleted.install()
    doubles.install()
    extremes.install()
    masked_stores.install()
    item_reads.install()  # index_loops asks before, and knows some of these numbers
    index_loops.install()
    assertions.install()
    recurrent.install()
    callees.install()
    raised.install()
    exception_classes.install()
    substitution.install()
    leaves.install()
    held_contexts.install()
    uncounted.install()
    table = higher_order_ops._hop_name_to_variable_class
    for operator, variable in (
        (data_dependent, _DataDependent),
        (branch, _Branch),
        (guard, _Guard),
        (recording, _Recording),
        (record, _Record),
        (undecided, _Undecided),
        (split, _Split),
        (nothing, _Nothing),
        (unbound, _Unbound),
        (turn_is_made, _TurnIsMade),
    ):
        table[operator.__name__] = variable
    # Dynamo keeps the methods by which it has answered for each function and types of arguments.
    BuiltinVariable.call_function_handler_cache.clear()


_install()
