"""A choice as torch traces it for a back end that compiles: once for each structure.

Torch traces both sides of each choice, forward and backward, a dozen times: to see what they
return, whether they write to what they read, in the form of a graph. Here a choice whose sides are
those of an earlier one, as in the layers of a model, is a call of the graphs that were made for
that one: they are traced once, and compiled once.

Works round ``trace_cond``, ``cond_fake_tensor_mode`` and ``cond_func``
(torch/_higher_order_ops/cond.py), which trace the sides of every choice anew and make graphs of
their own of them; and ``_merge_output`` beside it, which takes strides for products of sizes, and
fails where a size may be 0 for all that is known, as of ``x.view(s // 8, 8)``. And the tokens by
which AOTAutograd keeps operators with an effect: it makes none for a side, so that what raises
where a matrix is singular is lost from a side, or fails to be traced there. Reproduced on torch
2.13.0; ``tests/tracing/backends/test_faults_of_torch.py`` fails when it is gone.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch.fx import GraphModule, Interpreter, traceback

from bcmend import meta_keys
from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.shape_env import computed_again, symbols_in, traced_again
from bcmend.knowledge import effects
from bcmend.tracing.backends.backward_sides import backward_of
from bcmend.tracing.backends.graph_structure import form_of_example
from bcmend.tracing.backends.saved_values import Cut, Impure, is_pure, seen_pure, sides_cut_in_two

_COND: Final = torch.ops.higher_order.cond
#: Raises where ``torch.linalg.inv`` and its kin have no result; changes nothing.
_CHECK: Final = torch.ops.aten._linalg_check_errors.default


@dataclass(slots=True, eq=False)
class _Sides:
    """Both sides of a choice as graphs of operators, and what it returns for what it is given."""

    graphs: tuple[GraphModule, GraphModule]
    given: Hashable
    results: tuple[torch.Tensor, ...]


@dataclass(slots=True, eq=False)
class Known:
    """What was learned of the choices of one structure.

    Attributes:
        root: the module of the graph that they are in; ``None`` where none is made.
        examples: what they return.
        cut: their sides, cut in two; ``None`` where the backward begins with the forward.
        is_tried: whether that was tried.
        forward, backward: the graphs of their sides; of the backward for what it is given.
    """

    root: Any = None
    examples: tuple[torch.Tensor, ...] | None = None
    cut: Cut | None = None
    is_tried: bool = False
    forward: _Sides | None = None
    backward: dict[Hashable, _Sides] = field(default_factory=dict)


@dataclass(slots=True, eq=False)
class Memory:
    """What is known while a graph is traced or compiled; of sides by the first of their graphs."""

    choices: dict[Hashable, Known] = field(default_factory=dict)
    sides: dict[GraphModule, _Sides] = field(default_factory=dict)


_MEMORY: ContextVar[Memory | None] = ContextVar("_MEMORY", default=None)
_WITHOUT_TOKENS: ContextVar[bool] = ContextVar("_WITHOUT_TOKENS", default=False)


@contextmanager
def remembered(memory: Memory | None = None) -> Iterator[None]:
    """Use what is learned of choices again, for the length of a block or of ``memory``."""
    token = _MEMORY.set(memory or Memory())
    try:
        yield
    finally:
        _MEMORY.reset(token)


@hooks.around(
    compat.OutputGraph, methods.CALL_BACK_END, "sides that are traced once", gate=None, place=1
)
def _compile(inner: Any, *arguments: Any) -> Any:
    with remembered():
        return inner(*arguments)


def known_of(structure: Hashable, operands: Sequence[Any]) -> Known:
    """Return what is known of a choice; what it learns is forgotten where nobody remembers it."""
    memory, root = _MEMORY.get(), _root()
    if memory is None:
        return Known()
    state = torch.is_grad_enabled(), torch.is_inference_mode_enabled(), _autocast()
    key = state, structure, tuple(map(form_of_example, operands))
    seen = memory.choices.get((None, *key))
    examples = None if seen is None else seen.examples
    return memory.choices.setdefault((root, *key), Known(root, examples))


def _root() -> Any:
    mode: Any = compat.get_proxy_mode()
    return None if mode is None else mode.tracer.root


def _autocast() -> Hashable:
    return tuple(
        (torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in ("cpu", "cuda")
    )


def run_choice(
    known: Known, predicate: Any, then: Any, orelse: Any, operands: Sequence[Any]
) -> tuple[Any, ...]:
    """Return the results of a choice, of which torch makes a graph."""
    needs_grad = torch.is_grad_enabled() and any(
        isinstance(each, torch.Tensor) and each.requires_grad for each in operands
    )
    with without_tokens():
        if needs_grad:
            call: Any = _Choice.apply
            return call(predicate, known, then, orelse, *operands)  # type: ignore[no-any-return]
        with compat._AutoDispatchBelowAutograd():
            return _forward(known, predicate, _as_arm(then), _as_arm(orelse), operands)


def _environment() -> Any:
    context = compat.TracingContext.try_get()
    return getattr(getattr(context, "fake_mode", None), "shape_env", None)


def _traced_again() -> AbstractContextManager[None]:
    """For the length of a block torch traces sides of a choice."""
    environment = _environment()
    return nullcontext() if environment is None else traced_again(environment)


@contextmanager
def without_tokens() -> Iterator[None]:
    """For the length of a block torch traces sides of ours, to which it gives no tokens."""
    token = _WITHOUT_TOKENS.set(True)
    try:
        yield
    finally:
        _WITHOUT_TOKENS.reset(token)


@hooks.around(
    compat.effects_of_operators, methods.HAS_EFFECTS, "sides without tokens of effects", gate=None
)
def _has_effects(inner: Any, operator: Any) -> Any:
    """Return whether an operator needs a token: what checks a matrix is kept without in a side."""
    return inner(operator) and not (operator is _CHECK and _WITHOUT_TOKENS.get())


def _as_arm(side: GraphModule) -> Callable[..., Any]:
    """Return what runs a side as an arm that is traced again, with the origin of each node."""

    def run(*operands: Any) -> Any:
        with _traced_again():
            if not traceback.has_preserved_node_meta():
                return side(*operands)
            with traceback.preserve_node_meta():
                return Interpreter(side).run(*operands)

    setattr(run, meta_keys.ARM, True)
    return run


def _is_an_arm(side: Any) -> bool:
    return getattr(side, meta_keys.ARM, False) is True


def _is_ours(side: Any) -> bool:
    """Return whether a side is an arm, or a graph that is to be one where no gradients flow."""
    is_marked = isinstance(side, GraphModule) and meta_keys.SIDE in side.meta
    return is_marked or _is_an_arm(side)


class _Choice(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, predicate: Any, known: Known, then: Any, orelse: Any, *operands: Any
    ) -> tuple[Any, ...]:
        ctx.predicate, ctx.known = predicate, known
        ctx.sides = then, orelse = _as_arm(then), _as_arm(orelse)
        ctx.dispatch = (
            compat._dispatch_tls_local_include_set(),
            compat._dispatch_tls_local_exclude_set(),
        )
        ctx.wanted = ctx.needs_input_grad[4:]
        if not known.is_tried:
            known.is_tried = True
            known.cut = _cut(known, ctx, operands)
        ctx.cut = known.cut
        if ctx.cut is not None:
            then, orelse = ctx.cut.forward(0), ctx.cut.forward(1)
        with compat._AutoDispatchBelowAutograd():
            results = _forward(known, predicate, then, orelse, operands)
        read = operands
        if ctx.cut is not None:
            count = ctx.cut.count
            read = (
                *(operands[at] for at in ctx.cut.read),
                *results[count:],
                *(computed_again(each, operands) for each in ctx.cut.numbers),
            )
            results = results[:count]
        ctx.read = [None if isinstance(each, torch.Tensor) else each for each in read]
        ctx.save_for_backward(*(each for each in read if isinstance(each, torch.Tensor)))
        return results

    @staticmethod
    @without_tokens()
    def backward(ctx: Any, *gradients: Any) -> tuple[Any, ...]:
        tensors = iter(ctx.saved_tensors)
        given = (*(next(tensors) if each is None else each for each in ctx.read), *gradients)
        key = tuple(map(form_of_example, given))
        sides = ctx.known.backward.get(key)
        if sides is not None:
            found = iter(_COND(ctx.predicate, *sides.graphs, given))
        else:
            results = _COND(ctx.predicate, *_backward_graphs(ctx, given), given)
            if (made := _made(ctx.known, given, results)) is not None:
                ctx.known.backward[key] = made
            found = iter(results)
        return None, None, None, None, *(next(found) if each else None for each in ctx.wanted)


def _backward_graphs(ctx: Any, given: Sequence[Any]) -> Sequence[Callable[..., Any]]:
    if ctx.cut is not None:
        return ctx.cut.backward(0), ctx.cut.backward(1)
    return [backward_of(each, given, ctx.wanted, ctx.dispatch) for each in ctx.sides]


def _cut(known: Known, ctx: Any, operands: Sequence[Any]) -> Cut | None:
    """Return the sides cut in two where a graph is made and what the choice returns is known."""
    if known.root is None or known.examples is None:
        return None
    return sides_cut_in_two(ctx.sides, operands, known.examples, ctx.wanted, ctx.dispatch)


def _forward(
    known: Known, predicate: Any, then: Any, orelse: Any, operands: Sequence[Any]
) -> tuple[Any, ...]:
    if known.root is None and known.examples is not None:
        return tuple(map(_like, known.examples))
    if known.forward is not None:
        return _COND(predicate, *known.forward.graphs, operands)  # type: ignore[no-any-return]
    results: tuple[Any, ...] = _COND(predicate, then, orelse, operands)
    if known.root is None and _are_plain(operands, results):
        known.examples = results
    known.forward = _made(known, operands, results)
    return results


def _are_plain(given: Sequence[Any], results: Sequence[Any]) -> bool:
    """Return whether what a choice returns is told by sizes of what it is given."""
    return all(
        isinstance(each, torch.Tensor) and each.layout is torch.strided for each in results
    ) and symbols_in(tuple(results)) <= symbols_in(tuple(given))


def _made(known: Known, given: Sequence[Any], results: Sequence[Any]) -> _Sides | None:
    """Return the graphs that torch has made of the sides of a choice, if they may serve others."""
    mode: Any = compat.get_proxy_mode()
    memory = _MEMORY.get()
    if known.root is None or memory is None or mode.tracer.root is not known.root:
        return None
    node = next(each for each in reversed(mode.tracer.graph.nodes) if each.target is _COND)
    graphs = tuple(getattr(mode.tracer.root, each.target) for each in node.args[1:3])
    if not _are_plain(given, results) or any(map(_is_of_its_place, graphs)):
        return None
    found = memory.sides[graphs[0]] = _Sides(graphs, _given(node), tuple(node.meta["val"]))
    return found


def _given(node: Any) -> Hashable:
    return tuple(
        form_of_example(each.meta["val"] if isinstance(each, torch.fx.Node) else each)
        for each in node.args[3]
    )


def _is_of_its_place(module: GraphModule) -> bool:
    """Return whether a graph may serve no other choice: it makes numbers, or writes to memory.

    It writes where torch has traced it before its views were taken apart.
    """
    nodes = (
        node
        for each in module.modules()
        if isinstance(each, GraphModule)
        for node in each.graph.nodes
    )
    return any("unbacked_bindings" in node.meta or _writes(node.target) for node in nodes)


def _writes(target: Any) -> bool:
    return isinstance(target, compat.OpOverload) and effects.facts_of_target(target).writes


def _like(example: torch.Tensor) -> torch.Tensor:
    return torch.empty_strided(
        example.size(), example.stride(), dtype=example.dtype, device=example.device
    )


def _sides(then: Any, orelse: Any) -> _Sides | None:
    """Return what is known of two graphs that stand for the sides of a choice."""
    memory = _MEMORY.get()
    found = None
    if memory is not None and isinstance(then, GraphModule):
        found = memory.sides.get(then)
    return found if found is not None and found.graphs == (then, orelse) else None


@hooks.kernel(_COND, "sides that are known to write to nothing", key=compat.FunctionalTensorMode)
def _without_views(
    inner: Callable[..., Any], mode: Any, predicate: Any, then: Any, orelse: Any, operands: Any
) -> Any:
    functional: Any = compat.PythonFunctionalizeAPI(mode)
    unwrapped = functional.unwrap_tensors((predicate, tuple(operands)))
    sides = then, orelse
    if _sides(*sides) is None and not all(map(is_pure, sides)):
        with _traced_again():
            if all(map(_is_ours, sides)):
                arms = [each if _is_an_arm(each) else _as_arm(each) for each in sides]
                apart = [functional.functionalize(seen_pure(each, functional)) for each in arms]
                with suppress(Impure):
                    return functional.wrap_tensors(_COND(unwrapped[0], *apart, unwrapped[1]))
            return inner(mode, predicate, then, orelse, operands)
    return functional.wrap_tensors(_COND(unwrapped[0], *sides, unwrapped[1]))


@hooks.kernel(_COND, "sides that are in the graph already", key=compat.ProxyTorchDispatchMode)
def _in_graph(
    inner: Callable[..., Any], mode: Any, predicate: Any, then: Any, orelse: Any, operands: Any
) -> Any:
    sides, root = _sides(then, orelse), mode.tracer.root
    if sides is None or not {then, orelse} <= set(root.children()):
        with _traced_again():
            return inner(mode, predicate, then, orelse, operands)
    arguments = (predicate, then, orelse, tuple(operands))
    proxy = mode.tracer.create_proxy(
        "call_function", _COND, compat.tree_map(mode.tracer.unwrap_proxy, arguments), {}
    )
    results = _COND(*arguments)
    return compat.track_tensor_tree(results, proxy, constant=None, tracer=mode.tracer)


@hooks.kernel(_COND, "what sides return that are known", key=compat.FakeTensorMode)
def _returned(
    inner: Callable[..., Any], mode: Any, predicate: Any, then: Any, orelse: Any, operands: Any
) -> Any:
    sides = _sides(then, orelse)
    if sides is None or tuple(map(form_of_example, operands)) != sides.given:
        with _traced_again():
            return _merged(inner, mode, predicate, then, orelse, operands)
    with mode:
        return tuple(map(_like, sides.results))


def _merged(
    inner: Callable[..., Any], mode: Any, predicate: Any, then: Any, orelse: Any, operands: Any
) -> Any:
    """Return what torch makes of what both sides return, or what they do, if they are alike.

    Torch makes new symbols of data-dependent sizes, so that of two tensors that a side returns
    nobody knows any more that they have as many rows.
    """
    known, is_ours = symbols_in(operands), _is_an_arm(then) or _MEMORY.get() is not None
    if known and (is_ours or is_pure(then)):
        results = _returned_if_traced(mode, (then, orelse), operands)
        if results is not None and symbols_in(results) <= known:
            return results
    try:
        return inner(mode, predicate, then, orelse, operands)
    except (RuntimeError, AssertionError, KeyError):
        if not is_ours:
            raise
        results = _returned_by_both(mode, (then, orelse), operands)
        if results is None:
            raise
        return results


def _returned_if_traced(
    mode: Any, sides: Sequence[Callable[..., Any]], operands: Any
) -> tuple[torch.Tensor, ...] | None:
    """Return what both sides return if they are alike and can be traced, else ``None``."""
    try:
        return _returned_by_both(mode, sides, operands)
    except (RuntimeError, AssertionError, KeyError):
        return None


def _returned_by_both(
    mode: Any, sides: Sequence[Callable[..., Any]], operands: Any
) -> tuple[torch.Tensor, ...] | None:
    environment = mode.shape_env
    unseen = nullcontext() if environment is None else environment.ignore_fresh_unbacked_symbols()
    with mode, unseen:
        one, other = (tuple(side(*operands)) for side in sides)
        if len(one) != len(other) or not all(map(_are_alike, one, other)):
            return None
        return tuple(map(_like, one))


def _are_alike(one: Any, other: Any) -> bool:
    """Return whether two results are tensors of one form, whatever the sizes are."""
    both = (one, other)
    if not all(isinstance(each, torch.Tensor) and each.layout is torch.strided for each in both):
        return False
    kinds = [(each.dtype, each.device, each.dim(), each.is_conj(), each.is_neg()) for each in both]
    forms = [(*each.size(), *each.stride(), each.storage_offset()) for each in both]
    return kinds[0] == kinds[1] and all(
        compat.statically_known_true(left == right) for left, right in zip(*forms, strict=True)
    )
