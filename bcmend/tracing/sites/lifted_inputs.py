"""How the tensors of the main trace were when an arm first met them.

Dynamo runs the operations of an arm on the fake tensors of the main trace, so that a change in
place leaves marks on these.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.fx import Proxy

from bcmend.dynamo import compat, snapshots
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import TensorValue, Value, example_of


@dataclass(frozen=True, slots=True)
class Entry:
    """A fake tensor of the main trace, and how it was when it was lifted.

    ``count``: how many changes in place had been counted.
    """

    example: torch.Tensor
    history: Any
    requires_grad: bool
    form: tuple[Any, ...]
    count: int = 0

    @classmethod
    def of(cls, example: torch.Tensor, count: int = 0) -> Entry:
        return cls(example, example.grad_fn, example.requires_grad, _form(example), count)

    @property
    def history_changed(self) -> bool:
        """Return whether it has another ``grad_fn`` now."""
        return self.example.grad_fn is not self.history

    @property
    def gained_gradients(self) -> bool:
        return self.example.requires_grad and not self.requires_grad

    @property
    def form_changed(self) -> bool:
        """Return whether its sizes, strides or memory are others now."""
        return _form(self.example) != self.form


def _form(example: torch.Tensor) -> tuple[Any, ...]:
    if example.layout is not torch.strided:
        return (example.size(),)
    return example.size(), example.stride(), example.storage_offset()


class Lifted(dict[Proxy, Proxy]):
    """What an arm reads of the main trace, with the state of each tensor.

    Takes the place of the table in which Dynamo's ``SubgraphTracer`` notes the former.
    ``counted`` says how many changes in place of a tensor were counted.
    """

    def __init__(self, counted: Callable[[torch.Tensor], int] = lambda _: 0) -> None:
        super().__init__()
        self.counted = counted
        self.entries: dict[Proxy, Entry] = {}

    def __setitem__(self, outer: Proxy, inner: Proxy) -> None:
        super().__setitem__(outer, inner)
        example = outer.node.meta.get("example_value")
        if isinstance(example, torch.Tensor):
            self.entries[outer] = Entry.of(example, self.counted(example))

    @property
    def spoiled(self) -> bool:
        """Return whether a tensor that was read has another form or need of gradients now."""
        return any(each.form_changed or each.gained_gradients for each in self.entries.values())


@dataclass(frozen=True, slots=True)
class SetAside:
    """Histories that one arm gave tensors of the main trace, set aside until the other is traced.

    The other arm meets these tensors as they were: it may ask whether they require gradients.

    Attributes:
        kept: by identity, the tensors with copies that have the histories.
        variables: the variables of these tensors that the arms are given.
    """

    kept: Mapping[int, tuple[torch.Tensor, torch.Tensor]]
    variables: tuple[TensorValue, ...]

    @classmethod
    def of(cls, tx: compat.Tracer, entries: Iterable[Entry], given: Iterable[Value]) -> SetAside:
        """Take the histories from the tensors that had none; those of views are left."""
        gained = [each.example for each in entries if _can_be_taken_back(each)]
        kept = {}
        for example in gained:
            if id(example) not in kept:
                with torch.enable_grad():
                    kept[id(example)] = example, example.clone()
                example.detach_()
        found: list[TensorValue] = []

        def collect(value: Value) -> None:
            if type(value) is compat.TensorVariable and id(example_of(value)) in kept:
                found.append(value)

        if kept:
            snapshots.visit(collect, list(given))
        aside = cls(kept, tuple(found))
        aside._read_again(tx)
        return aside

    def give_again(self, tx: compat.Tracer, entries: dict[Proxy, Entry]) -> None:
        """Give the histories to the tensors that the other arm, of ``entries``, gave none."""
        for example, history in self.kept.values():
            if example.requires_grad:
                continue
            with torch.enable_grad():
                example.copy_(history)
            for outer, entry in entries.items():
                if entry.example is example:
                    entries[outer] = Entry.of(example, entry.count)
        self._read_again(tx)

    def _read_again(self, tx: compat.Tracer) -> None:
        for variable in self.variables:
            getattr(variable, methods.READ_WHAT_HAS_CHANGED)(tx)


def _can_be_taken_back(entry: Entry) -> bool:
    example = entry.example
    is_own = isinstance(example, compat.FakeTensor) and example._base is None
    return is_own and entry.gained_gradients and entry.history is None and not example.is_leaf


def before_arms(tx: compat.Tracer, value: Proxy) -> Proxy:
    """Return what a value is outside of all arms that it was lifted into."""
    tracer = tx.output.current_tracer
    while value.node.op == "placeholder" and tracer.parent is not None:
        lifted = {
            inner.node: outer
            for outer, inner in tracer.lifted_freevars.items()
            if isinstance(outer, Proxy) and isinstance(inner, Proxy)
        }
        value, tracer = lifted.get(value.node, value), tracer.parent
    return value
