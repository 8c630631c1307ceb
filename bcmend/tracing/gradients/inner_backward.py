"""``loss.backward()`` inside of a call: gradients by ``torch.autograd.grad``, added to ``.grad``.

Which leaves a backward reaches is asked of the histories that the fake tensors of the trace have.
Each of them has to be a tensor that is known to the trace: an input of the graph that is guarded to
be a leaf, or a leaf that the call has made. No hook of the program may see the gradients, since
``torch.autograd.grad`` calls others than a backward does.

A leaf without a gradient gets a tensor of its own, of the strides that the layout contract of
autograd asks for (``torch/csrc/autograd/functions/accumulate_grad.h``); to another one the gradient
is added in place.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from types import FunctionType
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import graph_inputs, methods, translators
from bcmend.dynamo.values import (
    TensorValue,
    Value,
    constant,
    example_of,
    function_of,
    global_of,
    has_hooks,
)
from bcmend.tracing.gradients import inner_gradients
from bcmend.tracing.gradients.histories import functions_behind
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.sites.refusal import Refusal

OF_A_TENSOR: Final = inspect.signature(torch.Tensor.backward)
OF_TENSORS: Final = inspect.signature(torch.autograd.backward)


def computed(tx: compat.Tracer, given: dict[str, Value]) -> list[tuple[TensorValue, TensorValue]]:
    """Return the leaves that a backward reaches, each with its gradient.

    Args:
        given: the arguments by their names, as ``torch.autograd.backward`` has them.

    Raises:
        Refusal: the graph would not do what a backward does.
    """
    outputs = given.pop("tensors")
    named = _named(given)
    roots = [each.realize() for each in (getattr(outputs, "items", None) or [outputs])]
    if not all(isinstance(each, compat.TensorVariable) for each in roots):
        raise _refused("not of tensors")
    _require_no_hooks_of_the_call(tx)
    wanted = given["inputs"]
    is_open = wanted.is_constant_none()
    leaves = _leaves(tx, roots) if is_open else _given_leaves(tx, wanted)
    if not leaves or not all(example_of(each).requires_grad for each in roots):
        raise _refused("it fails, or does nothing: no leaf is reached")
    for each in leaves:
        _require_plain(each)
        _require_without_hooks(each)
    function = function_of(tx, torch.autograd.grad)
    reached = compat.TupleVariable(list(leaves))
    found: Any = inner_gradients.computed(tx, function, [outputs, reached], named)
    gradients = [each.realize() for each in found.items]
    pairs = zip(leaves, gradients, strict=True)
    return [(leaf, each) for leaf, each in pairs if not each.is_constant_none()]


def _named(given: dict[str, Value]) -> dict[str, Value]:
    """Return what ``torch.autograd.grad`` is given by name."""
    retain, create = given["retain_graph"], given["create_graph"]
    if not (retain.is_python_constant() and create.is_python_constant()):
        raise _refused("a flag that is no constant")
    if create.as_python_constant():
        raise _refused("gradients that have gradients are kept by the leaves")
    named = {"allow_unused": constant(True), "retain_graph": retain}
    if not given["grad_tensors"].is_constant_none():
        named["grad_outputs"] = given["grad_tensors"]
    return named


def _refused(detail: str) -> Refusal:
    return Refusal("no-equal-substitute", detail)


def _require_no_hooks_of_the_call(tx: compat.Tracer) -> None:
    if tx.output.side_effects.tensor_hooks:
        raise _refused("hooks are put on tensors")


# The leaves that are reached


def _leaves(tx: compat.Tracer, roots: Sequence[TensorValue]) -> list[TensorValue]:
    """Return the leaves that gradients of tensors are added to.

    Raises:
        Refusal: one is not known to the trace.
        Unsupported: one may lie in a history outside of the graph.
    """
    known = {key: each for key, each in _known(tx).items() if example_of(each).requires_grad}
    inner_gradients.require_leaves(list(roots))
    reached = set(map(id, _ends(map(example_of, roots))))
    if not reached <= known.keys():
        raise _refused("a leaf that it reaches is not known")
    behind = {id(each.meta.get("example_value")) for each in inner_gradients.behind(list(roots))}
    return [each for key, each in known.items() if key in behind or key in reached]


def _is_tensor(value: Any) -> bool:
    return isinstance(value, compat.TensorVariable)


def _ends(tensors: Iterable[Tensor]) -> Iterator[Tensor]:
    """Yield the leaves at the ends of histories."""
    starts = list(tensors)
    yield from (each for each in starts if each.grad_fn is None and each.requires_grad)
    for function in functions_behind(each.grad_fn for each in starts):
        leaf = getattr(function, "variable", None)
        if isinstance(leaf, Tensor):
            yield leaf


def _given_leaves(tx: compat.Tracer, wanted: Value) -> list[TensorValue]:
    """Return the tensors that a program gives as the only ones to reach."""
    items = getattr(wanted, "items", None)
    given: list[Any] = [each.realize() for each in (items if isinstance(items, list) else [wanted])]
    if not all(map(_is_tensor, given)):
        raise _refused("other inputs")
    leaves = [leaf_behind(tx, each) for each in given]
    if not all(example_of(each).is_leaf and example_of(each).requires_grad for each in leaves):
        raise _refused("inputs that are no leaves")
    if len(set(map(id, leaves))) < len(leaves):
        raise _refused("one input twice")
    return leaves


def _require_plain(leaf: TensorValue) -> None:
    example = example_of(leaf)
    kind = getattr(leaf, "class_type", torch.Tensor)
    is_plain = type(leaf) is compat.TensorVariable and kind in (torch.Tensor, torch.nn.Parameter)
    if not is_plain or example.layout is not torch.strided:
        raise _refused("a leaf of a class or layout of its own")
    if not compat.is_non_overlapping_and_dense_or_false(example):
        raise _refused("a leaf that does not fill its memory")


def _require_without_hooks(leaf: TensorValue) -> None:
    """Refuse a leaf whose gradients hooks see, and guard an input to have none."""
    given = leaf.as_proxy().node.meta.get("grapharg")
    if leaf.source is None or given is None:
        return
    if has_hooks(given.example):
        raise _refused("a leaf has hooks")
    compat.install_guard(compat.Guard(given.source, _NO_HOOKS))


def _has_none(tensor: Any) -> bool:
    return not has_hooks(tensor)


def _NO_HOOKS(builder: compat.GuardBuilderBase, guard: compat.Guard) -> None:
    assert isinstance(builder, compat.GuardBuilder)
    code = [f"not {guard.name}._backward_hooks"]
    builder.get_guard_manager(guard).add_lambda_guard(_has_none, code, guard.user_stack)


# What they get


def leaf_behind(tx: compat.Tracer, tensor: TensorValue) -> TensorValue:
    """Return the leaf that is the same object as a tensor, or the tensor if there is none.

    So are the results of ``p -= x`` and of ``x.to(x.dtype)``. Dynamo loses gradients that are
    stored to them, and finds none that the leaf has.
    """
    if tensor.source is not None or example_of(tensor).grad_fn is not None:
        return tensor
    return _known(tx).get(id(example_of(tensor)), tensor)


def _known(tx: compat.Tracer) -> dict[int, TensorValue]:
    """Return the tensors that have gradients of their own, by their fake tensors."""
    made: list[Any] = [each for each in tx.output.leaf_var_creation_order if _is_tensor(each)]
    return {id(example_of(each)): each for each in (*made, *graph_inputs.tensor_models(tx.output))}


@hooks.around(compat.TensorVariable, methods.GRADIENT_OF_TENSOR, "gradients of leaves")
def _gradient(inner: Any, tensor: TensorValue, tx: compat.Tracer) -> Any:
    """Have every model of one tensor give its gradient."""
    leaf = leaf_behind(tx, tensor) if capture_mode.in_mended_code(tx) else tensor
    if leaf is tensor:
        return inner(tensor, tx)
    function = compat.VariableTracker.build(tx, getattr)
    return function.call_function(tx, [leaf, constant("grad")], {})


def is_addable(gradient: TensorValue) -> bool:
    """Return whether a gradient is as dense as the leaf that it is added to."""
    return example_of(gradient).layout is torch.strided


def add(tx: compat.Tracer, leaf: TensorValue, gradient: TensorValue) -> None:
    """Trace that a leaf gets a gradient."""
    assert isinstance(_accumulate, FunctionType)
    translators.have_inlined(tx, _accumulate.__code__, "gradients that are added")
    source = global_of(tx.output, _accumulate)
    function = compat.UserFunctionVariable(_accumulate, source=source)
    function.call_function(tx, [leaf, gradient], {})


def _accumulate(leaf: Tensor, gradient: Tensor) -> None:
    with torch.no_grad():
        before = leaf.grad
        if before is None:
            made = torch.empty_like(leaf)
            made.copy_(gradient)
            leaf.grad = made
        else:
            before.add_(gradient)
