"""``torch._assert``, ``torch._check*`` with whatever message, and checks of distributions.

A condition that is known decides while the call is traced. A data-dependent one becomes a side
exit: where it does not hold, the call is made in plain Python, which raises the exception of eager
execution. Dynamo's own handlers (torch/_dynamo/variables/torch.py) put both into the graph, and
refuse a message that reads what is no constant. Where no substitute is found, theirs are called
without such a message, if the call can be made again in plain Python. An assertion about a tensor
is traced as any call there, at which the graph breaks, if it may: what Dynamo's handler makes of it
since torch 2.15 raises ``RuntimeError``, and takes a text alone.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, Final

import torch
from torch.distributions import constraints
from torch.distributions.utils import lazy_property

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.handlers import PASS, Answer
from bcmend.dynamo.models import methods
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.dynamo.values import Value, constant, example_of, is_unbacked, object_behind
from bcmend.tracing.deopt import graph_failure, rerun_policy
from bcmend.tracing.numbers import predicates, scalars, size_questions
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.nesting_limits import is_in_an_arm
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes.dispatch import ReplacedCall, answers_to, unequal

_Tensor: Final = compat.TensorVariable

# assert


@hooks.around(
    compat.symbolic_convert,
    methods.NORMALIZE_ASSERT,
    "assertions of what is neither a number nor a tensor",
    gate=hooks.first,
)
def _is_assertion(is_assertion: Any, tx: compat.Tracer, *others: Any) -> Any:
    """Have an ``assert`` be a jump and a ``raise``: torch makes a tensor of a list, and fails.

    What depends on data is asked about before it comes to the jump.
    """
    found = is_assertion(tx, *others)
    if found and capture_mode.in_mended_code(tx):
        tx.pop()  # the message, which goes with the answer
        return False
    return found


# torch._assert

#: Stands for all of these calls; in no report, since no code was rewritten for it.
_SITE: Final = LiveSite("torch._assert", "guard", torch._assert.__code__)


@hooks.row(torch._assert, "checks of torch under a data-dependent condition")
def _assert(before: Any, called: Any, tx: compat.Tracer, *args: Any, **kwargs: Any) -> Value | None:
    """Answer ``torch._assert(condition, message)``; ``None`` to have it traced as any call."""
    given = _given(args, kwargs)
    if given is None:
        return None
    condition = given["condition"].realize()
    if (
        capture_mode.in_mended_code(tx)
        and predicates.is_data_dependent(condition)
        and deferred_exceptions.can_exit(tx, _SITE)
    ):
        _exit_unless(tx, _SITE, condition)
        return constant(None)
    if isinstance(condition, compat.TensorVariable) and not (tx.export or tx.one_graph):
        return None
    found: Value | None = before(called, tx, *args, **kwargs)
    return found


def _given(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any] | None:
    """Return condition and message of an assertion; ``None`` for a call that fails."""
    given = dict(zip(("condition", "message"), args, strict=False)) | dict(kwargs)
    return given if given.keys() == {"condition", "message"} else None


def _exit_unless(tx: compat.Tracer, site: LiveSite, condition: Value) -> None:
    predicate = deferred_exceptions.predicate_of(tx, site, condition)
    fails = predicates.negated(tx, predicate)
    deferred_exceptions.make_side_exit(tx, site, fails)


# torch._check*, replaced

#: What each raises; of the others the first argument says it.
_RAISES: Final[dict[Any, type[Exception]]] = {
    torch._check: RuntimeError,
    torch._check_index: IndexError,
    torch._check_value: ValueError,
    torch._check_type: TypeError,
    torch._check_not_implemented: NotImplementedError,
    torch._check_tensor_all: RuntimeError,
}

#: What torch says where it is given no message.
_NO_MESSAGE: Final = (
    "Expected cond to be True, but got False. (Could this error message be improved? If so, please"
    " report an enhancement request to PyTorch.)"
)

Parts = tuple[type[Exception], Value, "Value | None"]


def _parts(call: ReplacedCall) -> Parts | None:
    """Return exception, condition and message of a check; ``None`` for a call that fails."""
    names = ("cond", "message") if call.function in _RAISES else ("error_type", "cond", "message")
    if len(call.args) > len(names):
        return None
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    error: Any = _RAISES.get(call.function)
    if error is None and "error_type" in given:
        error = given.pop("error_type").as_python_constant()
    if "cond" not in given or not given.keys() <= set(names) or not _is_exception(error):
        return None
    return error, given["cond"].realize(), given.get("message")


def _is_exception(error: Any) -> bool:
    is_error = isinstance(error, type) and issubclass(error, Exception)
    return is_error and not issubclass(error, Warning)


@answers_to("assertion")
def _failed_assertion(call: ReplacedCall) -> Answer:
    """Answer ``torch._assert(condition, message)`` where it is known to raise.

    Dynamo makes a call of constants, so that no handler of the program sees the exception, and
    puts others into the graph, with a message that it may not be able to take.
    """
    tx = call.tx
    given = _given(call.args, call.kwargs)
    if given is None or not capture_mode.in_mended_code(tx):
        return PASS
    if not (is_in_an_arm(tx) or deferred_exceptions.handled_by_a_caller(tx)):
        return PASS  # it ends the call
    if _fails(given["condition"].realize()):
        compat.raise_observed_exception(AssertionError, tx, args=[given["message"]])
    return PASS


def _fails(condition: Value) -> bool:
    """Return whether a condition is known not to hold while the call is traced."""
    if isinstance(condition, compat.SymNodeVariable):
        return not predicates.is_data_dependent(condition) and not condition.evaluate_expr()
    return condition.is_python_constant() and not condition.as_python_constant()


@answers_to("check")
def _check(call: ReplacedCall) -> Answer:
    """Answer ``torch._check(cond, message)``, and those that raise something else."""
    parts = _parts(call)
    if parts is None:
        return PASS
    error, condition, message = parts
    if isinstance(condition, compat.SymNodeVariable) and isinstance(
        condition.sym_num, torch.SymBool
    ):
        # The number in an argument has a known value, and a guard on it; better none.
        if is_unbacked(condition) or scalars.has_tensor(call.tx, condition):
            return _checked_in_graph(call, condition)
        return _known(call, bool(condition.evaluate_expr()), error, message)
    known = condition.as_python_constant() if condition.is_python_constant() else None
    return _known(call, known, error, message) if isinstance(known, bool) else PASS


@answers_to("check_all")
def _check_all(call: ReplacedCall) -> Answer:
    """Answer ``torch._check_tensor_all(cond, message)``."""
    parts = _parts(call)
    if parts is None or type(parts[1]) is not compat.TensorVariable:
        return PASS
    if example_of(parts[1]).dtype is not torch.bool:
        return PASS
    return _checked_in_graph(call, parts[1].call_method(call.tx, "all", [], {}))


def _known(call: ReplacedCall, holds: bool, error: type[Exception], message: Value | None) -> Value:
    if holds:
        return constant(None)
    text: Any = _NO_MESSAGE
    if message is not None and not message.realize().is_constant_none():
        text = message.realize().call_function(call.tx, [], {})
        if not (text.is_python_constant() and isinstance(text.as_python_constant(), str)):
            text = compat.VariableTracker.build(call.tx, str).call_function(call.tx, [text], {})
    compat.raise_observed_exception(error, call.tx, args=[text])


def _checked_in_graph(call: ReplacedCall, condition: Value) -> Answer:
    tx = call.tx
    if not capture_mode.in_mended_code(tx):
        return PASS
    if not deferred_exceptions.can_exit(tx, call.site):
        raise unequal("the call could not be made again in plain Python")
    _exit_unless(tx, call.site, condition)
    size_questions.note_fact(tx, condition, truth=True)
    if isinstance(condition, compat.SymNodeVariable) and tx.one_graph and _is_of_sizes(condition):
        # What is claimed of a number may be needed for the shapes that it makes.
        proxy = tx.output.create_proxy("call_function", torch._check, (condition.as_proxy(),), {})
        compat.wrap_fx_proxy(tx, proxy)
    return constant(None)


def _is_of_sizes(condition: compat.SymNodeVariable) -> bool:
    """Return whether a condition compares integers that torch knows nothing of."""
    node = condition.as_proxy().node
    examples = [each.meta.get("example_value") for each in node.all_input_nodes]
    is_comparison = is_unbacked(condition) and node.op == "call_function"
    return is_comparison and all(isinstance(each, torch.SymInt) for each in examples)


# torch.distributions with validation


@answers_to("dependent constraint")
def _is_dependent(call: ReplacedCall) -> Answer:
    """Answer ``constraints.is_dependent(constraint)``; true means that nothing is checked."""
    held = [object_behind(each.realize(), "value") for each in call.args]
    if len(held) != 1 or not isinstance(held[0], constraints.Constraint) or call.kwargs:
        return PASS
    return constant(isinstance(held[0], _DEPENDENT) or _is_computed_later(call.tx))


_DEPENDENT: Final[type] = type(constraints.dependent)
_VALIDATES: Final = torch.distributions.Distribution.__init__.__code__


def _is_computed_later(tx: Any) -> bool:
    """Return whether a parameter is one that a distribution has not computed yet.

    It is left out next. What the code asks for it, the attribute of the class, is one for which
    Dynamo makes a guard that fails.
    """
    if tx.f_code is not _VALIDATES:
        return False
    owner, name = (tx.symbolic_locals[each].realize() for each in ("self", "param"))
    known = name.as_python_constant()
    stored = tx.output.side_effects.store_attr_mutations.get(owner, {})
    return known not in stored and isinstance(
        inspect.getattr_static(owner.python_type(), known, None), lazy_property
    )


@answers_to("valid")
def _is_valid(call: ReplacedCall) -> Answer:
    """Answer ``torch._is_all_true(valid)`` in a distribution, which raises if it does not hold."""
    tx = call.tx
    is_check = tx.f_globals.get("__name__") == torch.distributions.Distribution.__module__
    if not is_check or len(call.args) != 1 or type(call.args[0].realize()) is not _Tensor:
        return PASS
    answer = _checked_in_graph(call, call.args[0].call_method(tx, "all", [], {}))
    return PASS if answer is PASS else constant(True)


# torch._check*, by Dynamo's handlers

#: Graph breaks of Dynamo at the message of a check.
_MESSAGES: Final = frozenset(
    ["Can't extract message from torch._check*()", "Can't convert torch._check*() message closure"]
)
#: Each function and the position of its message.
_CHECKS: Final = dict.fromkeys(_RAISES, 1) | {torch._check_with: 2, torch._check_tensor_all_with: 2}
_OF_CHECKS: Final = LiveSite("torch._check", "guard", torch._check.__code__)


def _without_message(position: int) -> Any:
    """Return a handler that drops a message which Dynamo's handler cannot take."""

    def check(before: Any, called: Any, tx: compat.Tracer, *given: Any, **named: Any) -> Any:
        if before is None:
            return None
        try:
            return before(called, tx, *given, **named)
        except compat.Unsupported as error:
            if error.gb_type not in _MESSAGES or not capture_mode.in_mended_code(tx):
                raise
            if not deferred_exceptions.can_exit(tx, _OF_CHECKS):
                raise
            if _is_no_truth(given[position - 1] if len(given) >= position else named.get("cond")):
                raise
        named.pop("message", None)
        _require_rerun(tx)
        return before(called, tx, *given[:position], **named)

    return check


def _is_no_truth(condition: Value | None) -> bool:
    """Return whether a check fails for its condition, which is not a bool; Dynamo takes any."""
    if condition is None:
        return True
    known = condition.realize()
    if isinstance(known, compat.SymNodeVariable):
        return not isinstance(known.sym_num, torch.SymBool)
    if isinstance(known, compat.TensorVariable):
        return False
    return not (known.is_python_constant() and isinstance(known.as_python_constant(), bool))


for _function, _position in _CHECKS.items():
    hooks.row(_function, "messages of checks of torch")(_without_message(_position))


def _require_rerun(tx: compat.Tracer) -> None:
    """Have the frame traced with the messages if a call that fails cannot be made again."""
    rerun_policy.note(tx)
    output = tx.output

    def examine(module: Any) -> None:
        if not graph_failure.can_be_put_back(output):
            falsify(Finding(Claim.THROWN_AWAY, _OF_CHECKS))

    at_the_end_of_a_graph(output, Phase.CHECK, examine)
