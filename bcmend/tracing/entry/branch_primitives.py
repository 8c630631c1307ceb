"""What Dynamo does at the primitives of conditional jumps."""

from __future__ import annotations

from typing import Any

from bcmend.dynamo import compat, frames, handlers
from bcmend.dynamo.models import objects, translators
from bcmend.dynamo.values import Value, constant, example_of, is_unbacked
from bcmend.names import UNBOUND
from bcmend.rewrite.sites.plan import TruthLowering
from bcmend.tracing.entry import branch_mending, path_split
from bcmend.tracing.entry.error_barrier import withdrawn_if_it_fails
from bcmend.tracing.indexing.open_places import OpenPlace
from bcmend.tracing.loops.open_ranges import OpenIterator
from bcmend.tracing.merging import lazy_phi, truth_of_phi
from bcmend.tracing.merging.lazy_phi import GatedPhi, LazyPhi
from bcmend.tracing.merging.optional_items import OptionalList
from bcmend.tracing.numbers import ahead, predicates, scalars, size_questions
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import site_table
from bcmend.tracing.speculation.arms import Arm
from bcmend.tracing.two_forms import arithmetic, sides


def data_dependent(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``data_dependent(key, condition)``: whether Dynamo would stop at a jump on ``condition``."""
    site, condition = _open_site(tx, args[0]), args[1].realize()
    if site is None:
        return constant(_is_left_by_exit(tx, args[0].as_python_constant(), condition))
    if frames.drains_for_the_caller(tx):
        site.refuse("generator", "the call hands the generator out")
        return constant(False)
    return constant(_depends_on_data(tx, site, condition))


def _is_left_by_exit(tx: compat.Tracer, key: str, condition: Value) -> bool:
    """Return whether a branch that is left out in this call is left by a side exit."""
    branch_mending.note_left_out(tx, key, condition)
    site = site_table.find(key)
    if site is None or frames.drains_for_the_caller(tx) or not tx.one_graph:
        return False
    if not isinstance(condition, compat.TensorVariable) and not site.may_have_one_side:
        return False
    if site.may_have_one_side:
        if not _depends_on_data(tx, site, condition):
            return False
        if branch_mending.is_left_by_exit(tx, site):
            return True
    site.outcome.lowering = ""  # it may have been another trace that had one side of it
    branch_mending.note_refused(tx, site)
    return False


def _open_site(tx: compat.Tracer, key: Value) -> site_table.LiveSite | None:
    site = site_table.find(key.as_python_constant())
    if site is None or not site.active:
        return None
    is_mended = site.holds(Claim.MENDED_NOW) or ahead.decides(tx, site)
    return site if is_mended else None


def _depends_on_data(tx: compat.Tracer, site: site_table.LiveSite, condition: Value) -> bool:
    if isinstance(condition, compat.SymNodeVariable):
        if size_questions.is_implied(condition):
            site.outcome.known = (
                "every size that is possible here gives the condition the same truth"
            )
            return False  # Dynamo is told which
        if _is_known_ahead(tx, condition):
            site.outcome.known = "the size is computed in front of the graph"
            return False
        # A number out of an argument has a known value, and a guard on it; better none.
        return is_unbacked(condition) or scalars.has_tensor(tx, condition)
    if isinstance(condition, LazyPhi):
        return truth_of_phi.has_truth(condition)
    if isinstance(condition, OptionalList):
        return not condition.is_sure
    if not predicates.is_of_data(condition):
        return False
    count = example_of(condition).numel()
    if not isinstance(count, int) or count != 1:
        site.refuse("multi-element-condition", f"{count} elements")
        return False
    return True


def _is_known_ahead(tx: compat.Tracer, condition: compat.SymNodeVariable) -> bool:
    """Return whether a size was compared in front of the graph; what holds is known then."""
    if not is_unbacked(condition) or scalars.has_tensor(tx, condition):
        return False
    truth = ahead.truth_of_size(tx, condition)
    if truth is not None:
        size_questions.note_fact(tx, condition, truth)
    return truth is not None


def _have_inlined(tx: compat.Tracer, function: Value) -> None:
    """Tell Dynamo that it may trace a region function, as it traces the function around it.

    It would read all that the function closes over otherwise, and give up at a cell that the arms
    are the first to fill (``trace_rules.check_verbose``).
    """
    if isinstance(function, compat.NestedUserFunctionVariable):
        reason = "a part of a function that is being traced"
        translators.have_inlined(tx, function.get_code(), reason)


def _arms_of(
    tx: compat.Tracer, function: Value, first: Value, entry: Value, inputs: Value
) -> branch_mending.Arms:
    """Return both arms of a region function, which is entered at ``entry`` and the next one."""
    assert isinstance(first, compat.TupleVariable)
    _have_inlined(tx, function)
    number = entry.as_python_constant()
    then_arm, else_arm = (
        Arm(function, (*first.items, function, constant(each), inputs))
        for each in (number, number + 1)
    )
    return then_arm, else_arm


def branch(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``branch(key, form, condition, function, first, entry, live_ins)``: live-outs, or ``None``.

    ``function`` is a region function, entered at ``entry`` if the condition is true and at the next
    one if not; ``form`` is how far the region goes (0: up to where the arms meet).
    """
    key, form, condition, function, first, entry, inputs = args
    site = site_table.find(key.as_python_constant())
    assert site is not None
    arms = _arms_of(tx, function, first, entry, inputs)
    number = form.as_python_constant()
    condition = condition.realize()
    with withdrawn_if_it_fails(site):
        if isinstance(condition, OptionalList):
            condition = condition.truth(tx)
            if condition.is_python_constant():  # it follows from a branch around this one
                return arms[0 if _truth(condition) else 1].call(tx)
        arms = _decided(tx, condition, arms)
        truth = truth_of_phi.truth_of(tx, condition)
        outcome = branch_mending.mend_branch(tx, operator, site, number, truth, arms)
    if isinstance(outcome, Arm):
        outcome = outcome.call(tx)
    return constant(None) if outcome is None else _settled(tx, outcome)


def _decided(tx: compat.Tracer, condition: Value, arms: branch_mending.Arms) -> branch_mending.Arms:
    """Return arms in which values have the form that the truth of a phi decides."""
    one, other = (truth_of_phi.side_where(condition, truth) for truth in (True, False))
    if one is None or other is None:
        return arms
    return _on_side(tx, arms[0], *one), _on_side(tx, arms[1], *other)


def _on_side(tx: compat.Tracer, arm: Arm, predicate: Value, truth: bool) -> Arm:
    return arm.with_inputs(sides.on_side(tx, arm.inputs.items, predicate, truth))


def _settled(tx: compat.Tracer, left: Value) -> Value:
    """Return what a branch has left, in few forms."""
    if type(left) is not compat.TupleVariable:
        return left
    items = [arithmetic.settled(tx, each) for each in left.items]
    is_same = all(one is other for one, other in zip(items, left.items, strict=True))
    return left if is_same else compat.TupleVariable(items)


def known(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``known(key, condition)``: its truth where that is computed in front of the graph."""
    site, condition = _open_site(tx, args[0]), args[1].realize()
    if site is None or frames.is_left_alone(tx.output.root_tx.f_code):
        return condition
    if frames.drains_for_the_caller(tx):
        site.refuse("generator", "the call hands the generator out")
        return condition
    if type(condition) is not compat.TensorVariable:
        return condition
    truth = branch_mending.truth_before(tx, site, condition)
    if truth is not None:
        return constant(truth)
    assert site.plan is not None and isinstance(site.plan.decision, TruthLowering)
    if branch_mending.is_left_by_exit(tx, site) and _depends_on_data(tx, site, condition):
        return constant(branch_mending.truth_taken(tx, site, condition))
    refusal = site.plan.decision.refusal
    site.refuse(refusal.slug, refusal.detail)
    ahead.note_condition(tx, condition, site)
    branch_mending.note_refused(tx, site)
    return condition


def _truth(value: Value) -> bool:
    return bool(value.as_python_constant())


def undecided(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``undecided(key, operands, subscripts)``: whether one of them is a phi without a common form.

    ``subscripts`` says that the operands end with a container and the place of an item: then also
    whether that is data-dependent.
    """
    key, operands, subscripts = args
    site = _open_site(tx, key)
    assert isinstance(operands, compat.TupleVariable)
    if site is None:
        return constant(False)
    found = path_split.first_open(tx, site, operands.items, subscripts=_truth(subscripts))
    if isinstance(found, LazyPhi):
        found.require_both_sides(site)
    return constant(isinstance(found, (GatedPhi, OpenIterator, OpenPlace)))


def split(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``split(key, form, function, first, entry, inputs, operands, subscripts)``: live-outs.

    The condition is that of the first of ``operands`` that has two forms, or of the place that the
    instruction reads. ``None`` where the code cannot be split.
    """
    key, form, function, first, entry, inputs, operands, subscripts = args
    site = site_table.find(key.as_python_constant())
    assert site is not None and isinstance(operands, compat.TupleVariable)
    found = path_split.first_open(tx, site, operands.items, subscripts=_truth(subscripts))
    if not isinstance(found, (GatedPhi, OpenIterator, OpenPlace)):
        return constant(None)
    arms = _arms_of(tx, function, first, entry, inputs)
    number = form.as_python_constant()
    with withdrawn_if_it_fails(site):
        outcome = path_split.split_path(tx, operator, site, number, found, arms)
    if isinstance(outcome, Arm):
        outcome = outcome.call(tx)
    return constant(None) if outcome is None else outcome


def unbound(tx: compat.Tracer, operator: Any, *args: Value) -> Value:
    """``unbound(value)``: whether a local holds the mark that it is unbound."""
    (value,) = args
    if not value.is_realized():  # an argument of the function in which a frame goes on
        if objects.unguarded_value(value) is not UNBOUND:
            return constant(False)  # the read that follows makes a guard on it
        value = value.realize()
    is_known = lazy_phi.may_be_unbound(value.unwrap())
    if is_known and isinstance(value, LazyPhi):
        value.ask()
    if (
        is_known
        and not frames.is_captured_whole(tx)
        and not deferred_exceptions.handled_by_a_caller(tx)
    ):
        # What comes before is a graph then; an exception would have all of it left to Python.
        hints = [*compat.graph_break_hints.USER_ERROR]
        what = "A local that has no value is read."
        handlers.break_graph("a local is not bound", "", what, hints=hints)
    return constant(is_known)
