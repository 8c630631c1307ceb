"""Each setting is read, found changed, and put back."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import numpy
import pytest
import torch

from bcmend.tracing.speculation import torch_settings
from bcmend.tracing.speculation.torch_settings import UnreadableSetting


@pytest.fixture(autouse=True)
def _put_back() -> Iterator[None]:
    before = torch_settings.read()
    yield
    assert torch_settings.restore(before) == []


def _benchmark() -> None:
    torch.backends.cudnn.benchmark = True


def _convolutions() -> None:
    torch.backends.cudnn.conv.fp32_precision = "ieee"


def _of_all() -> None:
    torch.backends.fp32_precision = "ieee"


def _memory() -> None:
    torch.utils.deterministic.fill_uninitialized_memory = False


CHANGES = {
    "grad mode": lambda: torch._C._set_grad_enabled(False),
    "default dtype": lambda: torch.set_default_dtype(torch.float64),
    "deterministic algorithms": lambda: torch.use_deterministic_algorithms(True, warn_only=True),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True, check_nan=False),
    "warnings always": lambda: torch.set_warn_always(True),
    "number of threads": lambda: torch.set_num_threads(torch.get_num_threads() + 1),
    "precision of matrix products": lambda: torch.set_float32_matmul_precision("high"),
    "nesting of autocast": lambda: torch.autocast_increment_nesting(),
    "autocast on cpu": lambda: torch.set_autocast_enabled("cpu", True),
    "dtype of autocast on cpu": lambda: torch.set_autocast_dtype("cpu", torch.float16),
    "attention by math": lambda: torch.backends.cuda.enable_math_sdp(False),
    "checks of sparse tensors": lambda: torch.sparse.check_sparse_tensor_invariants.enable(),
    "memory filled where not initialised": _memory,
    "torch.backends.cudnn.benchmark": _benchmark,
    "torch.backends.cudnn.conv.fp32_precision": _convolutions,
    "torch.backends.fp32_precision": _of_all,
    "NNPACK": lambda: torch._C._set_nnpack_enabled(False),
    "state of torch's generators": lambda: torch.rand(1),
    "state of random": lambda: random.random(),
    "state of numpy.random": lambda: numpy.random.rand(),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_setting_is_found_changed_and_put_back(name: str) -> None:
    before = torch_settings.read()
    assert torch_settings.changed(before) == []
    change: Callable[[], object] = CHANGES[name]
    change()
    assert name in torch_settings.changed(before)
    assert torch_settings.restore(before) == []
    assert torch_settings.changed(before) == []


def test_flags_are_put_back_where_programs_may_not_set_them(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before = torch_settings.read()
    torch.backends.cudnn.benchmark = not torch.backends.cudnn.benchmark
    of_torch = torch.backends.flags_frozen.__globals__
    monkeypatch.setitem(of_torch, "__allow_nonbracketed_mutation_flag", False)
    with pytest.raises(RuntimeError, match="disable_global_flags"):
        torch.backends.cudnn.benchmark = True
    assert torch_settings.restore(before) == []
    assert torch_settings.changed(before) == []


def test_what_cannot_be_read_has_its_error_as_value(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise RuntimeError("mixed")

    before = torch_settings.read()
    table = {"default dtype": (fail, torch.set_default_dtype)}
    monkeypatch.setattr(torch_settings, "_table", lambda: {**table})
    now = torch_settings.read()
    assert now == {"default dtype": UnreadableSetting("RuntimeError: mixed")}
    assert torch_settings.changed({"default dtype": before["default dtype"]}) == ["default dtype"]
    assert torch_settings.restore(now) == []
