"""``torch.nn.functional.one_hot`` with a number of classes that the data say.

The operator takes no number that is not known. What is traced in its place compares items with the
numbers of classes; what is no class is left to the operator itself, which raises an error.
"""

from __future__ import annotations

import torch
from torch import Tensor


def rows(tensor: Tensor, num_classes: int | None = None) -> Tensor:
    """Return ``one_hot`` of integers of any shape, with the classes in its last dimension.

    Without ``num_classes`` there are as many as the largest integer asks for.
    """
    is_class = tensor >= 0
    if num_classes is None:
        num_classes = int(tensor.max().item()) + 1
    else:
        is_class = is_class & (tensor < num_classes)
    torch._check_tensor_all(is_class)  # type: ignore[no-untyped-call]
    return (tensor.unsqueeze(-1) == torch.arange(num_classes, device=tensor.device)).long()
