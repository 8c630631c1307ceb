"""The callables that rewritten bytecode names.

Each is a higher-order operator, Dynamo's own extension point: while a frame is traced, a function
of ``branch_primitives`` or ``output_primitives`` models the call; in plain Python it returns at
once, with the answer that sends control to the original instructions.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from bcmend.delivery import callers
from bcmend.dynamo import compat, frames, hooks, plain_python, trace_state
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, constant
from bcmend.names import RUNS_ITERATION, UNBOUND
from bcmend.tracing.entry import branch_primitives, output_primitives
from bcmend.tracing.loops import mask_loops
from bcmend.tracing.output import dropped_output

#: Is given the translator, the operator and its arguments.
Trace = Callable[..., Value]


class _Primitive(compat.HigherOrderOperator):
    """An operator of a class of its own: a call of it in plain Python is a call of ``plainly``."""

    def __new__(cls, name: str, plainly: Callable[..., Any]) -> _Primitive:
        of_one: Any = type(name, (cls,), {"__call__": staticmethod(plainly)})
        return super().__new__(of_one)  # type: ignore[no-any-return]

    def __init__(self, name: str, plainly: Callable[..., Any]) -> None:
        super().__init__(f"bcmend_{name}")  # type: ignore[no-untyped-call]

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        raise NotImplementedError


def _declared(
    name: str,
    purpose: str,
    trace: Trace,
    plainly: Callable[..., Any],
    *,
    stays_out: bool | None = None,
) -> _Primitive:
    """Return a primitive.

    Args:
        trace: models a call of it.
        plainly: makes a call in plain Python.
        stays_out: the result in a trace that bcmend stays out of; ``None`` for the one of
            ``trace``.
    """
    made = _Primitive(name, plainly)

    def call(self: Any, tx: compat.Tracer, args: list[Value], kwargs: Any) -> Value:
        if stays_out is not None and frames.is_left_alone(tx.output.root_tx.f_code):
            return constant(stays_out)
        trace_state.put_hooks_in_place(tx)
        return trace(tx, made, *args)

    hooks.operator(made.__name__, purpose)(methods.operator_model(name, call))
    return made


def _false(*arguments: Any) -> bool:
    return False


def _none(*arguments: Any) -> None:
    return None


def _second(first: Any, second: Any) -> Any:
    return second


def _recording_plainly(key: str, level: int, *callee: Any) -> bool:
    """Return whether ``record`` is to drop an output statement, or to show other frames to it."""
    if dropped_output.is_exported():
        return dropped_output.is_left_out(key, callee)
    shows_others = level != 1 and callers.is_inside_a_boundary()
    return shows_others and dropped_output.is_output(callee)


def _record_plainly(
    key: str, action: Any, inputs: tuple[Any, ...], level: int = 1, *more: Any
) -> Any:
    """Run an output statement now, or not at all, where a program is exported.

    Dynamo has broken the graph right at it, or does not trace the program.
    """
    if dropped_output.drop_plainly(key):
        return True
    if level == 1:
        return action(*inputs)
    return plain_python.run(callers.call_at_its_place, level, action, inputs)


entered: Final = _declared(
    "entered",
    "whether Dynamo traces the call of a patched function",
    lambda tx, operator: constant(True),
    _false,
)
data_dependent: Final = _declared(
    "data_dependent",
    "whether Dynamo would stop at a conditional jump",
    branch_primitives.data_dependent,
    _false,
    stays_out=False,
)
branch: Final = _declared(
    "branch", "both arms of a conditional jump", branch_primitives.branch, _none
)
known: Final = _declared(
    "known",
    "the truth of a condition, where it is computed in front of the graph",
    branch_primitives.known,
    _second,
)
undecided: Final = _declared(
    "undecided",
    "whether an operand has one form on each side of a branch",
    branch_primitives.undecided,
    _false,
    stays_out=False,
)
split: Final = _declared(
    "split", "both halves of code that reads such an operand", branch_primitives.split, _none
)
unbound: Final = _declared(
    "unbound",
    "whether a local is unbound",
    branch_primitives.unbound,
    lambda value: value is UNBOUND,
)
runs_iteration: Final = _declared(
    RUNS_ITERATION,
    "whether a loop over a mask makes an iteration",
    lambda tx, operator: mask_loops.runs_iteration(tx),
    lambda: True,
    stays_out=True,
)
guard: Final = _declared(
    "guard", "a check that raises when the graph has run", output_primitives.guard, _false
)
recording: Final = _declared(
    "recording",
    "whether an output statement becomes a record",
    output_primitives.recording,
    _recording_plainly,
    stays_out=False,
)
record: Final = _declared(
    "record", "the record of an output statement", output_primitives.record, _record_plainly
)
nothing: Final = _declared("nothing", "None", lambda tx, operator: constant(None), _none)

plain_python.have_dynamo_skip(_Primitive.__call__, _false, _none, _second)
