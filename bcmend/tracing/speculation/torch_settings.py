"""Settings of torch for the process or the thread, compared around an arm and put back.

Dynamo makes the call of a setter while it traces, so that an arm that is only speculated has set
it. A setting that cannot be read has its error as value, which is compared like any other.
"""

from __future__ import annotations

import random
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache, partial
from typing import Any, Final

import torch
from torch.backends.cuda import matmul

from bcmend.dynamo import compat
from bcmend.knowledge.interruptions import is_interruption
from bcmend.tracing.deopt.block_settings import nesting_of_autocast, set_nesting_of_autocast

Get = Callable[[], Any]
Set = Callable[[Any], object]
Settings = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class UnreadableSetting:
    """Stands for the value of a setting that torch does not give."""

    error: str


def read() -> Settings:
    """Return the value of every setting, by name."""
    return {name: _value(get) for name, (get, _) in _table().items()}


def changed(before: Settings) -> list[str]:
    """Return the names of the settings that are not as in ``before``."""
    now = read()
    return [name for name, value in before.items() if value != now[name]]


def restore(before: Settings) -> list[str]:
    """Give settings their values again; return the names of those that cannot get them."""
    left = changed(before)
    for _ in range(_ROUNDS):
        if not left:
            break
        for name in left:
            set_value = _table()[name][1]
            if set_value is not None and not isinstance(before[name], UnreadableSetting):
                set_value(before[name])
        left = changed(before)
    return left


#: One setting may set others, as the precision of matrix products sets that of each library.
_ROUNDS: Final = 3


def _value(get: Get) -> Any:
    try:
        return get()
    except Exception as error:
        # This build of torch lacks the device or library. The setting counts as unchanged as long
        # as it fails with the same text, and is not put back.
        if is_interruption(error):
            raise
        return UnreadableSetting(f"{type(error).__name__}: {error}")


@cache
def _table() -> dict[str, tuple[Get, Set | None]]:
    """Return getter and setter of each setting, by name."""
    private = {name: (get, put) for name, get, put in compat.PRIVATE_SETTINGS}
    return {**_PUBLIC, **private, **dict(_of_autocast()), **dict(_of_backends()), **_NUMBERS}


def _of_autocast() -> Iterator[tuple[str, tuple[Get, Set]]]:
    for device in ("cpu", "cuda", "xpu", "mps", "hpu", "mtia", "maia", "xla"):
        yield (
            f"autocast on {device}",
            (
                partial(torch.is_autocast_enabled, device),
                partial(torch.set_autocast_enabled, device),
            ),
        )
        yield (
            f"dtype of autocast on {device}",
            (partial(torch.get_autocast_dtype, device), partial(torch.set_autocast_dtype, device)),
        )


def _of_backends() -> Iterator[tuple[str, tuple[Get, Set]]]:
    """Yield the flags of ``torch.backends``: properties of its modules, and of their parts."""
    for name in (
        "allow_fp16_reduced_precision_reduction",
        "allow_bf16_reduced_precision_reduction",
        "allow_fp16_accumulation",
        "allow_tf32",
        "fp32_precision",
    ):
        yield f"torch.backends.cuda.matmul.{name}", _attribute(matmul, name)
    for module in (torch.backends, *vars(torch.backends).values()):
        if isinstance(module, types.ModuleType) and type(module) is not types.ModuleType:
            yield from _of_backend(module)


def _of_backend(module: types.ModuleType) -> Iterator[tuple[str, tuple[Get, Set]]]:
    for name in dir(type(module)):
        where = f"{module.__name__}.{name}"
        flag = next((vars(kind)[name] for kind in type(module).__mro__ if name in vars(kind)), None)
        if isinstance(flag, torch.backends.ContextProp):
            # Not by the attribute, which refuses while ``disable_global_flags`` holds.
            yield where, (flag.getter, flag.setter)
        elif isinstance(flag, torch.backends._FP32Precision):
            yield f"{where}.fp32_precision", _attribute(flag, "fp32_precision")


def _attribute(owner: Any, name: str) -> tuple[Get, Set]:
    return partial(getattr, owner, name), partial(setattr, owner, name)


def _deterministic() -> tuple[bool, bool]:
    is_on = torch.are_deterministic_algorithms_enabled()
    return is_on, torch.is_deterministic_algorithms_warn_only_enabled()


def _set_deterministic(value: tuple[bool, bool]) -> None:
    torch.use_deterministic_algorithms(value[0], warn_only=value[1])


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _set_anomaly(value: tuple[bool, bool]) -> None:
    torch.autograd.set_detect_anomaly(*value)


_LEAST: Final = [5e-324]  # no constant of the code, which would compute with it once


def _flushes_denormal() -> bool:
    return _LEAST[0] * 1.0 == 0.0


def _state_of_numpy() -> Any:
    numpy = sys.modules.get("numpy")
    if numpy is None:
        return None
    kind, keys, *rest = numpy.random.get_state()
    return kind, keys.tobytes(), *rest


def _set_state_of_numpy(value: Any) -> None:
    numpy: Any = sys.modules["numpy"]
    kind, keys, *rest = value
    numpy.random.set_state((kind, numpy.frombuffer(keys, numpy.uint32), *rest))


def _state_of_generators() -> list[bytes]:
    return [each.get_state().numpy().tobytes() for each in _generators()]


def _set_state_of_generators(values: list[bytes]) -> None:
    for generator, value in zip(_generators(), values, strict=True):
        generator.set_state(torch.frombuffer(bytearray(value), dtype=torch.uint8))


def _generators() -> list[torch.Generator]:
    is_initialized: Any = torch.cuda.is_initialized
    on_devices = torch.cuda.default_generators if is_initialized() else ()
    return [torch.default_generator, *on_devices]


_SPARSE: Final[Any] = torch.sparse.check_sparse_tensor_invariants


def _check_sparse(value: bool) -> None:
    (_SPARSE.enable if value else _SPARSE.disable)()


#: Settings that torch documents: getter, and setter if there is one.
_PUBLIC: Final[dict[str, tuple[Get, Set | None]]] = {
    "grad mode": (torch.is_grad_enabled, compat._set_grad_enabled_now),
    "inference mode": (torch.is_inference_mode_enabled, None),
    "default dtype": (torch.get_default_dtype, torch.set_default_dtype),
    "deterministic algorithms": (_deterministic, _set_deterministic),
    "anomaly mode": (_anomaly, _set_anomaly),
    "warnings always": (torch.is_warn_always_enabled, torch.set_warn_always),
    "number of threads": (torch.get_num_threads, torch.set_num_threads),
    "denormal numbers": (_flushes_denormal, torch.set_flush_denormal),
    "precision of matrix products": (
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    "cache of autocast": (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    "nesting of autocast": (nesting_of_autocast, set_nesting_of_autocast),
    "attention by flash": (
        torch.backends.cuda.flash_sdp_enabled,
        torch.backends.cuda.enable_flash_sdp,
    ),
    "attention by math": (
        torch.backends.cuda.math_sdp_enabled,
        torch.backends.cuda.enable_math_sdp,
    ),
    "attention with little memory": (
        torch.backends.cuda.mem_efficient_sdp_enabled,
        torch.backends.cuda.enable_mem_efficient_sdp,
    ),
    "attention by cuDNN": (
        torch.backends.cuda.cudnn_sdp_enabled,
        torch.backends.cuda.enable_cudnn_sdp,
    ),
    "attention in half precision": (
        torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed,
        torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp,
    ),
    "fast path of attention": (
        torch.backends.mha.get_fastpath_enabled,
        torch.backends.mha.set_fastpath_enabled,
    ),
    "checks of sparse tensors": (_SPARSE.is_enabled, _check_sparse),
    "place of the default device": _attribute(compat.TorchFunctionModeStackVariable, "offset"),
    "memory filled where not initialised": _attribute(
        torch.utils.deterministic, "fill_uninitialized_memory"
    ),
}
#: States of generators of random numbers.
_NUMBERS: Final[dict[str, tuple[Get, Set | None]]] = {
    "state of torch's generators": (_state_of_generators, _set_state_of_generators),
    "state of random": (random.getstate, random.setstate),
    "state of numpy.random": (_state_of_numpy, _set_state_of_numpy),
}
