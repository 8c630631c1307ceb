"""What Inductor asks about sizes only to choose a layout, answered without the size.

Where it lowers a product of matrices for the CPU it asks whether the strides of an operand suit the
library, and it has the operand contiguous if they do not. An answer of no is right for each
operand: it may cost a copy, which depends on numbers that nobody knows before the graph runs.

Works round the lowering of ``bmm`` (torch/_inductor/kernel/bmm.py), which fails on such a size
instead. Reproduced on torch 2.13.0; no issue is known. This module can go when
``test_a_layout_is_not_chosen_for_a_data_dependent_size`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

from typing import Any, Final

import sympy
import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.shape_env import being_lowered

#: Operators whose lowering makes truths of the sizes of an FX node for that reason, and no other.
_LAID_OUT: Final = frozenset((torch.ops.aten.bmm.default,))


@hooks.around(compat.ShapeEnv, methods.EVALUATE_NODE, "questions about a layout", gate=None)
def _of_a_node(inner: Any, self: Any, node: Any, *more: Any, **named: Any) -> Any:
    try:
        return inner(self, node, *more, **named)
    except compat.GuardOnDataDependentSymNode:
        if getattr(being_lowered(), "target", None) not in _LAID_OUT:
            raise
        return sympy.false
