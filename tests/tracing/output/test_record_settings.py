"""A record carries the settings that differ from those with which the frame was entered."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.tracing.output import record_settings

_ENTERED = {
    "grad_enabled": (torch.set_grad_enabled, True),
    "autocast_enabled": (None, False),
    "autocast_gpu_dtype": (None, torch.float16),
    "autocast_cpu_enabled": (None, False),
    "autocast_cpu_dtype": (None, torch.bfloat16),
}


def _output(**present: Any) -> Any:
    """Return the output of a trace in which some settings are others than at its entry."""
    state = SimpleNamespace(global_context=SimpleNamespace(global_state=_ENTERED))
    now = {**_ENTERED, **{name: (None, value) for name, value in present.items()}}
    return SimpleNamespace(tracing_context=state, save_global_state=lambda out: out.update(now))


def test_nothing_is_added_where_nothing_differs() -> None:
    tx: Any = SimpleNamespace(output=_output())
    action, inputs = object(), object()
    assert record_settings.as_of_now(tx, action, inputs) == (action, inputs)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("present", "rows"),
    [
        ({"grad_enabled": False}, (("grad", False, ""),)),
        ({"autocast_cpu_enabled": True}, (("cpu", True, "bfloat16"),)),
        ({"autocast_cpu_dtype": torch.float16}, (("cpu", False, "float16"),)),
        (
            {"grad_enabled": False, "autocast_enabled": True},
            (("grad", False, ""), ("", True, "float16")),
        ),
    ],
)
def test_what_differs_is_named_with_its_device_and_dtype(present: Any, rows: Any) -> None:
    assert record_settings._changed(_output(**present)) == rows


def test_grad_mode_is_no_part_of_autocast() -> None:
    assert record_settings.autocast_is_as_entered(_output(grad_enabled=False))
    assert not record_settings.autocast_is_as_entered(_output(autocast_cpu_enabled=True))
