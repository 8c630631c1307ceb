"""Layouts that Inductor chooses: of operands of products, and of what a choice is given.

Where it lowers a product of matrices for the CPU it asks whether the strides of an operand suit the
library, and it has the operand contiguous if they do not. An answer of no is right for each
operand: it may cost a copy, which depends on numbers that nobody knows before the graph runs.

The sides of a choice are compiled for operands with the strides that were traced, but Inductor lays
out what it computes as it likes. An operand with other strides is copied, or laid out as traced
where its layout is not yet decided.

Works round the lowering of ``bmm`` (torch/_inductor/kernel/bmm.py), which fails on such a size
instead. Reproduced on torch 2.13.0; no issue is known. The hook can go when
``test_a_layout_is_not_chosen_for_a_data_dependent_size`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails. Works round ``Conditional.create``
(torch/_inductor/ir.py; ``Switch`` since torch 2.14), which asks for no strides of operands, as
``InvokeSubgraph.create`` and ``WhileLoop.create`` do. Reproduced on torch 2.13.0; no issue is
known. What is not about sizes can go when
``test_an_operand_of_a_choice_has_other_strides_than_were_traced`` there fails.

The backward of a product of matrices asks whether one of them lies in memory by columns, and takes
one of two equal forms. Inductor asks whether a sum behind a product can be computed with it, which
it can if one size is the other, or 1. Both fail where it cannot be told, of ``x[mask] @ y``
(``mm_mat1_backward`` in torch/csrc/autograd/FunctionsManual.cpp, ``is_valid_addmm_fusion`` in
torch/_inductor/fx_passes/post_grad.py); here such sizes differ. Reproduced on torch 2.13.0; no
issue is known. That can go when
``test_products_of_rows_of_a_data_dependent_number_do_not_compile`` there fails.

Inductor orders strides by whether one divides another (``Layout._stride_expr_ge_or_false`` in
torch/_inductor/ir.py). Of a stride that is the expanded square of a size, as of transposed scores
of attention in a side with dropout, sympy makes a remainder with a quotient in it, of which torch
computes bounds, and fails. That is answered as what torch cannot tell. Reproduced on torch 2.13.0;
no issue is known. The hook can go when
``test_a_square_of_a_size_is_not_divided_by_it`` there fails.

What reads an operand that is laid out otherwise is traced again by Inductor. Of a mask that selects
rows (``x[mask]``) torch remembers how many it selects, under a name that it has given up since, and
it fails where it is to give that up once more (``rebind_unbacked`` in
torch/fx/experimental/symbolic_shapes.py). Reproduced on torch 2.13.0; no issue is known. The hook
can go when ``test_a_mask_selects_rows_of_a_tensor_that_is_laid_out_otherwise`` there fails.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

import sympy
import torch
from torch.fx import GraphModule, Node

from bcmend.dynamo import compat, fx_graph, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.shape_env import being_lowered
from bcmend.tracing.backends.backward_compilers import with_backward

#: The releases of torch from which on these do not hold, and what works round them can go.
UNTIL: Final = {
    "test_a_square_of_a_size_is_not_divided_by_it": "2.14",
    "test_a_mask_selects_rows_of_a_tensor_that_is_laid_out_otherwise": "2.14",
}
#: Operators whose lowering makes truths of the sizes of an FX node for that reason, and no other.
_LAID_OUT: Final = frozenset((torch.ops.aten.bmm.default,))
_COND: Final = torch.ops.higher_order.cond
#: Steps of autograd that ask for nothing but layouts.
_PRODUCTS: Final = frozenset(("MmBackward0", "AddmmBackward0"))
#: Functions of Inductor that ask whether products and sums become one, with what asks for them.
_FUSIONS: Final = frozenset((("is_expandable_to", "is_valid_addmm_fusion"),))
#: Modules through which a question about a size goes.
_WAY: Final = frozenset(
    ("torch", *(f"torch.fx.experimental.{each}" for each in ("recording", "sym_node")))
) | {"torch.fx.experimental.symbolic_shapes"}


@hooks.around(compat.ShapeEnv, methods.EVALUATE_NODE, "questions about a layout", gate=None)
def _of_a_node(inner: Any, self: Any, node: Any, *more: Any, **named: Any) -> Any:
    try:
        return inner(self, node, *more, **named)
    except compat.GuardOnDataDependentSymNode:
        if getattr(being_lowered(), "target", None) in _LAID_OUT:
            return sympy.false
        if isinstance(node.expr, (sympy.Eq, sympy.Ne)) and _is_of_form():
            return sympy.true if isinstance(node.expr, sympy.Ne) else sympy.false
        raise


def _is_of_form() -> bool:
    """Return whether what asks about a size takes one of two equal forms by the answer."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and _is_of_question(frame):
        frame = frame.f_back
    if frame is None or frame.f_back is None:
        return False
    if frame.f_code.co_name == "_engine_run_backward":  # a formula of autograd itself
        node = compat._current_autograd_node()
        return node is not None and node.name() in _PRODUCTS
    return (frame.f_code.co_name, frame.f_back.f_code.co_name) in _FUSIONS


def _is_of_question(frame: FrameType) -> bool:
    """Return whether a frame is one in which a question is on its way to its answer."""
    name = str(frame.f_globals.get("__name__"))
    return name in _WAY or name.startswith("bcmend.")


@hooks.around(compat.ShapeEnv, methods.EVALUATE, "strides that divide others", gate=None, place=1)
def _of_strides(inner: Any, self: Any, question: Any, *more: Any, **named: Any) -> Any:
    unknown = named.get("fallback_value")
    if unknown is not None and _has_quotient(question):
        return unknown
    return inner(self, question, *more, **named)


def _has_quotient(question: Any) -> bool:
    """Return whether a question about integers divides by one, which torch writes otherwise."""
    if not isinstance(question, sympy.Basic):
        return False
    powers = question.atoms(sympy.Pow)
    return any(each.base.is_integer and each.exp.is_negative for each in powers)


@hooks.around(
    compat.ShapeEnv, methods.RENAME_UNBACKED, "sizes that have another name already", gate=None
)
def _rename(inner: Any, self: Any, name: Any, wanted: Any) -> None:
    if self.replacements.get(name) != wanted:
        inner(self, name, wanted)


@hooks.around(compat.LoweredChoice, methods.CREATE, "operands with the strides traced", gate=None)
def _lower_choice(inner: Any, *given: Any, **named: Any) -> Any:
    *others, operands = given
    nodes: Any = being_lowered()
    laid_out = [_laid_out(*pair) for pair in zip(operands, nodes.args[-1], strict=True)]
    return inner(*others, laid_out, **named)


def _laid_out(operand: Any, node: Any) -> Any:
    """Return an operand as Inductor has it, with the strides that were traced of its node."""
    traced = node.meta["val"] if isinstance(node, Node) else node
    if not isinstance(traced, torch.Tensor):
        return operand
    choice: Any = compat.LoweredChoice
    return choice.require_exact_strides(choice.realize_input(operand), traced.stride())


_OF_BACKWARD: Final = hooks.Hook(
    compat.LoweredChoice, methods.CREATE, "strides in a backward", _lower_choice, None
)


@hooks.around(compat.AotAutograd, methods.CALL, "backwards of choices", gate=None, place=1)
def _compile(inner: Any, compiler: Any, module: Any, *more: Any, **named: Any) -> Any:
    if isinstance(module, GraphModule) and fx_graph.calls(module, _COND):
        compiler = with_backward(compiler, _strides_in_backward)
    return inner(compiler, module, *more, **named)


def _strides_in_backward(compile_backward: Callable[..., Any]) -> Callable[..., Any]:
    def compiled(*given: Any, **named: Any) -> Any:
        with compat.compile_lock, hooks.REGISTRY.placed(_OF_BACKWARD):
            return compile_backward(*given, **named)

    return compiled
