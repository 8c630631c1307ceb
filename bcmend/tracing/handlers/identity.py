"""Questions of which object a tensor is, and calls that act on the object, not on its values.

Dynamo answers them by what stands for a tensor in the trace. That is right for merged tensors where
both sides agree. Where they do not, ``is`` in the condition of a branch is computed of the
predicates by which the tensors were merged; elsewhere the merged tensor is given up, and the frame
is traced again (``tracing/effects/sharing``). A container that is asked for an item looks for the
object first.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any, Final

import torch

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import TRUTH_JUMPS, TRUTHS
from bcmend.dynamo import compat, fx_graph, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import TensorValue, constant, example_of
from bcmend.names import CONDITION
from bcmend.tracing.effects import sharing
from bcmend.tracing.numbers import predicates
from bcmend.tracing.sites import body_states, capture_mode, nesting_limits

_PURPOSE: Final = "which object a merged tensor is"
_OF_TUPLES: Final = "which object a merged tuple is"
_TESTS: Final = (operator.is_, operator.is_not)


@hooks.around(
    compat.WeakRefVariable,
    methods.BUILD_WEAK_REFERENCE,
    "a weak reference is not what it refers to",
    gate=hooks.first,
)
def _weak_reference(
    inner: Any, tx: compat.Tracer, reference: Any, source: Any, **options: Any
) -> Any:
    """Have code load a weak reference from where it is; Dynamo has it load what it refers to."""
    found = inner(tx, reference, source, **options)
    found.source = source
    return found


def _require_known(tx: compat.Tracer, one: Any, other: Any) -> None:
    if all(each.is_realized() for each in (one, other)):
        one, other = one.realize(), other.realize()
        if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
            sharing.require_known(tx, example_of(one), example_of(other))


@handlers.method(compat.BuiltinVariable, methods.COMPARE_WITH_TENSOR, _PURPOSE)
def _compared(call: Call) -> Answer:
    """Look at ``one is other`` and ``one is not other``."""
    if call.owner.fn not in _TESTS:
        return PASS
    found = _told(call.tx, *call.args, is_negated=call.owner.fn is operator.is_not)
    if found is not None:
        return found
    _require_known(call.tx, *call.args)
    return PASS


def _told(
    tx: compat.Tracer, one: Any, other: Any, *, is_negated: bool
) -> compat.VariableTracker | None:
    """Return the answer where it is the condition of a branch, and computed of predicates.

    Raises:
        Rewritten: the jump becomes a site.
    """
    if not all(each.is_realized() for each in (one, other)):
        return None
    examples = [
        example_of(each)
        for each in (one.realize(), other.realize())
        if isinstance(each, compat.TensorVariable)
    ]
    found = sharing.latest(tx, *examples) if len(examples) == 2 else None
    if found is None or not capture_mode.in_mended_code(tx):
        return None
    truth = _is_one_object(tx, examples[0], examples[1], {})
    if truth is None or isinstance(truth, bool):
        return None if truth is None else constant(truth is not is_negated)
    position = tx.instruction_pointer
    assert position is not None  # it is traced
    following = next(each for each in tx.instructions[position:] if operation(each) not in TRUTHS)
    if operation(following) in TRUTH_JUMPS:
        body_states.mend_jump(tx)
    if following.argval != CONDITION:
        return None
    if is_negated:
        truth = predicates.negated(tx, truth)
    sharing.note_told(tx, truth, found.finding)
    return truth


@hooks.around(compat.BuiltinVariable, methods.MAKE_HANDLER, _OF_TUPLES, gate=None, place=3)
def _make_handler(inner: Any, function: Any, kinds: Sequence[type], has_keywords: bool) -> Any:
    handler = inner(function, kinds, has_keywords)
    if function not in _TESTS or not all(issubclass(each, compat.TupleVariable) for each in kinds):
        return handler

    def test(tx: compat.Tracer, args: Sequence[Any], kwargs: Any) -> Any:
        sharing.require_known_tuples(tx, *(each.realize() for each in args))
        return handler(tx, args, kwargs)

    return test


#: What is known of pairs of tensors already, by their identity.
_Known = dict[tuple[int, int], TensorValue | bool | None]


def _is_one_object(
    tx: compat.Tracer, one: torch.Tensor, other: torch.Tensor, known: _Known
) -> TensorValue | bool | None:
    """Return whether two tensors are one object, or a predicate of that; ``None`` if unknown."""
    found = sharing.latest(tx, one, other)
    if found is None:
        return one is other
    if not sharing.is_result(tx, one, found):
        one, other = other, one
    if (key := (id(one), id(other))) not in known:
        known[key] = _of_the_sides(tx, found.choice, other, known)
    return known[key]


def _of_the_sides(
    tx: compat.Tracer, choice: sharing.Choice | None, other: torch.Tensor, known: _Known
) -> TensorValue | bool | None:
    """Return whether what a branch has chosen is ``other``."""
    if choice is None or not _is_at_hand(tx, choice.predicate):
        return None
    sides = [_is_one_object(tx, side, other, known) for side in choice.sides]
    if any(each is None for each in sides):
        return None
    return _chosen(tx, choice.predicate, *sides)


def _is_at_hand(tx: compat.Tracer, predicate: TensorValue) -> bool:
    """Return whether a predicate was computed in the graph being written, or in one around it."""
    return any(each.graph is predicate.as_proxy().node.graph for each in fx_graph.tracers(tx))


def _chosen(tx: compat.Tracer, predicate: TensorValue, one: Any, other: Any) -> TensorValue | bool:
    """Return ``one`` where the predicate holds and ``other`` where not; each may be constant."""
    if isinstance(one, bool) and isinstance(other, bool):
        if one is other:
            return one
        return predicate if one else predicates.negated(tx, predicate)
    if one is True:
        return predicates.either(tx, predicate, other)
    if other is False:
        return predicates.both(tx, predicate, one)
    contrary = predicates.negated(tx, predicate)
    if one is False:
        return predicates.both(tx, contrary, other)
    if other is True:
        return predicates.either(tx, contrary, one)
    return predicates.chosen(tx, predicate, one.as_proxy(), other.as_proxy())


@handlers.method(compat.BaseListVariable, methods.CONTAINS, _PURPOSE)
def _contained(call: Call) -> Answer:
    """Look at ``item in container``."""
    (item,) = call.args
    for each in call.owner.items:
        _require_known(call.tx, each, item)
    return PASS


@handlers.method(compat.TensorVariable, methods.HASH, _PURPOSE)
def _hashed(call: Call) -> Answer:
    """Look at the key of a dictionary, and the member of a set."""
    sharing.require_alone(call.tx, example_of(call.owner))
    return PASS


@handlers.method(compat.BuiltinVariable, methods.CALL_ID, _PURPOSE)
def _identified(call: Call) -> Answer:
    """Look at ``id(tensor)``."""
    for each in call.args:
        if isinstance(value := each.realize(), compat.TensorVariable):
            sharing.require_alone(call.tx, example_of(value))
    return PASS


@handlers.method(compat.SetAttrBuiltinVariable, methods.CALL_SETATTR, _PURPOSE, place=1)
def _stored_to(call: Call) -> Answer:
    """Look at ``tensor.name = value``."""
    owner = call.args[0].realize()
    if isinstance(owner, compat.TensorVariable):
        sharing.require_alone(call.tx, example_of(owner))
    return PASS


@handlers.tensor_method("detach_", place=9)
def _detached(call: Call) -> Answer:
    """Look at ``tensor.detach_()``, unless no side has gradients."""
    return _acts_on_the_object(call) if example_of(call.owner).requires_grad else PASS


def _acts_on_the_object(call: Call) -> Answer:
    sharing.require_alone(call.tx, example_of(call.owner))
    return PASS


def _acts_on_the_history(call: Call) -> Answer:
    sharing.require_unread(call.tx, example_of(call.owner))
    return PASS


for _name in ("requires_grad_", "set_", "untyped_storage", "is_set_to", "share_memory_"):
    handlers.tensor_method(_name, place=9)(_acts_on_the_object)
for _name in ("register_hook", "register_post_accumulate_grad_hook", "retain_grad"):
    handlers.tensor_method(_name, place=9)(_acts_on_the_history)


def _dropped_out(call: Call) -> Answer:
    """Answer ``dropout`` that drops nothing: it returns its argument, and no copy as fakes do."""
    if not nesting_limits.is_in_an_arm(call.tx):
        return PASS
    names = ("input", "p", "train" if call.function is torch.dropout else "training", "inplace")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    tensor = given.pop("input", None)
    flags = {name: value.realize() for name, value in given.items()}
    if not all(flag.is_python_constant() for flag in flags.values()) or not flags.keys() <= set(
        names
    ):
        return PASS
    known = {name: flag.as_python_constant() for name, flag in flags.items()}
    chance, is_training = known.get("p", 0.5), known.get(names[2], True)
    if type(tensor) is not compat.TensorVariable or not 0 <= chance <= 1:
        return PASS
    return PASS if is_training and chance else tensor


for _function in (torch.dropout, torch.nn.functional.dropout):
    handlers.function(_function, "dropout that drops nothing")(_dropped_out)
