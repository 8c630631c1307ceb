"""Functions of torch that compute something whose size the data decide, and return something else.

``ctc_loss`` keeps a tensor for its backward that is as long as the longest target, and torch has no
form for that while it traces. The form of what the function returns does not depend on it. So where
a trace asks for that form, another function stands for it, whose results have the same sizes, types
and histories.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor

_OF_EACH: Final = ("none", 0)
_REDUCTIONS: Final = (*_OF_EACH, "mean", 1, "sum", 2)
_DTYPES: Final = (torch.float32, torch.float64)


def _like_ctc_loss(
    log_probs: Tensor,
    targets: Tensor,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str | int = "mean",
    zero_infinity: bool = False,
) -> Tensor:
    """Return a tensor of the form of ``torch.nn.functional.ctc_loss``.

    Raises:
        TypeError: the function would fail, or give another form.
    """
    if log_probs.dtype not in _DTYPES or log_probs.dim() not in (2, 3):
        raise TypeError("no logarithms of probabilities")
    if reduction not in _REDUCTIONS:
        raise TypeError("no reduction")
    losses = log_probs.sum((0, -1))
    return losses if reduction in _OF_EACH else losses.sum()


#: What stands for a function while it is traced, by its name.
ALIKE: Final[dict[str, Callable[..., Any]]] = {
    "ctc_loss": _like_ctc_loss,
    "nn.functional.ctc_loss": _like_ctc_loss,
}
