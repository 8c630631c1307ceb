"""Buffers of modules whose numbers are known while a call is traced.

A module may keep a stride or a number of frames as a buffer, a small tensor of integers that is
made once. A number taken out of one is a constant, and the frame gets a guard on what the buffer
holds: once it holds something else, or another tensor has taken its place, the frame is traced
again, and from then on the data decide. So they do where the frame itself changes or replaces it.
Only of buffers on the CPU, since such a guard would have every call wait for an accelerator.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any, Final

import torch
from torch._dynamo.guards import GuardBuilder, install_guard
from torch._dynamo.source import DictGetItemSource, UnspecializedParamBufferSource
from torch._guards import Guard, GuardBuilderBase
from torch.fx import Node

from bcmend.runtime import backoff
from bcmend.runtime.per_trace import kept
from bcmend.runtime.watches import SiteChanged

__all__ = ["Buffer", "buffer_of", "rely_on"]

#: More numbers are no sizes, and a guard on them would cost.
_NUMBERS: Final = 16


class Buffer:
    """A buffer, as the frame finds it: its node among the inputs of the graph, and the tensor."""

    def __init__(self, node: Node, tensor: torch.Tensor, source: Any) -> None:
        self.node, self.tensor, self.source = node, tensor, source


def buffer_of(tx: Any, node: Node) -> Buffer | None:
    """Return the buffer that is an input of the graph; ``None`` for what may change at any call."""
    given: Any = node.meta.get("grapharg")
    source = getattr(given, "source", None)
    if tx.export or not isinstance(source, DictGetItemSource):
        return None
    if not isinstance(source.base, UnspecializedParamBufferSource):
        return None
    tensor = given.example
    if source.name in _changing(tx) or not _is_small(tensor) or _has_another_name(node, tensor):
        return None
    return Buffer(node, tensor, source)


def _changing(tx: Any) -> set[str]:
    """Return where the frame has found buffers that did not stay as they were."""
    return backoff.state_of(tx.output.root_tx.f_code).changing


def _is_small(tensor: Any) -> bool:
    return (
        type(tensor) is torch.Tensor
        and tensor.device.type == "cpu"
        and tensor.layout is torch.strided
        and not (tensor.is_floating_point() or tensor.is_complex() or tensor.is_quantized)
        and tensor.numel() <= _NUMBERS
    )


def _has_another_name(node: Node, tensor: torch.Tensor) -> bool:
    """Whether another input of the graph shares its memory, by which it may be changed."""
    others = (each.meta.get("grapharg") for each in node.graph.nodes if each is not node)
    tensors = (getattr(each, "example", None) for each in others)
    memory = tensor.untyped_storage()._cdata
    return any(
        isinstance(each, torch.Tensor)
        and each.layout is torch.strided
        and each.untyped_storage()._cdata == memory
        for each in tensors
    )


def rely_on(tx: Any, buffers: list[Buffer], is_written: Callable[[Node], bool]) -> None:
    """Have the frame traced again once a buffer holds something else than now.

    ``is_written`` says whether the graph, when it is complete, changes an input of it.
    """
    relied: list[Buffer] = kept(tx.output, "known_buffers", list)
    changing = _changing(tx)
    if buffers and not relied:
        output = tx.output
        output.register_finalizer_fns.append(
            lambda module: _check(output, relied, is_written, changing)
        )
    for each in buffers:
        if all(each.tensor is not other.tensor for other in relied):
            relied.append(each)
        install_guard(Guard(each.source, _guard_on(each.tensor, changing)))


def _check(
    output: Any, relied: list[Buffer], is_written: Callable[[Node], bool], changing: set[str]
) -> None:
    """Have the frame traced again if it changes a buffer itself, so that no guard would hold."""
    effects = output.side_effects
    replaced = [
        variable.source
        for variable in effects.id_to_variable.values()
        if variable.source is not None and effects.is_modified(variable)
    ]
    found = {
        each.source.name for each in relied if is_written(each.node) or each.source.base in replaced
    }
    if found:
        changing.update(found)
        raise SiteChanged(restart_reason="bcmend: the call changes a buffer that it reads")


def _guard_on(
    tensor: torch.Tensor, changing: set[str]
) -> Callable[[GuardBuilderBase, Guard], None]:
    known: Any = tensor.tolist()
    own = weakref.ref(tensor)

    def BUFFER_MATCH(builder: GuardBuilderBase, guard: Guard) -> None:
        def is_as_before(given: torch.Tensor) -> bool:
            if given.tolist() == known:
                return True
            if own() is None or given is own():  # else it may be that of another module
                changing.add(guard.name)
            return False

        assert isinstance(builder, GuardBuilder)
        code = [f"{guard.name}.tolist() == {known}"]
        builder.get_guard_manager(guard).add_lambda_guard(is_as_before, code, guard.user_stack)

    return BUFFER_MATCH
