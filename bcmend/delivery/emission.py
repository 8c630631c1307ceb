"""Runs records inside the graph, by the operator ``bcmend::emit``.

A graph holds tensors, so an operator cannot be given a logger or a module. Before the graph runs,
the compiled frame calls ``begin`` with the objects that its records need, and passes the result to
the graph: a *call*, an empty tensor to which the objects are attached. Nothing is looked up by
thread or by name, so calls may be nested, interleaved, or run in any thread.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import torch

from bcmend.delivery import records
from bcmend.knowledge.interruptions import is_interruption

#: Makes a value of the tensors of the operator and the objects of the call.
Make = Callable[[Sequence[torch.Tensor], Sequence[Any]], Any]
#: Does something with them.
Finish = Callable[[Sequence[torch.Tensor], Sequence[Any]], None]


@dataclass(frozen=True, slots=True)
class Statement:
    """One record of a graph.

    Attributes:
        key: its site.
        action, inputs: make the function that makes the call, or raises, and its arguments.
        raises: the action has to end in an exception.
        before: called by a failing check before it raises; ``None`` if the call is re-executed in
            eager after the failure.
        gradients: the grad mode of the statement; AOTAutograd's graphs run without gradients.
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
        """Leave no trace in Inductor's cache key: the call brings the plan."""
        return Plan, ()

    def slot(self, source: Any) -> int:
        """Return the position of the object that Dynamo finds at ``source``."""
        if source not in self.sources:
            self.sources.append(source)
        return self.sources.index(source)


class CheckFailed(Exception):
    """A check in a graph has failed, and the call is to be made again; its cause says with what."""


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


def emit(call: Any, number: int, tensors: Sequence[torch.Tensor]) -> None:
    """Run a record of a call."""
    plan, objects = call._bcmend_call
    statement: Statement = plan.statements[number]
    if statement.before is not None:
        _EMITTED.count += 1
        for finish in statement.before:
            finish(tensors, objects)
    with torch.set_grad_enabled(statement.gradients):
        action, inputs = (make(tensors, objects) for make in (statement.action, statement.inputs))
        try:
            records.deliver_one(statement.key, statement.raises, action, inputs)
        except Exception as error:
            if statement.before is not None or is_interruption(error):
                raise
            raise CheckFailed(statement.key) from error
