"""What an operation does beside computing its result.

An operation is an ATen operator, or a function or method of torch in a graph of Dynamo's. Facts
come from the tags of the operator and from the tables below. A function or method of torch that is
written in C has the facts of the operator of its name.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.nn import functional

_ATEN: Final = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Switch:
    """The argument that switches an effect on: position, name and default."""

    position: int
    name: str
    default: Any

    def is_off(self, arguments: Any, keywords: Any) -> bool:
        """Return whether a call is known to leave the effect out."""
        given = arguments[self.position : self.position + 1]
        value = given[0] if given else keywords.get(self.name, self.default)
        return isinstance(value, (bool, int, float)) and not value


@dataclass(frozen=True, slots=True)
class Statistics:
    """Where a norm is given its running mean and variance, which it writes in training."""

    first: int
    switch: Switch
    names: tuple[str, str] = ("running_mean", "running_var")


@dataclass(frozen=True, slots=True)
class EffectFacts:
    """The facts about one operation.

    Attributes:
        is_random: it is a random operator, unless ``switch`` is off.
        is_total: it cannot fail on the values of its inputs (failures by shapes and dtypes show
            while tracing).
        divides: it fails where an integer is divided by zero.
        is_expensive: a matrix product, convolution, attention, sort or the like.
        statistics: the running statistics that it writes although its schema does not say so.
        replaces_storage: it gives a tensor another storage, or a storage another size.
        is_collective: other processes take part.
        sets_default: it changes a default of torch for the whole process.
        draws_on_host: it may draw from the generators of Python and numpy.
        is_recurrent: a layer whose backward gives empty gradients.
    """

    is_random: bool = False
    switch: Switch | None = None
    is_total: bool = False
    divides: bool = False
    is_expensive: bool = False
    statistics: Statistics | None = None
    replaces_storage: bool = False
    is_collective: bool = False
    sets_default: bool = False
    draws_on_host: bool = False
    is_recurrent: bool = False

    def draws(self, arguments: Any, keywords: Any) -> bool:
        """Return whether a call may draw random numbers."""
        is_off = self.switch is not None and self.switch.is_off(arguments, keywords)
        return self.is_random and not is_off


#: Operators that cost, if they are run without being asked for.
_EXPENSIVE: Final = """
    mm bmm addmm addbmm baddbmm addmv addr mv dot vdot matmul linear einsum tensordot
    convolution _convolution convolution_overrideable mkldnn_convolution _slow_conv2d_forward
    _scaled_dot_product_flash_attention _scaled_dot_product_flash_attention_for_cpu
    _scaled_dot_product_efficient_attention _scaled_dot_product_attention_math
    _scaled_dot_product_cudnn_attention _scaled_dot_product_fused_attention_overrideable
    scaled_dot_product_attention _scaled_mm _int_mm _grouped_mm lstm gru rnn_tanh rnn_relu
    _thnn_fused_lstm_cell mkldnn_rnn_layer sort topk kthvalue median nanmedian mode _fft_c2c
    _fft_r2c _fft_c2r native_batch_norm _native_batch_norm_legit
"""

#: Operators that cannot fail on values, beside the pointwise ones, the views and the costly ones.
_TOTAL: Final = """
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
"""

#: Namespaces of operators in which other processes take part.
_COLLECTIVE: Final = frozenset(
    ["c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional"]
)

_TRAINING: Final = Switch(5, "training", False)
_USES_INPUT: Final = Switch(5, "use_input_stats", True)
_DROPOUT: Final = EffectFacts(is_random=True, switch=Switch(2, "training", True))

#: Functions that stand in graphs as they are; what they call does not show there.
_FUNCTIONS: Final[dict[Any, EffectFacts]] = {
    functional.dropout: _DROPOUT,
    functional.dropout1d: _DROPOUT,
    functional.dropout2d: _DROPOUT,
    functional.dropout3d: _DROPOUT,
    functional.alpha_dropout: replace(_DROPOUT, switch=Switch(2, "training", False)),
    functional.feature_alpha_dropout: replace(_DROPOUT, switch=Switch(2, "training", False)),
    functional.rrelu: EffectFacts(is_random=True, switch=Switch(3, "training", False)),
    functional.gumbel_softmax: EffectFacts(is_random=True),
    functional.batch_norm: EffectFacts(statistics=Statistics(1, _TRAINING)),
    functional.instance_norm: EffectFacts(statistics=Statistics(1, _USES_INPUT)),
    torch.set_default_dtype: EffectFacts(sets_default=True),
    torch.set_default_device: EffectFacts(sets_default=True),
    torch.utils.swap_tensors: EffectFacts(replaces_storage=True),
}


#: Names of ATen operators, and what is known of them beside their tags.
_BY_NAME: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (_EXPENSIVE, {"is_expensive": True, "is_total": True}),
    (_TOTAL, {"is_total": True}),
    ("div divide floor_divide remainder fmod true_divide", {"divides": True}),
    ("set_ set_data resize_ resize_as_", {"replaces_storage": True}),
    ("lstm gru rnn_tanh rnn_relu", {"is_recurrent": True, "switch": Switch(5, "dropout", 0.0)}),
    ("scaled_dot_product_attention", {"switch": Switch(4, "dropout_p", 0.0)}),
    ("dropout native_dropout feature_dropout alpha_dropout", {"switch": Switch(2, "train", True)}),
    (
        "batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm",
        {"statistics": Statistics(3, _TRAINING)},
    ),
    ("instance_norm", {"statistics": Statistics(3, _USES_INPUT)}),
)


def _packets() -> dict[Any, EffectFacts]:
    """Return what is known of ATen operators and of their forms that work in place."""
    found: dict[Any, EffectFacts] = {}
    for names, facts in _BY_NAME:
        for name in names.split():
            for packet in (getattr(_ATEN, name, None), getattr(_ATEN, f"{name}_", None)):
                if packet is not None:
                    found[packet] = replace(found.get(packet, EffectFacts()), **facts)
    return found


_PACKETS: Final = _packets()
_KNOWN: Final[dict[Any, EffectFacts]] = {}


def declare(operator: Any, facts: EffectFacts) -> None:
    """Add an operator to the table."""
    _KNOWN[operator] = facts


def of(target: Any) -> EffectFacts:
    """Return the facts about an operator, a function, or the name of a method of tensors."""
    found = _KNOWN.get(target)
    if found is None:
        found = _KNOWN[target] = _facts(target)
    return found


def _facts(target: Any) -> EffectFacts:
    if isinstance(target, str):
        return of(getattr(torch.Tensor, target)) if hasattr(torch.Tensor, target) else EffectFacts()
    if target in _FUNCTIONS:
        return _FUNCTIONS[target]
    packet = packet_of(target)
    if packet is None:
        return EffectFacts(is_collective=_is_of_distributed(target))
    overloads = [getattr(packet, name) for name in packet.overloads()]
    is_overload = packet is not target and hasattr(target, "tags")
    tags = {tag for each in ([target] if is_overload else overloads) for tag in each.tags}
    return replace(
        _PACKETS.get(packet, EffectFacts()),
        is_random=torch.Tag.nondeterministic_seeded in tags,
        is_collective=_is_of_distributed(target),
    )


def packet_of(target: Any) -> Any:
    """Return the ATen operator, with all its overloads, behind a target; ``None`` if none is."""
    if hasattr(target, "overloadpacket"):
        return target.overloadpacket
    if hasattr(target, "overloads"):
        return target
    name = getattr(target, "__name__", "")
    is_python = hasattr(target, "__code__")
    return None if is_python or name.startswith("__") else getattr(_ATEN, name, None)


def _is_of_distributed(target: Any) -> bool:
    where = getattr(target, "namespace", None) or getattr(target, "__module__", None) or ""
    return where in _COLLECTIVE or where.split(".")[:2] == ["torch", "distributed"]
