"""Floats of the program that become inputs of the graph, read first in an arm.

Dynamo makes an input of a float that differs from call to call, and takes the number out of it at
once. The input is one of the main graph; so the number has to be taken there, too.
"""

from __future__ import annotations

from typing import Any

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods


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
