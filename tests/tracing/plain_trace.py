"""Call functions of the package directly while Dynamo traces, without any mended code.

`traced` compiles a function that does nothing but call a marker. The call of the marker is given to
a test's own function instead, with Dynamo's translator and its models of the inputs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch
from torch.fx import GraphModule

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.speculation.arms import Arm, ArmTrace, trace_arm

Step = Callable[..., Any]


def _marker(*inputs: Any) -> Any:
    raise AssertionError("the marker is never called")


def _program(*inputs: Any) -> Any:
    return _marker(*inputs)


class Traced:
    """What a trace came to: the graph, and the compiled function."""

    def __init__(self) -> None:
        self.graphs: list[GraphModule] = []
        self.result: Any = None

    @property
    def targets(self) -> list[Any]:
        """Return the targets of the calls in the graph."""
        (module,) = self.graphs
        return [node.target for node in module.graph.nodes if node.op.startswith("call")]

    def run(self, *inputs: Any) -> Any:
        """Run the graph on other inputs of the same form."""
        (module,) = self.graphs
        return module(*inputs)


@contextmanager
def calls_answered(marker: Callable[..., Any], answer: Step) -> Iterator[None]:
    """Have `answer(tx, *models)` give the value of each call of `marker` that Dynamo traces."""
    original = compat.UserFunctionVariable.call_function

    def call_function(self: Any, tx: Any, args: Sequence[Any], kwargs: Any) -> Any:
        if getattr(self, "fn", None) is not marker:
            return original(self, tx, args, kwargs)
        return answer(tx, *(each.realize() for each in args))

    with mock.patch.object(compat.UserFunctionVariable, "call_function", call_function):
        yield


def traced(step: Step, *inputs: Any) -> Traced:
    """Call `step(tx, *variables)` in a trace; what it returns is what the traced call returns.

    What `step` raises is raised here, and not taken for a failure of Dynamo's.
    """
    found, errors = Traced(), list[BaseException]()

    def answer(tx: Any, *models: Any) -> Any:
        try:
            return step(tx, *models)
        except BaseException as error:
            errors.append(error)
            return constant(None)

    def back_end(module: GraphModule, examples: list[Any]) -> Any:
        found.graphs.append(module)
        return module.forward

    torch._dynamo.reset()
    with calls_answered(_marker, answer):
        compiled = torch.compile(_program, backend=back_end, fullgraph=True)
        found.result = compiled(*inputs)
    torch._dynamo.reset()
    if errors:
        raise errors[0]
    return found


def bcmend_branch() -> None:
    """Stand for the operator in whose name arms are traced."""


@contextmanager
def _no_records() -> Iterator[list[Any]]:
    yield []


def arm(tx: Any, compute: Callable[[], Any], inputs: Sequence[Any] = ()) -> ArmTrace:
    """Trace an arm that does what `compute` does, and returns what it returns."""
    arguments = (compat.TupleVariable(list(inputs)),)
    found = trace_arm(
        tx, bcmend_branch, Arm(constant(None), arguments, lambda tracer: compute()), _no_records
    )
    assert isinstance(found, ArmTrace), found
    return found
