"""Numbers of the program that become inputs of the graph: floats read in arms, and counters.

Dynamo makes an input of a float that differs from call to call, and takes the number out of it at
once. The input is one of the main graph; so where an arm reads it first, the number has to be taken
there, too. An integer that is an attribute of a module, or of what a module holds, is a constant
to Dynamo, and where each call counts it, each call is compiled. Such a counter becomes an input as
soon as a trace has stored another number.
"""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import object_behind
from bcmend.tracing.numbers import size_questions
from bcmend.tracing.sites import body_states, capture_mode


@hooks.around(
    compat.VariableBuilder, methods.WRAP_FLOAT, "floats read first in an arm", gate=hooks.of_builder
)
def _wrap_float(inner: Any, self: Any, value: float) -> Any:
    output = self.tx.output
    tracers = output.tracers
    output.tracers = [output.root_tracer]
    try:
        return inner(self, value)
    finally:
        output.tracers = tracers


#: The expressions by which a trace finds what may be an integer that is an input.
_READ: Final[Slot[set[str]]] = Slot(set, rolls_back=False)


@hooks.around(compat.builder, methods.IS_DYNAMIC_SOURCE, "integers that calls count", gate=None)
def _is_dynamic(inner: Any, name: str, *more: Any) -> bool:
    """Return whether an integer, by the expression that Dynamo finds it by, is to be an input."""
    if inner(name, *more):
        return True
    tx = size_questions.translator_of_this_thread()
    if tx is None or not (_may_vary() and capture_mode.in_mended_code(tx)):
        return False
    output = tx.output
    if not _READ.of(output):
        at_the_end(output, Phase.CHECK, lambda module: _note_counted(output))
    _READ.of(output).add(name)
    return name in body_states.state_of(output.root_tx.f_code).counted


def _may_vary() -> bool:
    """Return whether Dynamo makes inputs of integers that have changed, as it does by default."""
    settings = compat.dynamo_config
    return bool(settings.automatic_dynamic_shapes and not settings.specialize_int)


def _note_counted(output: compat.OutputGraph) -> None:
    """Note the attributes that were read, and hold another integer now."""
    read = _READ.of(output)
    counted = body_states.state_of(output.root_tx.f_code).counted
    for owner, stored in output.side_effects.store_attr_mutations.items():
        source = owner.source if isinstance(owner, compat.UserDefinedObjectVariable) else None
        if source is None or isinstance(owner.mutation_type, compat.AttributeMutationNew):
            continue  # it is a variable, or was not there before the call
        found, attributes = source.name, getattr(object_behind(owner), "__dict__", {})
        counted.update(
            f"{found}.{name}"
            for name, value in stored.items()
            if f"{found}.{name}" in read and _is_another(value, attributes.get(name))
        )


def _is_another(value: compat.VariableTracker, before: object) -> bool:
    """Return whether an integer may be another one; what is no constant is decided by the data."""
    if not isinstance(value, compat.ConstantVariable):
        return type(before) is int
    return type(value.value) is type(before) is int and value.value != before
