"""Calls that are traced as something else, in code that is patched.

Every call that Dynamo traces is looked up in the table of ``bcmend.knowledge.substitute_rows``. If
it is there, and a frame that is being traced belongs to patched code, an answer, which is a handler
in the protocol of ``bcmend.dynamo.handlers``, is asked for the value of the call. Its outcome is
noted in a site, which no bytecode names.
"""

from __future__ import annotations

import enum
import inspect
import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass, replace
from types import FunctionType, MethodType, MethodWrapperType
from typing import Any, Final, NoReturn

import torch

from bcmend.dynamo import compat, frames, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import methods, objects, translators
from bcmend.dynamo.values import Value, constant, global_of, object_behind
from bcmend.knowledge import replaced_calls
from bcmend.knowledge.substitute_rows import TABLE, Substitute
from bcmend.policy import Policy
from bcmend.tracing.deopt import rerun_policy
from bcmend.tracing.gradients import inner_backward
from bcmend.tracing.output import exception_flow
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import capture_mode, nesting_limits, site_table
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplacedCall(handlers.Call):
    """A call that may be substituted.

    Attributes:
        row: its row of the table.
        site: where the outcome is noted.
    """

    row: Substitute
    site: LiveSite


def unequal(detail: str) -> Refusal:
    """Return the refusal of a call for which nothing equal can be traced; to be raised."""
    return Refusal("no-equal-substitute", detail)


def require_always(tx: compat.Tracer, what: str) -> None:
    """Refuse what is done under a data-dependent condition."""
    if tx.output.current_tracer.parent is not None:
        raise unequal(f"it is {what} under a condition, or inside another operator")


def require_its_place(tx: compat.Tracer) -> None:
    """Refuse what has to be done once, at its place among the effects of a call."""
    if tx.export or not capture_mode.in_mended_code(tx):
        raise unequal("the graph may break, or is exported")
    require_always(tx, "called")


def require_one_graph(tx: compat.Tracer, detail: str = "the graph may break") -> None:
    """Refuse what is only equal if the call is captured in one graph."""
    if not capture_mode.in_mended_code(tx):
        raise unequal(detail)


def bound(signature: inspect.Signature, call: ReplacedCall) -> dict[str, Value] | None:
    """Return the arguments of a call by their names; ``None`` if it has others."""
    try:
        found = signature.bind(*call.args, **call.kwargs)
    except TypeError:
        return None
    found.apply_defaults()
    return {
        name: each.realize() if isinstance(each, Value) else constant(each)
        for name, each in found.arguments.items()
    }


AnswerTo = Callable[[ReplacedCall], Answer]

#: What gives the value of a call, by the name that rows of the table have for it.
ANSWERS: Final[dict[str, AnswerTo]] = {}


def answers_to(name: str) -> Callable[[AnswerTo], AnswerTo]:
    """Register the answer that rows of the table call ``name``."""

    def register(answer: AnswerTo) -> AnswerTo:
        ANSWERS[name] = answer
        return answer

    return register


@answers_to("call")
def _replaced(call: ReplacedCall) -> Answer:
    """Trace a call of the replacement; inside of that, the callable is what it was."""
    tx, replacement = call.tx, call.row.replacement
    code = getattr(replacement, "__code__", None)
    if code is not None and any(frame.f_code is code for frame in frames.being_traced(tx)):
        return PASS
    is_bound = getattr(call.function, "__self__", None) is not None  # registered as of one object
    given = [] if call.owner is None or is_bound else [call.owner]
    for each in call.row.parts:
        translators.have_inlined(tx, each, "Python in place of C")
    source = global_of(tx.output, replacement)
    function = compat.VariableTracker.build(tx, replacement, source).realize()
    if objects.is_skipped(function):
        raise unequal("Dynamo does not trace the replacement either")
    result: Answer = function.call_function(tx, [*given, *call.args], call.kwargs)
    return result


def traced(call: ReplacedCall, function: Callable[..., Any]) -> Any:
    """Trace Python of bcmend's own in place of the function that is called."""
    assert isinstance(function, FunctionType)
    tx = call.tx
    translators.have_inlined(tx, function.__code__, "Python in place of C")
    variable = compat.UserFunctionVariable(function, source=global_of(tx.output, function))
    return variable.call_function(tx, list(call.args), call.kwargs)


def is_patched(tx: compat.Tracer) -> Policy | None:
    """Return the policy over the innermost frame being traced that is patched."""
    found: Policy | None = frames.mark_over(tx)
    return found


def withdraw(site: LiveSite, detail: str, cause: BaseException | None = None) -> NoReturn:
    """Switch a substitution off, since the trace has shown that it is not equal."""
    falsify(site.unmendable("no-equal-substitute", detail), cause=cause)


# What is called

#: Functions that turned out not to be traceable, and what is known of them.
_TAKEN_OVER: Final[weakref.WeakKeyDictionary[FunctionType, Substitute]] = (
    weakref.WeakKeyDictionary()
)


def take_over(function: FunctionType, row: Substitute) -> bool:
    """Ask for an answer to calls of ``function`` from now on; ``False`` if that was so before."""
    return _TAKEN_OVER.setdefault(function, row) is row


def _row_of(tx: compat.Tracer, fn: Any) -> tuple[Substitute | None, Any, Value | None]:
    """Return the row of what Dynamo models, the callable, and what it is a method of."""
    owner = objects.owner_of_method(fn)
    owner = owner.realize() if isinstance(owner, Value) else None
    name = objects.name_of_method(fn)
    if isinstance(owner, compat.TensorVariable) and name is not None:
        return replaced_calls.of_tensor_method(name), None, owner
    held = (object_behind(fn, holder) for holder in ("fn", "value", "descriptor"))
    for value in itertools.chain(held, objects.method_objects(tx, fn)):
        if value is not None:
            row = replaced_calls.of_callable(value)
            if row is None and isinstance(value, FunctionType):
                row = _TAKEN_OVER.get(value)
            if row is None and isinstance(value, MethodType) and owner is None:
                row = replaced_calls.of_callable(value.__func__)
                if row is not None:  # Dynamo takes what a decorator holds for any other object
                    objects.attribute_of(tx, fn, "__func__").realize()  # for its guard
                    owner = objects.attribute_of(tx, fn, "__self__").realize()
                    return row, value.__func__, owner
            if row is not None:
                return row, value, owner
    return None, None, None


def _given(
    tx: compat.Tracer,
    row: Substitute | None,
    function: Any,
    owner: Value | None,
    args: Any = (),
    kwargs: Any = None,
) -> Answer:
    """Return the answer to a call of a row of the table, and note what became of it."""
    policy = None if row is None else is_patched(tx)
    if row is None or policy is None:
        return PASS
    site = site_table.site_being_traced(tx, frames.resumed(tx.f_code), "call", "call")
    if site_table.is_left_alone(site, tx, policy):
        return PASS
    call = ReplacedCall(
        tx, row.name, owner, tuple(args), dict(kwargs or {}), function, row=row, site=site
    )
    try:
        result = ANSWERS[row.answer](call)
    except compat.ObservedException:  # what the call raises in eager execution too
        site.mended("substitute", row.name)
        raise
    except Refusal as reason:
        site.refuse(reason.slug, f"{row.name}: {reason}")
        return PASS
    if result is not PASS:
        site.mended("substitute", row.name)
        rerun_policy.note(tx)  # what fails inside a graph that stock has not made
    return result


@hooks.around(
    compat.InstructionTranslatorBase,
    methods.CALL_FUNCTION,
    "calls that are replaced",
    gate=hooks.first,
)
def _call_function(inner: Any, self: Any, fn: Value, args: Any, kwargs: Any) -> None:
    nesting_limits.require_time(self)
    exception_flow.note_call(self, fn.realize())
    result = _given(self, *_row_of(self, fn.realize()), args, kwargs)
    if result is not PASS:
        self.push(result)
        return
    inner(self, *(_as_super_calls(self, fn, args) or _construction(self, fn, args)), kwargs)


def _as_super_calls(tx: compat.Tracer, fn: Value, args: Any) -> tuple[Value, Any] | None:
    """Return what `nn.Module.__init__(self)` calls, which Dynamo traces by `super()` alone.

    Dynamo has another function in the place of it, which notes the object beside, and which it does
    not trace.
    """
    model: Any = fn.realize()
    is_init = objects.is_skipped(model) and model.value is torch.nn.Module.__init__
    if is_init and args and objects.is_made_in_the_call(args[0].realize()) and is_patched(tx):
        init: Any = compat.unpatched_nn_module_init
        return compat.UserFunctionVariable(init, source=global_of(tx.output, init)), args
    return None


def _construction(tx: compat.Tracer, fn: Value, args: Any) -> tuple[Value, Any]:
    """Return what is called, with its arguments, where a metaclass makes the objects of a class.

    Dynamo passes its `__call__` by, and does not know that of `type`. Of an enumeration it gives
    one that is there. A class in its place, as in `TypedDict`, is called without the other.
    """
    model: Any = fn.realize()
    owner = objects.owner_of_method(model)
    if isinstance(model, compat.UserDefinedClassVariable):
        maker = inspect.getattr_static(type(model.value), "__call__", None)
        if isinstance(maker, type) and is_patched(tx) is not None:
            return Value.build(tx, maker), args
        is_passed_by = isinstance(maker, FunctionType) and not issubclass(model.value, enum.Enum)
        if is_passed_by and is_patched(tx) is not None:
            return Value.build(tx, maker), [fn, *args]
    elif isinstance(owner, compat.SuperVariable) and objects.name_of_method(model) == "__call__":
        made, found = objects.object_of_super(owner), objects.method_of_super(tx, owner, "__call__")
        is_of_type = isinstance(found, MethodWrapperType) and found.__objclass__ is type
        is_of_class = is_of_type and isinstance(made, compat.UserDefinedClassVariable)
        if is_of_class and is_patched(tx) is not None:
            return made, args
    return fn, args


def answer_for(tx: compat.Tracer, name: str, owner: Value) -> Answer:
    """Return what stands in for what an instruction does to ``owner``."""
    return _given(tx, TABLE[name], None, owner)


_GRADIENTS: Final = ("grad", "_grad")


@hooks.around(compat.SetAttrBuiltinVariable, methods.CALL_SETATTR, "`tensor.requires_grad = ...`")
def _store(inner: Any, self: Any, tx: compat.Tracer, obj: Any, name_var: Any, val: Any) -> Any:
    """Store ``requires_grad`` of a tensor as its method sets it, and ``grad`` to the leaf it is."""
    obj = obj.realize()
    name = name_var.as_python_constant() if name_var.is_python_constant() else None
    if name in _GRADIENTS and type(obj) is compat.TensorVariable and is_patched(tx):
        obj = inner_backward.leaf_behind(tx, obj)
    if name in replaced_calls.STORES and type(obj) is compat.TensorVariable:
        row = replaced_calls.of_tensor_method(f"{name}_")
        row = row and replace(row, name="torch.Tensor.requires_grad = ...")
        if _given(tx, row, None, obj, (val,)) is not PASS:
            return constant(None)
    return inner(self, tx, obj, name_var, val)
