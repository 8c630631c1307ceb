"""Records that run inside the graph: their operator, and what it finds at run time.

A graph holds tensors, so an operator cannot be given a logger or a module. Before the graph runs,
the compiled frame calls ``begin`` with the objects that its records need, and passes what that
returns to the graph as one more input: a *call*, a tensor of no value to which the objects are
attached. The operator ``bcmend::emit`` takes the call, the number of the record, the condition
under which it is delivered, and its tensors; it runs the record where it stands. Nothing is looked
up by thread or by name, so calls may be nested, interleaved, or run in any thread.

The operator has an effect in torch's sense (torch/_higher_order_ops/effects.py), which keeps it in
the graph. Each gets what the one before it returned: Inductor, where it reorders for peak memory,
goes by the data alone.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo.eval_frame import skip_code

from bcmend.runtime import operators, records

__all__ = ["EMIT", "Finish", "Make", "Plan", "Statement", "begin", "emitted"]

#: Makes a value of the tensors that the operator is given and the objects of the call.
Make = Callable[[Sequence[torch.Tensor], Sequence[Any]], Any]
#: Does something with them.
Finish = Callable[[Sequence[torch.Tensor], Sequence[Any]], None]


@dataclass(frozen=True, slots=True)
class Statement:
    """One record of a graph.

    Attributes:
        key: its site.
        action: makes the function that makes the call, or raises.
        inputs: makes its arguments.
        raises: the action has to end in an exception.
        before: what a failing check has to do before it raises; ``None`` for one after whose
            failure the call is made again in plain Python.
        gradients: whether they are recorded where it stands; AOTAutograd's graphs run without.
    """

    key: str
    action: Make
    inputs: Make
    raises: bool
    before: tuple[Finish, ...] | None = ()
    gradients: bool = True


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
    """Return how many records this thread has run inside graphs that cannot be run again."""
    return _EMITTED.count


def begin(plan: Plan, *objects: Any) -> torch.Tensor:
    """Return the call with which a graph is given the objects of its records."""
    call: Any = torch.empty((), dtype=torch.int64, device="cpu")
    call._bcmend_call = plan, objects
    return call  # type: ignore[no-any-return]


def _token() -> torch.Tensor:
    return torch.empty((0,), dtype=torch.int64, device="cpu")


def _emit(
    call: Any,
    last: torch.Tensor | None,
    number: int,
    predicate: torch.Tensor | None,
    tensors: Sequence[torch.Tensor],
) -> torch.Tensor:
    """Run a record, unless its condition does not hold; return what the next one is given."""
    if predicate is None or bool(predicate):
        _deliver(call, number, tensors)
    return _token()


def _deliver(call: Any, number: int, tensors: Sequence[torch.Tensor]) -> None:
    plan, objects = call._bcmend_call
    callback = set_eval_frame(None)  # what a record does is not compiled
    try:
        _run(plan.statements[number], tensors, objects)
    finally:
        set_eval_frame(callback)


def _run(statement: Statement, tensors: Sequence[torch.Tensor], objects: Sequence[Any]) -> None:
    if statement.before is not None:
        _EMITTED.count += 1
        for finish in statement.before:
            finish(tensors, objects)
    with torch.set_grad_enabled(statement.gradients):
        action, inputs = (make(tensors, objects) for make in (statement.action, statement.inputs))
        records.deliver_one(statement.key, statement.raises, action, inputs)


EMIT: Final = operators.define(
    "emit(Tensor call, Tensor? last, int number, Tensor? predicate, Tensor[] tensors) -> Tensor",
    _emit,
    lambda *arguments: _token(),
    skips_autograd=True,
)

skip_code(begin.__code__)
