"""What the operations of a traced arm would do if they ran without being asked for.

Reads the FX nodes of an arm, runs each once more on fake tensors while a dispatch mode writes down
the ATen operators that it consists of, and sums up: may one fail on the data, does one draw random
numbers, is one dear. The facts come from the operators' own tags and from two short tables; an
operator that is in neither is taken to be able to fail.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx import Node
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

from bcmend.runtime.repeats import may_draw

__all__ = ["AUTOCAST", "Hazards", "draws", "hazards_of", "is_in_place", "run", "stand_in"]

#: Matrix products, convolutions, attention and the like: running them for nothing costs.
DEAR: Final = frozenset(
    """
    mm bmm addmm addbmm baddbmm addmv addr mv dot vdot matmul linear einsum tensordot
    convolution _convolution convolution_overrideable mkldnn_convolution _slow_conv2d_forward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math
    _scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable
    scaled_dot_product_attention _scaled_mm _int_mm _grouped_mm lstm gru rnn_tanh rnn_relu
    _thnn_fused_lstm_cell mkldnn_rnn_layer sort topk kthvalue median nanmedian mode _fft_c2c
    _fft_r2c _fft_c2r native_batch_norm _native_batch_norm_legit
    """.split()
)

#: Operators beside the pointwise ones and the views that cannot fail on the values of their inputs
#: (what depends on shapes and dtypes alone shows while tracing).
TOTAL: Final = frozenset(
    """
    sum mean prod amax amin max min any all argmax argmin aminmax std var std_mean var_mean norm
    linalg_vector_norm logsumexp cumsum cumprod cummax cummin logcumsumexp count_nonzero
    _softmax _safe_softmax _log_softmax softmax log_softmax native_layer_norm native_group_norm
    _fused_rms_norm rms_norm full full_like zeros zeros_like ones ones_like empty empty_like
    empty_strided empty_permuted new_empty new_empty_strided new_zeros new_ones new_full arange
    linspace logspace eye scalar_tensor lift_fresh lift_fresh_copy _to_copy to clone copy copy_
    contiguous cat stack hstack vstack repeat tile constant_pad_nd pad reflection_pad1d
    reflection_pad2d replication_pad1d replication_pad2d tril triu tril_indices triu_indices
    flip roll rot90 where masked_fill masked_fill_ fill fill_ zero_ nan_to_num detach alias
    expand unfold diag diagonal diag_embed slice_scatter select_scatter diagonal_scatter
    as_strided_scatter im2col col2im upsample_nearest1d upsample_nearest2d upsample_bilinear2d
    avg_pool2d max_pool2d_with_indices adaptive_avg_pool2d _adaptive_avg_pool2d outer cross
    cdist _unsafe_view reshape view_as_real view_as_complex complex polar isin bucketize
    searchsorted glu
    """.split()
)

_INTEGER_DIVISION: Final = frozenset(
    ["div", "divide", "floor_divide", "remainder", "fmod", "true_divide"]
)
#: Calls that change what operators after them mean; making one more would change it for good.
AUTOCAST: Final = frozenset([_enter_autocast, _exit_autocast])
#: So many operators are dear however cheap each is.
MANY_OPERATORS: Final = 128


@dataclass(frozen=True, slots=True)
class Hazards:
    """What speculation of an arm would risk.

    Attributes:
        partial: name of an operator that may fail on the data; empty if none.
        random: name of an operator that draws random numbers; empty if none.
        dear: name of an operator that is too costly to run for nothing; empty if none.
        operators: how many ATen operators the arm consists of.
    """

    partial: str = ""
    random: str = ""
    dear: str = ""
    operators: int = 0


@dataclass(frozen=True, slots=True)
class _Call:
    operator: torch._ops.OpOverload
    result: Any
    arguments: tuple[Any, ...]
    keywords: dict[str, Any]

    @property
    def draws(self) -> bool:
        """Whether it draws random numbers; attention without dropout is tagged so and does not."""
        return _draws(self.operator, self.arguments, self.keywords)


def draws(node: Node) -> bool:
    """Whether a node that calls an ATen operator draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and _draws(
        node.target, node.args, node.kwargs
    )


def _draws(operator: torch._ops.OpOverload, arguments: Any, keywords: Any) -> bool:
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    for position, parameter in enumerate(operator._schema.arguments):
        if parameter.name == "dropout_p":
            given = arguments[position : position + 1]
            value = given[0] if given else keywords.get("dropout_p", 0.0)
            return bool(value != 0)
    return True


class _OperatorLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append(_Call(func, result, args, kwargs or {}))
        return result


def hazards_of(
    nodes: Iterable[Node], fake_mode: Any, modules: Mapping[str, Any] = MappingProxyType({})
) -> Hazards:
    """Return what running ``nodes`` without being asked would risk.

    Args:
        nodes: FX nodes in order, their ``example_value`` filled in by Dynamo.
        fake_mode: the ``FakeTensorMode`` of the trace.
        modules: the graphs that operators among the nodes take as arguments, by name.
    """
    partial = random = dear = ""
    count = 0
    for node in nodes:
        if node.op in ("placeholder", "output", "get_attr") or node.target in AUTOCAST:
            continue
        calls = _operators_of(node, fake_mode)
        if calls is None:
            partial = partial or _target_name(node)
            dear = dear or _target_name(node)
            random = random or _draw_inside(node, modules)
            continue
        for call in calls:
            name = call.operator.overloadpacket.__name__
            count += 1
            if call.draws:
                random = random or name
            elif not _is_total(call.operator, name, call.result):
                partial = partial or name
            if name in DEAR:
                dear = dear or name
    if count > MANY_OPERATORS:
        dear = dear or f"{count} operators"
    return Hazards(partial, random, dear, count)


def _is_total(operator: torch._ops.OpOverload, name: str, result: Any) -> bool:
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if base in _INTEGER_DIVISION and not _all_floating(result):
        return False
    if operator.namespace == "prim":
        return True  # reads what is known of a tensor without its data
    if torch.Tag.dynamic_output_shape in operator.tags:
        return False
    if torch.Tag.data_dependent_output in operator.tags:
        return False
    return (
        torch.Tag.pointwise in operator.tags
        or base in TOTAL
        or name in TOTAL
        or name in DEAR
        or operator.is_view
    )


def _all_floating(result: Any) -> bool:
    return isinstance(result, torch.Tensor) and (result.is_floating_point() or result.is_complex())


def _draw_inside(node: Node, modules: Mapping[str, Any]) -> str:
    """Return the name of what may draw random numbers in the graphs that ``node`` runs."""
    for each in node.all_input_nodes:
        module = modules.get(each.target) if isinstance(each.target, str) else None
        if each.op == "get_attr" and isinstance(module, torch.fx.GraphModule):
            for inner in module.graph.nodes:
                found = _target_name(inner) if may_draw(inner) else _draw_inside(inner, modules)
                if found:
                    return found
    return ""


def _target_name(node: Node) -> str:
    target = node.target
    return target if isinstance(target, str) else getattr(target, "__name__", repr(target))


def _operators_of(node: Node, fake_mode: Any) -> list[_Call] | None:
    """Return the ATen calls behind one node; ``None`` where the node cannot be run again."""
    if isinstance(node.target, torch._ops.HigherOrderOperator) or node.op == "call_module":
        return None
    missing = object()

    def value(argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        example = argument.meta.get("example_value", missing)
        # An operation in place must not happen to the trace's own tensor a second time.
        return stand_in(example) if in_place else example

    in_place = is_in_place(node)
    log = _OperatorLog()
    try:
        with fake_mode, torch.no_grad(), fake_mode.shape_env.ignore_fresh_unbacked_symbols():
            arguments = map_aggregate(node.args, value)
            keywords = map_aggregate(node.kwargs, value)
            with log:
                run(node, arguments, keywords)
    except Exception:
        return None
    return log.calls


def run(node: Node, arguments: Any, keywords: Any) -> Any:
    """Make the call of ``node`` with other arguments."""
    if node.op == "call_method":
        assert isinstance(node.target, str)
        receiver, *rest = arguments
        return getattr(receiver, node.target)(*rest, **keywords)
    return node.target(*arguments, **keywords)  # type: ignore[operator]


def is_in_place(node: Node) -> bool:
    name = _target_name(node)
    if "out" in node.kwargs or node.kwargs.get("inplace") is True:
        return True
    return name.endswith("_") or name in ("setitem", "iadd", "isub", "imul", "itruediv", "ipow")


def stand_in(example: Any) -> Any:
    if isinstance(example, torch.Tensor):
        with torch.no_grad():
            return torch.empty_strided(
                example.size(), example.stride(), dtype=example.dtype, device=example.device
            )
    return example
