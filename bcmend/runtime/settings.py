"""Grad mode and autocast, as they are where a record is made.

What a record calls runs when the graph has run, and under the settings of the caller then; a check
or an output statement within ``torch.no_grad()`` or ``torch.autocast`` computes what it shows under
those. The trace enters these blocks as it meets them, and Dynamo's own guards see to it that a
frame is entered under the settings of its trace. So a record carries what is different.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import torch
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime.merge import constant

__all__ = ["as_of_now", "autocast_is_as_entered", "under"]

#: Device (empty for the accelerator, whichever it is), and Dynamo's names of its two settings.
_AUTOCAST: Final = (
    ("cpu", "autocast_cpu_enabled", "autocast_cpu_dtype"),
    ("", "autocast_enabled", "autocast_gpu_dtype"),
)

Settings = tuple[tuple[str, bool, str], ...]


def as_of_now(
    tx: Any, action: VariableTracker, inputs: VariableTracker
) -> tuple[VariableTracker, VariableTracker]:
    """Have ``action(*inputs)`` called under the settings of this place of the trace."""
    changed = _changed(tx.output)
    if not changed:
        return action, inputs
    source = AttrSource(tx.import_source(__name__), under.__name__)
    rows = TupleVariable([TupleVariable(list(map(constant, row))) for row in changed])
    return VariableTracker.build(tx, under, source), TupleVariable([rows, action, inputs])


def autocast_is_as_entered(output: Any) -> bool:
    """Whether autocast is at this place of the trace as it was when the frame was entered."""
    return all(device == "grad" for device, _, _ in _changed(output))


def _changed(output: Any) -> Settings:
    """Return what is not as it was when the frame was entered: device, whether on, dtype.

    The device is "grad" for the mode of gradients.
    """
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


def under(settings: Settings, action: Callable[..., None], inputs: tuple[Any, ...]) -> None:
    """Call ``action(*inputs)`` under ``settings``."""
    with ExitStack() as stack:
        for device, is_on, dtype in settings:
            stack.enter_context(_block(device, is_on, dtype))
        action(*inputs)


def _block(device: str, is_on: bool, dtype: str) -> Any:
    if device == "grad":
        return torch.set_grad_enabled(is_on)
    if not device:
        accelerator = torch.accelerator.current_accelerator()
        device = "cuda" if accelerator is None else accelerator.type
    return torch.autocast(device, dtype=getattr(torch, dtype), enabled=is_on)
