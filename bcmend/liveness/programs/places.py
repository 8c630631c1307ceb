"""Items at data-dependent places, loops of data-dependent length, sizes that the data decide."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.models import methods
from bcmend.liveness.program import Arguments, beside, program

Function = Callable[..., Any]


#: Where Dynamo models a store to an item as no call of a method.
_STORES = [
    f"TensorVariable.{name}"
    for name in (methods.ASSIGN_SUBSCRIPT,)
    if name in vars(compat.TensorVariable)
]


#: What sorts a list.
_SORTS = f"ListVariable.{(*methods.SORT_OF_LISTS, methods.CALL_METHOD)[0]}"


@program(_SORTS)
def lists_sorted_by_numbers() -> Function:
    def program(x: Tensor) -> Any:
        return sorted(x[at].item() for at in range(3)), x + 1

    return program


@program(_SORTS)
def tuples_sorted_by_names() -> Function:
    def program(x: Tensor) -> Any:
        y = x + 1 if x.sum() > 0 else x - 1
        return sorted({"b": y, "a": y * 2}.items())

    return program


@program(
    "BuiltinVariable.call_getitem",
    "operators[bcmend_nothing]",
    inputs=beside(lambda: [1.0, 2.0, 3.0]),
)
def an_item_of_a_list() -> Function:
    def program(x: Tensor, items: list[float]) -> Any:
        return x * items[x.argmax().item()], abs(items[x.argmin().item()])

    return program


@program("TensorVariable.call_method:add_", "BuiltinVariable._handle_insert_op_in_graph:getitem")
def a_row() -> Function:
    def program(x: Tensor) -> Any:
        at = x.argmax().item()
        y = x * 2
        y[at].add_(1)
        return y, x[at] + 1

    return program


@program("items at data-dependent places", "Tensor.__setitem__", *_STORES)
def an_item_of_a_row() -> Function:
    def program(x: Tensor) -> Any:
        y = x.repeat(3, 1)
        y[x.argmax().item()][0] = 7.0
        return y

    return program


@program("TensorVariable.call_method:__setitem__", "Tensor.__setitem__")
def items_of_a_mask() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 2 if x.sum() > 0 else x - 1
        y[x > 0] = 0.5
        y[x > 1] = x[x > 1] * 2
        return y

    return program


@program(
    "ShapeEnv.allow_dynamic_output_shape_ops",
    "ShapeEnv.create_unbacked_symint",
    "ShapeEnv.evaluate_sym_node",
)
def a_size_that_the_data_decide() -> Function:
    def program(x: Tensor) -> Any:
        positive = x[x > 0]
        return positive.sum(), positive.shape[0], (positive.reshape(1, -1) @ positive).sum()

    return program


@program(
    "BuiltinVariable.call_range",
    "operators[bcmend_split]",
    "operators[bcmend_undecided]",
    "kernels[while_loop, Autograd]",
)
def a_range() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 1
        for _ in range(x.argmax().item()):
            y = y + 1
        return y

    return program


@program(
    "TensorVariable.tp_iter_impl",
    "InstructionTranslatorBase._format_value",
    "items at data-dependent places",
    inputs=beside(lambda: {f"scale_{at}": at + 0.5 for at in range(3)}),
)
def rows_of_a_mask() -> Function:
    def program(x: Tensor, scales: dict[str, float]) -> Any:
        y = torch.zeros_like(x)
        for row in (x > 0).nonzero():
            y[row] = x[row[0]] * scales[f"scale_{row[0]}"]
        return y

    return program


@program("Tensor.tolist")
def places_of_a_mask() -> Function:
    def program(x: Tensor) -> Any:
        y = x * 1
        for at in (x > 0).nonzero().flatten().tolist():
            y = y + x[at]
        return y

    return program


@program("TensorVariable.call_method:tolist", fullgraph=False)
def a_list_of_data_dependent_length() -> Function:
    def program(x: Tensor) -> Any:
        return (x + 1).relu(), (x[x > 0] * 2).tolist()

    return program


def sizes() -> Sequence[Arguments]:
    """Calls with a matrix and a number of rows in a tensor."""
    return [(torch.arange(6.0), torch.tensor(size)) for size in (2, 3, 1)]


@program(
    "TorchInGraphFunctionVariable.call_function",
    "TensorVariable.call_method:view",
    "TensorVariable.call_method:narrow",
    inputs=sizes,
)
def sizes_as_arguments() -> Function:
    def program(x: Tensor, size: Tensor) -> Any:
        x = x + size.item()
        return torch.arange(size), x.view(size, -1).sum(), x.narrow(0, 0, size)

    return program


@program("Tensor.__setitem__")
def stores_at_data_dependent_places() -> Function:
    def program(x: Tensor) -> Any:
        at = x.argmax().item()
        y = x * 1
        y[:at] = 0.5
        y[at] = 7.0
        return y

    return program


@program(
    "TorchInGraphFunctionVariable.call_function",
    "TensorVariable.call_method:squeeze",
    "TensorVariable.call_method:max",
    "TensorVariable.call_method:select",
)
def sizes_of_one_and_of_zero() -> Function:
    def program(x: Tensor) -> Any:
        positive = x[x > 0]
        return positive.squeeze(), torch.amax(positive, 0), positive.max(), positive.select(0, 0)

    return program


@program("ShapeEnv.guard_or_defer_runtime_assert")
def a_size_in_an_arm() -> Function:
    def program(x: Tensor) -> Any:
        positive = x[x > 0]
        if positive.shape[0] > 1:
            return positive[1] + positive.sum()
        return x.sum()

    return program


break_graph = torch.compiler.disable(lambda: None)


@program("InstructionTranslatorBase.maybe_has_backedge", fullgraph=False)
def a_graph_break_in_a_loop() -> Function:
    def program(x: Tensor) -> Any:
        for _ in range(2):
            if x.sum() > 0:
                x = x + 1
            break_graph()
            x = x * 2
        return x

    return program


@program("operators[bcmend_unbound]")
def a_local_that_is_bound_on_one_side() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() > 0:
            y = x + 1
        try:
            return y * 2
        except UnboundLocalError:
            return x - 1

    return program


@program("operators[bcmend_known]")
def a_filter() -> Function:
    def program(x: Tensor) -> Any:
        kept = list(at for at, each in enumerate(x) if each > 0)  # noqa: C400
        return (x * 2 if kept else x), kept

    return program


@program("operators[bcmend_runs_iteration]")
def a_loop_with_effects() -> Function:
    def program(x: Tensor) -> Any:
        y, found = x * 1, x.sum() * 0
        for at in (x > 0).nonzero().flatten().tolist():
            y[at] = at
            found = found + x[at]
        return y, found

    return program


@program("operators[bcmend_guard]")
def a_check_that_raises() -> Function:
    def program(x: Tensor) -> Any:
        if x.sum() < 0:
            raise ValueError("negative")
        return x + 1

    return program


@program("dictionaries that are gone over backwards", fullgraph=False)
def a_dictionary_gone_over_backwards() -> Function:
    def program(x: Tensor) -> Any:
        held = {1: 1, 2: 2}
        for key in reversed(held):
            if x.sum() > 0:
                held[key] = 3
        return x + 1, held, [*reversed(held.items())]

    return program


@program(
    *("what masks select in an arm", "Tensor.nonzero", "Tensor.argwhere", "Tensor.masked_select"),
)
def what_masks_select_in_an_arm() -> Function:
    def program(x: Tensor) -> Any:
        keep = x > 0.6
        if x.sum() > 0:
            places = torch.where(keep)[0], torch.nonzero(keep), torch.argwhere(keep)
            others = keep.nonzero(), keep.argwhere()
            x = x.masked_select(keep) + torch.masked_select(x, keep)
            x = x * sum(each.sum() for each in (*places, *others))
        else:
            x = x + 1
        return x

    return program
