"""Buffers of modules whose numbers are known while a call is traced.

A number taken out of a small buffer of integers is a constant, and the frame gets a guard on what
the buffer holds. Once that fails the frame is traced again, and its numbers are data-dependent, as
they are where the frame itself changes or replaces it. Only of buffers on the CPU: such a guard
would wait for an accelerator.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Node

from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.tracing.numbers.written_memory import storages, writers_in
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify, weaken
from bcmend.tracing.sites import body_states

#: More numbers are no sizes, and a guard on them would cost.
_NUMBERS: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A buffer, as the frame finds it: its node among the inputs of the graph, and the tensor."""

    node: Node
    tensor: torch.Tensor
    source: Any


def buffer_of(tx: compat.Tracer, node: Node) -> Buffer | None:
    """Return the buffer that is an input of the graph; ``None`` for what may change at any call."""
    given: Any = node.meta.get("grapharg")
    source = getattr(given, "source", None)
    if tx.export or not isinstance(source, compat.DictGetItemSource):
        return None
    if not isinstance(source.base, compat.UnspecializedParamBufferSource):
        return None
    tensor = given.example
    if (
        not _state(tx.output).holds(Claim.CONSTANT, source.name)
        or not _is_small(tensor)
        or _is_aliased(node, tensor)
    ):
        return None
    return Buffer(node, tensor, source)


def _state(output: compat.OutputGraph) -> body_states.BodyState:
    return body_states.state_of(output.root_tx.f_code)


def _is_small(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)
        and tensor.numel() <= _NUMBERS
    )


def _is_aliased(node: Node, tensor: torch.Tensor) -> bool:
    """Return whether another input of the graph shares its memory, by which it may be changed."""
    others = (each.meta.get("grapharg") for each in node.graph.nodes if each is not node)
    tensors = (getattr(each, "example", None) for each in others)
    memory = tensor.untyped_storage()._cdata
    return any(
        isinstance(each, torch.Tensor)
        and each.layout is torch.strided
        and each.untyped_storage()._cdata == memory
        for each in tensors
    )


#: With a guard each, which a branch that is mended later may bring back.
_RELIED: Final[Slot[list[Buffer]]] = Slot(list, rolls_back=False)


def rely_on(tx: compat.Tracer, buffers: list[Buffer]) -> None:
    """Have the frame traced again once a buffer holds something else than now."""
    relied = _RELIED.of(tx.output)
    if buffers and not relied:
        at_the_end_of_a_graph(tx.output, Phase.CHECK, lambda module: _check(tx))
    for each in buffers:
        if all(each.tensor is not other.tensor for other in relied):
            relied.append(each)
            _state(tx.output).constants.add(each.source.name)
        compat.install_guard(compat.Guard(each.source, _guard_on(each.tensor, _state(tx.output))))


def _writers(tx: compat.Tracer, buffer: Buffer) -> Iterator[Node]:
    """Yield the operations of the graph, as far as it goes, that change a buffer."""
    return writers_in(tx, tx.output.root_tracer.graph, storages([buffer.node]))


def require_unchanged(tx: compat.Tracer) -> None:
    """Have the frame traced again if it has changed a buffer, as a counter or a flag.

    The end of the trace is not waited for. What an arm changes that may be rolled back is no change
    yet.
    """
    _give_up(tx, [each for each in _RELIED.of(tx.output) if any(_writers(tx, each))])


def _check(tx: compat.Tracer) -> None:
    """Have the frame traced again if it changes a buffer itself, so that no guard would hold."""
    effects = tx.output.side_effects
    replaced = [
        variable.source
        for variable in effects.id_to_variable.values()
        if variable.source is not None and effects.is_modified(variable)
    ]
    changed = [
        each
        for each in _RELIED.of(tx.output)
        if any(_writers(tx, each)) or each.source.base in replaced
    ]
    _give_up(tx, changed)


def _give_up(tx: compat.Tracer, buffers: Iterable[Buffer]) -> None:
    found, state = sorted({each.source.name for each in buffers}), _state(tx.output)
    if found:
        falsify(*(Finding(Claim.CONSTANT, state, name, evidence=name) for name in found))


def _guard_on(
    tensor: torch.Tensor, state: body_states.BodyState
) -> Callable[[compat.GuardBuilderBase, compat.Guard], None]:
    known: Any = tensor.tolist()
    own = weakref.ref(tensor)

    def BUFFER_MATCH(builder: compat.GuardBuilderBase, guard: compat.Guard) -> None:
        def is_as_before(given: torch.Tensor) -> bool:
            if given.tolist() == known:
                return True
            if own() is None or given is own():  # else it may be that of another module
                weaken(Finding(Claim.CONSTANT, state, guard.name, evidence=guard.name))
            return False

        assert isinstance(builder, compat.GuardBuilder)
        code = [f"{guard.name}.tolist() == {known}"]
        builder.get_guard_manager(guard).add_lambda_guard(is_as_before, code, guard.user_stack)

    return BUFFER_MATCH
