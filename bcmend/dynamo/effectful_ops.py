"""Defines bcmend's own operators; none can be part of a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

from bcmend.dynamo import compat

_LIBRARY: Final[Any] = torch.library.Library("bcmend", "DEF")  # type: ignore[no-untyped-call]


def define(
    signature: str,
    run: Callable[..., Any],
    fake: Callable[..., Any],
    *,
    has_effect: bool = True,
    skips_autograd: bool = False,
) -> Any:
    """Define an operator of ``torch.ops.bcmend``, and return its only overload.

    Args:
        signature: its name, parameters and results, as torch writes them.
        run: computes it.
        fake: computes its results on fake tensors.
        has_effect: it is neither removed nor run twice, and several keep their order
            (torch/_higher_order_ops/effects.py).
        skips_autograd: whether autograd does not see it at all.
    """
    name = signature.partition("(")[0]
    _LIBRARY.define(signature, tags=(torch.Tag.cudagraph_unsafe,))
    _LIBRARY.impl(name, run, "CompositeExplicitAutograd")
    if skips_autograd:
        _LIBRARY.impl(name, torch.library.fallthrough_kernel, "Autograd")
    torch.library.register_fake(f"bcmend::{name}", fake, lib=_LIBRARY)
    if has_effect:
        compat._register_effectful_op(f"bcmend::{name}", compat._EffectType.ORDERED)
    return getattr(torch.ops.bcmend, name).default


def token() -> torch.Tensor:
    """Return the result of an operator that has none: an empty tensor."""
    return torch.empty((0,), dtype=torch.int64, device="cpu")
