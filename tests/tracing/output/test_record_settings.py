"""A record carries the settings that differ from those with which the frame was entered."""

from __future__ import annotations

import warnings
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported

import bcmend
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


# Blocks of warnings


def _messages(function: Any, *inputs: Tensor) -> list[list[str]]:
    """Return what a function warns of in each call, and how many filters it leaves."""
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        for each in inputs:
            with warnings.catch_warnings(record=True) as caught:
                function(each)
                found.append([str(len(warnings.filters)), *(str(one.message) for one in caught)])
    return found


def _assert_alike(program: Any, *inputs: Tensor) -> None:
    torch._dynamo.reset()
    expected = _messages(program, *inputs)
    with bcmend.patched(program):
        mended = torch.compile(program, backend="eager", fullgraph=True)
        assert _messages(mended, *inputs) == expected
    assert len({tuple(each) for each in expected}) == len(inputs)  # each side warns differently


ONE = torch.ones(2)


def test_filters_set_under_a_condition_hold_to_the_end_of_the_block() -> None:
    def program(x: Tensor) -> Tensor:
        with warnings.catch_warnings():
            if x.sum() > 0:
                warnings.simplefilter("ignore")
            warnings.warn("inside", stacklevel=1)
        warnings.warn("outside", stacklevel=1)
        return x * 2

    _assert_alike(program, ONE, -ONE)


def test_a_block_under_a_condition() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="one")
                warnings.warn("one of two", stacklevel=1)
                warnings.warn("two of two", stacklevel=1)
        warnings.warn("one at the end", stacklevel=1)
        return x * 2

    _assert_alike(program, ONE, -ONE)


def test_blocks_of_functions_that_are_called_each_have_their_own_filters() -> None:
    def called(x: Tensor, name: str) -> Tensor:
        with warnings.catch_warnings():
            warnings.simplefilter("once")
            for _ in range(2):
                if x.sum() > 0:
                    warnings.warn(f"often {name}", stacklevel=2)
            warnings.resetwarnings()
            with warnings.catch_warnings(action="ignore"):
                warnings.warn("never", stacklevel=1)
            warnings.warn(f"last {name}", stacklevel=1)
        return x + 1

    def program(x: Tensor) -> Tensor:
        return called(called(x, "first"), "second")

    _assert_alike(program, ONE, -ONE * 9)


def test_filters_outside_of_any_block_stay() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            warnings.filterwarnings("ignore", category=FutureWarning)
        warnings.warn("later", FutureWarning, stacklevel=1)
        return x * 2

    _assert_alike(program, ONE, -ONE)


def test_a_check_that_fails_in_a_block_leaves_it() -> None:
    def program(x: Tensor) -> Tensor:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                if x.sum() > 5:
                    raise ValueError(f"{x.sum().item()} is too much")
                warnings.warn("hidden", stacklevel=1)
        except ValueError:
            x = x - 1
        warnings.warn("shown" if x.sum() > 0 else "negative", stacklevel=1)
        return x * 2

    _assert_alike(program, ONE, -ONE)


@pytest.mark.parametrize("action", [None, "error"])
def test_warnings_that_a_filter_makes_errors_raise_where_they_are_given(action: Any) -> None:
    def program(x: Tensor) -> Tensor:
        with warnings.catch_warnings(action=action):
            if action is None:
                warnings.simplefilter("error")
            try:
                if x.sum() > 0:
                    warnings.warn("raised", stacklevel=1)
            except UserWarning:
                return x * 3
        return x * 2

    expected = [program(each) for each in (ONE, -ONE)]
    with bcmend.patched(program):
        compiled = torch.compile(program, backend="eager")
        assert all(map(torch.equal, map(compiled, (ONE, -ONE)), expected))


def test_a_block_that_keeps_its_warnings_has_the_statement_withdrawn() -> None:
    def program(x: Tensor) -> Any:
        with warnings.catch_warnings(record=True) as kept:
            warnings.warn("kept", stacklevel=1)
            y = x if x.sum() > 0 else -x
        return y, len(kept)

    torch._dynamo.reset()
    with bcmend.patched(program):
        with pytest.raises(Unsupported):
            torch.compile(program, backend="eager", fullgraph=True)(ONE)
        report = str(bcmend.report(program))
    assert "catch_warnings(record=True) is open" in report
