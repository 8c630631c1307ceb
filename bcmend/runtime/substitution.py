"""Calls that are traced as something else, in code that is patched.

Every call that Dynamo traces is looked up in the table of ``bcmend.substitutes``. If it is there,
and a frame that is being traced belongs to patched code, an *answer* is asked for the value of the
call; where it has none, the call goes to Dynamo as ever. Code that is not patched is never touched.
What became of each call is kept in a site, which no bytecode names.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from types import CodeType, FunctionType
from typing import Any, Final

from torch._dynamo import exc
from torch._dynamo.symbolic_convert import InstructionTranslatorBase
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker
from torch._dynamo.variables.builtin import SetAttrBuiltinVariable

from bcmend import substitutes
from bcmend.policy import Policy
from bcmend.runtime import frames, raised, repeats, sites
from bcmend.runtime.merge import constant
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged
from bcmend.substitutes import Substitute

__all__ = [
    "ANSWERS",
    "Call",
    "Refused",
    "answer_for",
    "answers_to",
    "install",
    "is_patched",
    "require_always",
    "take_over",
    "withdraw",
]


@dataclass(frozen=True, slots=True)
class Call:
    """A call that may be substituted.

    Attributes:
        tx: the translator of the frame that makes it.
        row: its row of the table.
        site: where it is noted what becomes of it.
        function: the callable, if it is no method of something that is traced.
        owner: what it is a method of.
        args, kwargs: what it is called with, without the owner.
    """

    tx: Any
    row: Substitute
    site: LiveSite
    function: Any
    owner: VariableTracker | None
    args: tuple[VariableTracker, ...]
    kwargs: dict[str, VariableTracker]


class Refused(Exception):
    """Nothing that can be traced is equal to a call, for the reason given."""


def require_always(tx: Any, what: str) -> None:
    """Refuse what is done under a condition that only the data tell."""
    if tx.output.current_tracer.parent is not None:
        raise Refused(f"it is {what} under a condition, or inside another operator")


Answer = Callable[[Call], VariableTracker | None]

#: What gives the value of a call, by the name that rows of the table have for it. ``None`` and
#: ``Refused`` leave the call to Dynamo; the second is worth reporting.
ANSWERS: Final[dict[str, Answer]] = {}


def answers_to(name: str) -> Callable[[Answer], Answer]:
    """Register the answer that rows of the table call ``name``."""

    def register(answer: Answer) -> Answer:
        ANSWERS[name] = answer
        return answer

    return register


# Which code


def _nobody(code: CodeType) -> Policy | None:
    return None


#: The policy under which code was patched; ``None`` for other code. Set by the installation.
policy_over: Callable[[CodeType], Policy | None] = _nobody


def is_patched(tx: Any) -> Policy | None:
    """Return the policy over the innermost frame being traced that is patched."""
    for frame in frames.being_traced(tx):
        policy = policy_over(frames.resumed(frame.f_code))
        if policy is not None:
            return policy
    return None


def withdraw(site: LiveSite, detail: str) -> SiteChanged:
    """Switch a substitution off, since the trace has shown that it is not equal; to be raised."""
    site.withdraw("no-equal-substitute", detail)
    return SiteChanged(restart_reason=f"bcmend: {site.key} withdrawn")


# What is called

#: Functions that turned out not to be traceable, and what is known of them.
_TAKEN_OVER: Final[dict[FunctionType, Substitute]] = {}


def take_over(function: FunctionType, row: Substitute) -> bool:
    """Ask for an answer to calls of ``function`` from now on; ``False`` if that was so before."""
    return _TAKEN_OVER.setdefault(function, row) is row


def _row_of(fn: Any) -> tuple[Substitute | None, Any, VariableTracker | None]:
    """Return the row of what Dynamo models, the callable, and what it is a method of."""
    owner = getattr(fn, "obj", None)
    if isinstance(owner, VariableTracker):
        owner = owner.realize()
        name = getattr(fn, "name", None)
        if isinstance(owner, TensorVariable) and isinstance(name, str):
            return substitutes.of_tensor_method(name), None, owner
    for holder in ("fn", "value", "descriptor"):
        value = getattr(fn, holder, None)
        if value is not None:
            row = substitutes.of_callable(value) or _row_taken_over(value)
            if row is not None:
                return row, value, owner if isinstance(owner, VariableTracker) else None
    return None, None, None


def _row_taken_over(value: Any) -> Substitute | None:
    return _TAKEN_OVER.get(value) if isinstance(value, FunctionType) else None


def _answer(tx: Any, fn: Any, args: Any, kwargs: Any) -> VariableTracker | None:
    row, function, owner = _row_of(fn)
    policy = None if row is None else is_patched(tx)
    if row is None or policy is None:
        return None
    return _given(tx, policy, row, function, owner, tuple(args), dict(kwargs))


def _given(
    tx: Any,
    policy: Policy,
    row: Substitute,
    function: Any,
    owner: VariableTracker | None,
    args: tuple[VariableTracker, ...],
    kwargs: dict[str, VariableTracker],
) -> VariableTracker | None:
    site = sites.being_traced(tx, frames.resumed(tx.f_code), "call", "call")
    if not site.active or policy.is_off(site.key):
        return None
    try:
        result = ANSWERS[row.answer](Call(tx, row, site, function, owner, args, kwargs))
    except exc.ObservedException:  # what the call raises in eager execution too
        site.mended("substitute", row.name)
        raise
    except Refused as reason:
        site.refuse("no-equal-substitute", f"{row.name}: {reason}")
        return None
    if result is not None:
        site.mended("substitute", row.name)
        repeats.note(tx)  # what fails inside a graph that stock has not made
    return result


_DYNAMOS_CALL: Final = InstructionTranslatorBase.call_function


def _call_function(self: Any, fn: VariableTracker, args: Any, kwargs: Any) -> None:
    raised.note_call(self, fn.realize())
    result = _answer(self, fn.realize(), args, kwargs)
    if result is None:
        _DYNAMOS_CALL(self, fn, args, kwargs)
    else:
        self.push(result)


_DYNAMOS_STORE: Final = SetAttrBuiltinVariable._call_setattr


def answer_for(tx: Any, name: str, owner: VariableTracker) -> VariableTracker | None:
    """Return what stands in for what an instruction does to ``owner``, if it is in the table."""
    row, policy = substitutes.TABLE[name], is_patched(tx)
    return None if policy is None else _given(tx, policy, row, None, owner, (), {})


def _store(self: Any, tx: Any, obj: Any, name_var: Any, val: Any) -> VariableTracker | None:
    """Store ``requires_grad`` of a tensor as its method sets it."""
    obj = obj.realize()
    name = name_var.as_python_constant() if name_var.is_python_constant() else None
    if name in substitutes.STORES and type(obj) is TensorVariable:
        row, policy = substitutes.of_tensor_method(f"{name}_"), is_patched(tx)
        if row is not None and policy is not None:
            row = replace(row, name="torch.Tensor.requires_grad = ...")
            if _given(tx, policy, row, None, obj, (val,), {}) is not None:
                return constant(None)
    return _DYNAMOS_STORE(self, tx, obj, name_var, val)


def install() -> None:
    """Let Dynamo ask here first."""
    InstructionTranslatorBase.call_function = _call_function  # type: ignore[method-assign]
    SetAttrBuiltinVariable._call_setattr = _store  # type: ignore[method-assign]
