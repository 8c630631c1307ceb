"""What the operations of a traced arm would do if they ran without being asked for.

Reads the FX nodes of an arm, runs each once more on fake tensors while a dispatch mode writes down
the ATen operators that it consists of, and sums up: may one fail on the data, does one draw random
numbers, is one dear, which memory do they write to. The facts come from the operators' own tags and
from short tables; an operator that no table knows to be harmless is taken to be able to fail.
"""

from __future__ import annotations

import math
import operator as op
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import (
    canonicalize_bool_expr,
    free_unbacked_symbols,
    statically_known_true,
)
from torch.fx.node import map_aggregate
from torch.utils._python_dispatch import TorchDispatchMode

from bcmend.runtime import asserted, costs, sizes
from bcmend.runtime.random_numbers import may_draw

__all__ = [
    "AUTOCAST",
    "OF_GENERATORS",
    "Hazards",
    "draws",
    "hazards_of",
    "is_in_place",
    "run",
    "stand_in",
    "storage_of",
    "storages_written",
    "unjudged",
]

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

#: Of the module ``operator``: the statements ``x[i] = v``, ``x += v`` and their kin.
_IN_PLACE_STATEMENTS: Final = frozenset(
    "setitem iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split()
)

#: Write their running statistics in training although their schemas do not say so.
_BATCH_NORMS: Final = frozenset(["native_batch_norm", "cudnn_batch_norm", "miopen_batch_norm"])

_INTEGER_DIVISION: Final = frozenset(
    ["div", "divide", "floor_divide", "remainder", "fmod", "true_divide"]
)
#: Operators of bcmend that read and set the state of a generator (``generator_states``).
OF_GENERATORS: Final = frozenset(["generator_state", "set_generator_state"])

_FOUND: Final = "bcmend_hazards"  # in the meta of a node
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
        dear: name of an operator that is costly to run for nothing; empty if none.
        operators: how many ATen operators the arm consists of.
        waste: seconds that the dear operators take beside the price of a decision
            (``bcmend.runtime.costs``); infinite where deciding is free.
        writes: the storages that are written to, by ``storage_of``.
        reshapes: the storages of tensors that get other sizes, strides or memory in place.
    """

    partial: str = ""
    random: str = ""
    dear: str = ""
    operators: int = 0
    waste: float = 0.0
    writes: frozenset[int] = frozenset()
    reshapes: frozenset[int] = frozenset()

    def and_then(self, other: Hazards) -> Hazards:
        return Hazards(
            self.partial or other.partial,
            self.random or other.random,
            self.dear or other.dear,
            self.operators + other.operators,
            self.waste + other.waste,
            self.writes | other.writes,
            self.reshapes | other.reshapes,
        )


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

    def written(self) -> Iterator[torch.Tensor]:
        """Yield the tensors that it writes to."""
        training_norm = self.operator.overloadpacket.__name__ in _BATCH_NORMS and self._trains
        for position, parameter in enumerate(self.operator._schema.arguments):
            info = parameter.alias_info
            statistics = training_norm and parameter.name in ("running_mean", "running_var")
            if not (statistics or (info is not None and info.is_write)):
                continue
            given = self._argument(position, parameter.name)
            for each in given if isinstance(given, (list, tuple)) else (given,):
                if isinstance(each, torch.Tensor):
                    yield each

    @property
    def _trains(self) -> bool:
        names = [parameter.name for parameter in self.operator._schema.arguments]
        return bool(self._argument(names.index("training"), "training"))

    def _argument(self, position: int, name: str) -> Any:
        if position < len(self.arguments):
            return self.arguments[position]
        return self.keywords.get(name)


def draws(node: Node) -> bool:
    """Whether a node that calls an ATen operator draws random numbers."""
    return isinstance(node.target, torch._ops.OpOverload) and _draws(
        node.target, node.args, node.kwargs
    )


def _draws(operator: torch._ops.OpOverload, arguments: Any, keywords: Any) -> bool:
    if operator.overloadpacket.__name__ in OF_GENERATORS:
        return True
    if torch.Tag.nondeterministic_seeded not in operator.tags:
        return False
    for position, parameter in enumerate(operator._schema.arguments):
        if parameter.name == "dropout_p":
            given = arguments[position : position + 1]
            value = given[0] if given else keywords.get("dropout_p", 0.0)
            return bool(value != 0)
    return True


@dataclass(frozen=True, slots=True)
class _Run:
    """The ATen calls behind one node, and which storages stood in for which.

    ``asserts`` says whether they are possible only for some of the sizes that the data tell.
    """

    calls: list[_Call]
    stands_for: dict[int, int] = field(default_factory=dict)
    asserts: bool = False

    def storages_written(self, *, reshaped: bool) -> set[int]:
        found: set[int] = set()
        for call in self.calls:
            if not reshaped or torch.Tag.inplace_view in call.operator.tags:
                found.update(storage_of(tensor) for tensor in call.written())
        return {self.stands_for.get(each, each) for each in found}


class _OperatorLog(TorchDispatchMode):  # type: ignore[no-untyped-call]
    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.calls: list[_Call] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.calls.append(_Call(func, result, args, kwargs or {}))
        return result


def hazards_of(
    nodes: Iterable[Node],
    fake_mode: Any,
    modules: Mapping[str, Any] = MappingProxyType({}),
    asserted: Iterable[Any] = (),
) -> Hazards:
    """Return what running ``nodes`` without being asked would risk.

    Each node is looked at once, whatever branches enclose it: what was found is kept with it.

    Args:
        nodes: FX nodes in order, their ``example_value`` filled in by Dynamo.
        fake_mode: the ``FakeTensorMode`` of the trace.
        modules: the graphs that operators among the nodes take as arguments, by name.
        asserted: what the graph asserts of numbers if the nodes are run without being asked for.
    """
    found = Hazards()
    granted = frozenset(canonicalize_bool_expr(each.expr) for each in asserted)
    for node in nodes:
        if node.op in ("placeholder", "output", "get_attr") or node.target in AUTOCAST:
            continue
        if _FOUND not in node.meta or is_in_place(node):  # what it writes to depends on the trace
            node.meta[_FOUND] = _hazards_of_node(node, fake_mode, modules, granted)
        found = found.and_then(node.meta[_FOUND])
    if found.operators > MANY_OPERATORS:
        dear = found.dear or f"{found.operators} operators"
        found = replace(found, dear=dear, waste=math.inf)
    return found


def _hazards_of_node(
    node: Node, fake_mode: Any, modules: Mapping[str, Any], granted: frozenset[Any]
) -> Hazards:
    run = _operators_of(node, fake_mode)
    if run is None:
        name = _target_name(node)
        random = _target_name(node) if may_draw(node) else _draw_inside(node, modules)
        return Hazards(partial=name, random=random, dear=name, waste=math.inf)
    found = Hazards(
        partial=_target_name(node) if run.asserts or _may_fail_on_numbers(node) else "",
        writes=frozenset(run.storages_written(reshaped=False)),
        reshapes=frozenset(run.storages_written(reshaped=True)),
    )
    for call in run.calls:
        found = found.and_then(_hazards_of_call(call, granted))
    return found


def _hazards_of_call(call: _Call, granted: frozenset[Any]) -> Hazards:
    name = call.operator.overloadpacket.__name__
    is_dear = name in DEAR
    return Hazards(
        partial="" if call.draws or _is_total(call, name, granted) else name,
        random=name if call.draws else "",
        dear=name if is_dear else "",
        operators=1,
        waste=costs.seconds_of(call.operator, call.arguments, call.keywords, call.result)
        if is_dear
        else 0.0,
    )


#: Arithmetic on numbers taken out of tensors that never raises; ``int(nan)`` and ``1 / 0`` do.
_TOTAL_ON_NUMBERS: Final = frozenset(
    [
        *(op.add, op.sub, op.mul, op.neg, op.not_, op.and_, op.or_),
        *(op.gt, op.ge, op.lt, op.le, op.eq, op.ne),
        *(torch.sym_not, torch.sym_float, torch.sym_ite, torch.sym_max, torch.sym_min),
        torch.scalar_tensor,
    ]
)


def _may_fail_on_numbers(node: Node) -> bool:
    """Whether a node computes with numbers out of tensors, and their values may make it raise."""
    if node.op != "call_function" or node.target in _TOTAL_ON_NUMBERS:
        return False
    examples = [each.meta.get("example_value") for each in node.all_input_nodes]
    return not any(isinstance(each, torch.Tensor) for each in examples) and any(
        isinstance(each, (torch.SymInt, torch.SymFloat, torch.SymBool))
        and free_unbacked_symbols(each)
        for each in examples
    )


def unjudged(meta: Mapping[str, Any]) -> dict[str, Any]:
    """Return the meta of a node for another node, without what was found out about this one."""
    return {name: value for name, value in meta.items() if name != _FOUND}


def storage_of(tensor: torch.Tensor) -> int:
    """Return what is equal for tensors that share memory: views, their base, two names of one."""
    try:
        return int(tensor.untyped_storage()._cdata)
    except (NotImplementedError, RuntimeError):  # a sparse one, or a subclass that has none
        return -id(tensor)


def _is_total(call: _Call, name: str, granted: frozenset[Any]) -> bool:
    operator, result = call.operator, call.result
    base = name[:-1] if name.endswith("_") and not name.endswith("__") else name
    if base in _INTEGER_DIVISION and not _all_floating(result):
        return False
    if name == "select" and not _is_in_bounds(call.arguments, granted):
        return False
    if name == "_local_scalar_dense":
        return True  # that a tensor has one element shows while tracing
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


def _is_in_bounds(arguments: tuple[Any, ...], granted: frozenset[Any]) -> bool:
    """Whether there is an item at a place, for all that is known of it or asserted."""
    tensor, dimension, place = arguments
    size = tensor.shape[dimension]
    return all(
        statically_known_true(each)
        or (isinstance(each, torch.SymBool) and canonicalize_bool_expr(each.node.expr) in granted)
        for each in (place >= -size, place < size)
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


def _operators_of(node: Node, fake_mode: Any) -> _Run | None:
    """Return the ATen calls behind one node; ``None`` where the node cannot be run again."""
    if isinstance(node.target, torch._ops.HigherOrderOperator) or node.op == "call_module":
        return None
    missing = object()
    stands_for: dict[int, int] = {}

    def value(argument: Any) -> Any:
        if not isinstance(argument, Node):
            return argument
        example = argument.meta.get("example_value", missing)
        # An operation in place must not happen to the trace's own tensor a second time.
        if not in_place or not isinstance(example, torch.Tensor):
            return example
        other = stand_in(example)
        stands_for[storage_of(other)] = storage_of(example)
        return other

    in_place = is_in_place(node)
    log = _OperatorLog()
    try:
        with (
            fake_mode,
            torch.no_grad(),
            fake_mode.shape_env.ignore_fresh_unbacked_symbols(),
            # An arm around this one may be run where the condition of this one does not hold.
            sizes.nothing_known(fake_mode.shape_env),
            asserted.taken_back(fake_mode.shape_env) as found,
        ):
            arguments = map_aggregate(node.args, value)
            keywords = map_aggregate(node.kwargs, value)
            with log:
                run(node, arguments, keywords)
    except Exception:
        return None
    return _Run(log.calls, stands_for, bool(found))


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
    return name.endswith("_") or name in _IN_PLACE_STATEMENTS


def storages_written(node: Node, fake_mode: Any) -> set[int] | None:
    """Return the storages that a node writes to; ``None`` where the node cannot be run again."""
    run = _operators_of(node, fake_mode)
    return None if run is None else run.storages_written(reshaped=False)


def stand_in(example: Any) -> Any:
    if isinstance(example, torch.Tensor):
        with torch.no_grad():
            return torch.empty_strided(
                example.size(), example.stride(), dtype=example.dtype, device=example.device
            )
    return example
