"""Choices and loops inside a checkpoint, whose modes are asked as for torch's other operators.

Torch has this rule for its other operators with graphs (``redirect_to_mode`` in
torch/_higher_order_ops), and none for these two (torch/utils/checkpoint.py).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from bcmend.dynamo import compat, hooks


def _declare(operator: Any, mode: type) -> None:
    @hooks.kernel(operator, "what a checkpoint keeps, and computes again", key=mode)
    def _ask(inner: Callable[..., Any], mode: Any, *arguments: Any, **keywords: Any) -> Any:
        return mode.__torch_dispatch__(operator, (), arguments, keywords)


for each in (torch.ops.higher_order.cond, torch.ops.higher_order.while_loop):
    for _mode in (compat._CachingTorchDispatchMode, compat._CachedTorchDispatchMode):
        _declare(each, _mode)
