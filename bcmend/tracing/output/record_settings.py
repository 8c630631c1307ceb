"""Grad mode and autocast where a record is made.

A record is delivered under the settings of the caller. Dynamo guards that a frame is entered under
the settings of its trace, so a record carries what is different from those.
"""

from __future__ import annotations

from typing import Any, Final

from bcmend.delivery.settings import Settings, call_under
from bcmend.dynamo import compat, values
from bcmend.dynamo.values import Value, constant

#: Device, and Dynamo's names of its two settings.
_AUTOCAST: Final = (
    ("cpu", "autocast_cpu_enabled", "autocast_cpu_dtype"),
    ("", "autocast_enabled", "autocast_gpu_dtype"),
)


def as_of_now(tx: compat.Tracer, action: Value, inputs: Value) -> tuple[Value, Value]:
    """Return action and inputs that run ``action(*inputs)`` under the present settings."""
    changed = _changed(tx.output)
    if not changed:
        return action, inputs
    rows = compat.TupleVariable([compat.TupleVariable(list(map(constant, row))) for row in changed])
    return values.function_of(tx, call_under), compat.TupleVariable([rows, action, inputs])


def autocast_is_as_entered(output: compat.OutputGraph) -> bool:
    """Return whether autocast is now as it was when the frame was entered."""
    return all(device == "grad" for device, _, _ in _changed(output))


def _changed(output: compat.OutputGraph) -> Settings:
    """Return what is not as it was when the frame was entered: device (or "grad"), is on, dtype."""
    entered = output.tracing_context.global_context.global_state
    present: dict[str, Any] = {}
    output.save_global_state(present)
    found = []
    if present["grad_enabled"][1] is not entered["grad_enabled"][1]:
        found.append(("grad", present["grad_enabled"][1], ""))
    for device, *names in _AUTOCAST:
        is_on, dtype = (present[name][1] for name in names)
        if (is_on, dtype) != tuple(entered[name][1] for name in names):
            found.append((device, is_on, str(dtype).removeprefix("torch.")))
    return tuple(found)
