"""The ATen operators behind a node of a graph, found by running the node on fake tensors."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

import torch
from torch.autograd.graph import saved_tensors_hooks
from torch.fx import Node
from torch.fx.node import map_aggregate

from bcmend.dynamo import compat, shape_env
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.search import strict


@dataclass(frozen=True, slots=True)
class OperatorCall:
    operator: compat.OpOverload
    result: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def draws(self) -> bool:
        """Return whether it draws random numbers."""
        return effects.facts_of_target(self.operator).draws(self.arguments, self.keywords)

    def written(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that it writes to."""
        norm = effects.facts_of_target(self.operator).statistics
        is_training = norm is not None and not norm.switch.is_off(self.arguments, self.keywords)
        statistics = norm.names if norm is not None and is_training else ()
        for position, parameter in enumerate(self.operator._schema.arguments):
            info = parameter.alias_info
            if parameter.name in statistics or (info is not None and info.is_write):
                given = self.arguments[position : position + 1] or self.keywords.get(parameter.name)
                leaves = compat.tree_leaves(given)
                yield from (each for each in leaves if isinstance(each, torch.Tensor))


_NOTHING: Final = EffectFacts()


def facts_of_node(node: Node) -> EffectFacts:
    """Return what is known of the operation of a node."""
    is_call = node.op in ("call_function", "call_method")
    return effects.facts_of_target(node.target) if is_call else _NOTHING


def node_draws(node: Node) -> bool:
    """Return whether a node that calls an ATen operator draws random numbers."""
    is_operator = isinstance(node.target, compat.OpOverload)
    return is_operator and facts_of_node(node).draws(node.args, node.kwargs)


@dataclass(frozen=True, slots=True)
class OperatorRun:
    """The ATen calls behind one node, and which storages stood in for which.

    ``asserts`` says whether the calls are possible only for some values of unbacked sizes.
    """

    calls: list[OperatorCall]
    stands_for: dict[int, int] = field(default_factory=dict)
    asserts: bool = False

    def storages_written(self, *, reshaped: bool) -> set[int]:
        found: set[int] = set()
        for call in self.calls:
            if not reshaped or torch.Tag.inplace_view in call.operator.tags:
                found.update(storage_of(tensor) for tensor in call.written())
        return {self.stands_for.get(each, each) for each in found}


class _OperatorLog(compat.TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[OperatorCall] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append(OperatorCall(func, result, args, kwargs or {}))
        return result


def storage_of(tensor: torch.Tensor) -> int:
    """Return a number that is equal for tensors that share memory."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # a sparse tensor, or a subclass without storage
        return -id(tensor)


Key = TypeVar("Key")


def places_in_memory(
    tensors: Iterable[tuple[Key, torch.Tensor]],
) -> dict[int, list[tuple[Key, Any, Any]]]:
    """Return, of each memory, the tensors in it, where each begins, and how many bytes it has.

    The tensors are strided, and come with keys.
    """
    found: dict[int, list[tuple[Key, Any, Any]]] = {}
    for key, tensor in tensors:
        place = key, tensor.storage_offset(), tensor.untyped_storage().nbytes()
        found.setdefault(storage_of(tensor), []).append(place)
    return found


def tensors_of(node: Node) -> list[torch.Tensor]:
    """Return the fake tensors that a node gives, one or several."""
    value = node.meta.get("example_value")
    parts = value if isinstance(value, (list, tuple)) else (value,)
    return [part for part in parts if isinstance(part, torch.Tensor)]


def storages_of(node: Node) -> set[int]:
    """Return the storages of the tensors that a node gives."""
    return set(map(storage_of, tensors_of(node)))


def target_name(node: Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", repr(target))


def operators_of(node: Node, fake_mode: Any) -> OperatorRun | None:
    """Return the ATen calls behind one node; ``None`` if the node cannot be run on its own."""
    is_higher = isinstance(node.target, compat.HigherOrderOperator)
    facts = facts_of_node(node)
    if is_higher or node.op == "call_module" or facts is effects.UNKNOWN:
        return None
    missing = object()
    stands_for: dict[int, int] = {}

    def value(argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        example = argument.meta.get("example_value", missing)
        # An operation in place must not happen to the trace's own tensor a second time.
        if not may_write or not isinstance(example, torch.Tensor):
            return example
        other = stand_in(example)
        stands_for[storage_of(other)] = storage_of(example)
        return other

    may_write = facts.changes(node.args, node.kwargs)
    log = _OperatorLog()
    try:
        with (
            fake_mode,
            torch.no_grad(),
            fake_mode.shape_env.ignore_fresh_unbacked_symbols(),
            # An arm around this one may run where the condition of this one does not hold.
            shape_env.without_facts(fake_mode.shape_env),
            shape_env.taken_back(fake_mode.shape_env) as found,
        ):
            arguments = map_aggregate(node.args, value)
            keywords = map_aggregate(node.kwargs, value)
            with log:
                call_target(node.target, arguments, keywords)
    # The operation fails on the form of its operands, asks for something data-dependent, or has no
    # kernel for fake tensors. The facts of one call are given up: what asks takes the node to do
    # everything.
    except Exception as error:
        strict.require_foreign(error, *CALLERS)
        return None
    return OperatorRun(log.calls, stands_for, bool(found))


def call_target(target: Any, arguments: Any, keywords: Any) -> Any:
    """Call what a node has for its target: a function, or a method by its name.

    Hooks of the program do not see what it saves for a backward: a checkpoint around the call that
    is compiled counts the tensors that it is given.
    """
    with _unseen_by_hooks():
        return called(target, arguments, keywords)


def called(target: Any, arguments: Any, keywords: Any) -> Any:
    """Do as ``call_target`` where no gradients are recorded, so that nothing is saved."""
    if isinstance(target, str):
        receiver, *rest = arguments
        return getattr(receiver, target)(*rest, **keywords)
    return target(*arguments, **keywords)


@contextmanager
def _unseen_by_hooks() -> Iterator[None]:
    with ExitStack() as hooks:
        with suppress(RuntimeError):  # where hooks are disabled there are none
            hooks.enter_context(saved_tensors_hooks(_itself, _itself))
        yield


def _itself(saved: torch.Tensor) -> torch.Tensor:
    return saved


def is_in_place(node: Node) -> bool:
    """Return whether a node may change a tensor that it is given."""
    facts = facts_of_node(node)
    if not facts.changes(node.args, node.kwargs):
        return False
    found = run_of(node) if facts.is_composite and "out" not in node.kwargs else None
    if found is None:
        return True
    return not found.storages_written(reshaped=False).isdisjoint(found.stands_for.values())


def run_of(node: Node) -> OperatorRun | None:
    """Return the ATen calls behind a node of which Dynamo knows the result."""
    values = [node.meta.get("example_value")]
    values += [each.meta.get("example_value") for each in node.all_input_nodes]
    modes = (getattr(each, "fake_mode", None) for each in compat.tree_leaves(values))
    fake_mode = next(filter(None, modes), None)
    return None if fake_mode is None else operators_of(node, fake_mode)


def storages_written(node: Node, fake_mode: Any) -> set[int] | None:
    """Return the storages that a node writes to; ``None`` if the node cannot be run on its own."""
    run = operators_of(node, fake_mode)
    return None if run is None else run.storages_written(reshaped=False)


def stand_in(example: Any) -> Any:
    if isinstance(example, torch.Tensor):
        with torch.no_grad():
            return torch.empty_strided(
                example.size(), example.stride(), dtype=example.dtype, device=example.device
            )
    return example


#: What calls functions of torch that are written in C (see ``strict.require_foreign``).
CALLERS: Final = (called, stand_in)
