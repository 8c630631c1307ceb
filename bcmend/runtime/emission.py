"""Records that run inside the graph: their operator, and what it finds at run time.

A graph holds tensors, so an operator cannot be given a logger or a module. Before the graph runs,
the compiled frame calls ``begin`` with the objects that its records need, and passes what that
returns to the graph as one more input: a *call*, a tensor of no value to which the objects are
attached. The operator ``bcmend::emit`` takes the call, the number of the record, the condition
under which it is delivered, and its tensors; it runs the record where it stands. Nothing is looked
up by thread or by name, so calls may be nested, interleaved, or run in any thread.

The operator is ordered by torch's effect tokens (torch/_higher_order_ops/effects.py), which keep it
in the graph and in sequence with its like.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.eval_frame import skip_code
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op

from bcmend.runtime import records

__all__ = ["EMIT", "Plan", "Statement", "begin", "emitted"]

#: Makes a value of the tensors that the operator is given and the objects of the call.
Make = Callable[[Sequence[torch.Tensor], Sequence[Any]], Any]


@dataclass(frozen=True, slots=True)
class Statement:
    """One record of a graph.

    Attributes:
        key: its site.
        action: makes the function that makes the call, or raises.
        inputs: makes its arguments.
        raises: the action has to end in an exception.
        changed: positions (tensor of the operator, object of the call) of the arguments that the
            graph has changed in place by then, as they are then and as the caller has them.
    """

    key: str
    action: Make
    inputs: Make
    raises: bool
    changed: tuple[tuple[int, int], ...] = ()


@dataclass(slots=True, eq=False)
class Plan:
    """The records of one graph in order; ``sources`` says where Dynamo finds the objects."""

    statements: list[Statement] = field(default_factory=list)
    sources: list[Any] = field(default_factory=list)

    def __reduce__(self) -> tuple[Any, ...]:
        """Count for nothing where Inductor looks a graph up: the call brings the plan."""
        return Plan, ()

    def slot(self, source: Any) -> int:
        """Return the position of the object that Dynamo finds at ``source``."""
        if source not in self.sources:
            self.sources.append(source)
        return self.sources.index(source)


class _Emitted(threading.local):
    count = 0


_EMITTED: Final = _Emitted()


def emitted() -> int:
    """Return how many records that write something this thread has run inside graphs."""
    return _EMITTED.count


def begin(plan: Plan, *objects: Any) -> torch.Tensor:
    """Return the call with which a graph is given the objects of its records."""
    call: Any = torch.empty((), dtype=torch.int64, device="cpu")
    call._bcmend_call = plan, objects
    return call  # type: ignore[no-any-return]


def _emit(
    call: Any, number: int, predicate: torch.Tensor | None, tensors: Sequence[torch.Tensor]
) -> None:
    """Run a record, unless its condition does not hold."""
    if predicate is not None and not bool(predicate):
        return
    plan, objects = call._bcmend_call
    callback = set_eval_frame(None)  # what a record does is not compiled
    try:
        _run(plan.statements[number], tensors, objects)
    finally:
        set_eval_frame(callback)


def _run(statement: Statement, tensors: Sequence[torch.Tensor], objects: Sequence[Any]) -> None:
    if not statement.raises:
        _EMITTED.count += 1
    action, inputs = (make(tensors, objects) for make in (statement.action, statement.inputs))
    try:
        records.deliver_one(statement.key, None, statement.raises, action, inputs)
    except BaseException:
        for position, slot in statement.changed:
            _bring_back(objects[slot], tensors[position])
        raise


def _bring_back(argument: torch.Tensor, present: torch.Tensor) -> None:
    """Make the changes in place that the graph has computed, and would make at its end."""
    if argument.data_ptr() != present.data_ptr() and argument.shape == present.shape:
        with torch.no_grad():
            argument.copy_(present)


def _define() -> Any:
    library = torch.library.Library("bcmend", "DEF")  # type: ignore[no-untyped-call]
    library.define(  # type: ignore[no-untyped-call]
        "emit(Tensor call, int number, Tensor? predicate, Tensor[] tensors) -> ()",
        tags=(torch.Tag.cudagraph_unsafe,),
    )
    library.impl("emit", _emit, "CompositeExplicitAutograd")  # type: ignore[no-untyped-call]
    torch.library.register_fake("bcmend::emit", lambda *arguments: None, lib=library)
    _register_effectful_op("bcmend::emit", _EffectType.ORDERED)
    return library


_LIBRARY: Final = _define()
EMIT: Final = torch.ops.bcmend.emit.default

skip_code(begin.__code__)
