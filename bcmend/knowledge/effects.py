"""What an operation does beside computing its result: the one table of effects.

An operation is an operator of ``torch.ops``, or a function or method in a graph of Dynamo's. Facts
come from the schema and the tags of the operator, and from the tables below, which are keyed by the
objects themselves. A function or method of torch that is written in C has the facts of its
operator; one that is written in Python has those of all that it may call. Of anything else nothing
is known (``UNKNOWN``), so that it is taken to do everything.
"""

from __future__ import annotations

import inspect
from dataclasses import dataclass, replace
from typing import Any, Final

import torch
from torch.nn import functional

from bcmend.knowledge import targets
from bcmend.knowledge.targets import packet_of
from bcmend.weak_tables import ByIdentity

_ATEN: Final = torch.ops.aten


@dataclass(frozen=True, slots=True)
class Switch:
    """The argument that switches an effect on: position, name, default, and what is off."""

    position: int
    name: str
    default: Any
    off: Any = False

    def is_off(self, arguments: Any, keywords: Any) -> bool:
        """Return whether a call is known to leave the effect out."""
        given = arguments[self.position : self.position + 1]
        value = given[0] if given else keywords.get(self.name, self.default)
        if self.off is None:
            return value is None
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
        is_random: it uses the state of a random generator, unless ``switch`` is off.
        is_total: it cannot fail on the values of its inputs (failures by shapes and dtypes show
            while tracing).
        is_partial: it may fail on them although no operator that it consists of does.
        divides: it fails where an integer is divided by zero.
        is_expensive: a matrix product, convolution, attention, sort or the like.
        statistics: the running statistics that it writes although its schema does not say so.
        writes: it changes a tensor that it is given, unless ``writing`` is off.
        replaces_storage: it gives a tensor another storage, or a storage another size.
        is_collective: other processes take part.
        sets_default: it changes a default of torch for the whole process.
        reads_on_host: its result, or the form of it, is known when the host has the data.
        draws_on_host: it may draw from the generators of Python and numpy.
        handles_generator: it reads or sets the state of a generator as a whole.
        has_hidden_state: it may do anything that a second run would show.
        is_recurrent: a layer whose backward gives empty gradients.
        is_composite: what it does shows when it is run on fake tensors; ``is_random`` and
            ``writes`` say that one of the operators that it may call does.
    """

    is_random: bool = False
    switch: Switch | None = None
    is_total: bool = False
    is_partial: bool = False
    divides: bool = False
    is_expensive: bool = False
    statistics: Statistics | None = None
    writes: bool = False
    writing: Switch | None = None
    replaces_storage: bool = False
    is_collective: bool = False
    sets_default: bool = False
    reads_on_host: bool = False
    draws_on_host: bool = False
    handles_generator: bool = False
    has_hidden_state: bool = False
    is_recurrent: bool = False
    is_composite: bool = False

    def draws(self, arguments: Any, keywords: Any) -> bool:
        """Return whether a call may draw random numbers."""
        is_off = self.switch is not None and self.switch.is_off(arguments, keywords)
        return self.is_random and not is_off

    def changes(self, arguments: Any, keywords: Any) -> bool:
        """Return whether a call may change a tensor that it is given."""
        if "out" in keywords:
            return True
        is_off = self.writing is not None and self.writing.is_off(arguments, keywords)
        return self.writes and not is_off


#: Of what is no operation that anything is known of.
UNKNOWN: Final = EffectFacts(
    is_random=True, writes=True, reads_on_host=True, draws_on_host=True, has_hidden_state=True
)

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
    searchsorted glu unsafe_split unsafe_split_with_sizes unsafe_chunk transpose_ t_ squeeze_
    unsqueeze_
"""


#: Operators that draw, and cannot fail on values.
_TOTAL_DRAWS: Final = """
    rand randn randint randperm rand_like randn_like randint_like dropout native_dropout
    feature_dropout alpha_dropout feature_alpha_dropout rrelu rrelu_with_noise cauchy exponential
    geometric log_normal random uniform
"""
_ONE_TOTAL_DRAW: Final = frozenset(
    [_ATEN.bernoulli.p, _ATEN.bernoulli_.float, _ATEN.normal_.default, _ATEN.normal.float_float]
)
#: Overloads that may fail on values although others of their operators do not: they take numbers
#: out of tensors.
_FAILING: Final = frozenset(
    getattr(packet, name)
    for packet in (_ATEN.linspace, _ATEN.logspace)
    for name in ("Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
)

#: Reductions, by their names, that fail where there is nothing to reduce.
FAIL_IF_EMPTY: Final = frozenset("max min amax amin argmax argmin median nanmedian mode".split())

#: Namespaces of operators in which other processes take part.
_COLLECTIVE: Final = frozenset(
    ["c10d", "_c10d_functional", "_c10d_functional_autograd", "c10d_functional", "symm_mem"]
)
#: Namespaces whose operators do what their schemas say, and no more. An operator of any other is
#: somebody's own.
_AS_DECLARED: Final = _COLLECTIVE | frozenset(
    """
    aten prims prim quantized quantized_decomposed _quantized onednn mkldnn mkldnn_prepacked mkl
    sparse inductor inductor_prims rngprims _native torchvision bcmend
    """.split()
)
#: Operators that do nothing but what the graphs do that they are given.
_RUNNING_GRAPHS: Final = frozenset(
    getattr(torch.ops.higher_order, name)
    for name in """
    cond while_loop while_loop_stack_output map_impl scan associative_scan wrap strict_mode
    wrap_activation_checkpoint tag_activation_checkpoint wrap_with_autocast
    wrap_with_set_grad_enabled autograd_function_apply invoke_subgraph flex_attention
    flex_attention_backward hints_wrapper out_dtype dynamo_bypassing_wrapper
    """.split()
    if hasattr(torch.ops.higher_order, name)
)

_TRAINING: Final = Switch(5, "training", False)
_USES_INPUT: Final = Switch(5, "use_input_stats", True)
_DROPOUT: Final = EffectFacts(
    is_random=True,
    switch=Switch(2, "training", True),
    writes=True,
    writing=Switch(3, "inplace", False),
)
_OF_ALPHA: Final = replace(_DROPOUT, switch=Switch(2, "training", False))
_GENERATOR: Final = EffectFacts(is_random=True, handles_generator=True)

#: What is not known of functions and methods by the operators that they may call.
_FUNCTIONS: Final[dict[Any, EffectFacts]] = {
    **dict.fromkeys(targets.CHANGING, EffectFacts(writes=True)),
    **dict.fromkeys(_RUNNING_GRAPHS, EffectFacts()),
    functional.dropout: _DROPOUT,
    functional.dropout1d: _DROPOUT,
    functional.dropout2d: _DROPOUT,
    functional.dropout3d: _DROPOUT,
    functional.alpha_dropout: _OF_ALPHA,
    functional.feature_alpha_dropout: _OF_ALPHA,
    functional.rrelu: replace(
        _DROPOUT, switch=Switch(3, "training", False), writing=Switch(4, "inplace", False)
    ),
    functional.gumbel_softmax: EffectFacts(is_random=True),
    functional.batch_norm: EffectFacts(statistics=Statistics(1, _TRAINING)),
    functional.instance_norm: EffectFacts(statistics=Statistics(1, _USES_INPUT)),
    functional.embedding: EffectFacts(
        writes=True, writing=Switch(3, "max_norm", None, off=None), is_composite=True
    ),
    functional.embedding_bag: EffectFacts(
        writes=True, writing=Switch(3, "max_norm", None, off=None), is_composite=True
    ),
    torch.set_default_dtype: EffectFacts(sets_default=True),
    torch.set_default_device: EffectFacts(sets_default=True),
    torch.utils.swap_tensors: EffectFacts(replaces_storage=True, writes=True),
    torch.set_rng_state: _GENERATOR,
    torch.get_rng_state: _GENERATOR,
    torch.manual_seed: _GENERATOR,
    torch.seed: _GENERATOR,
    torch.initial_seed: _GENERATOR,
    **{
        getattr(torch.Generator, name): _GENERATOR
        for name in "seed manual_seed initial_seed get_state set_state clone_state".split()
        if hasattr(torch.Generator, name)
    },
}

#: Names of ATen operators, and what is known of them beside their tags and schemas.
_BY_NAME: Final[tuple[tuple[str, dict[str, Any]], ...]] = (
    (_EXPENSIVE, {"is_expensive": True, "is_total": True}),
    (_TOTAL, {"is_total": True}),
    (_TOTAL_DRAWS, {"is_total": True}),
    ("_local_scalar_dense", {"is_total": True}),  # can fail while tracing only
    ("one_hot", {"is_partial": True}),
    ("div divide floor_divide remainder fmod true_divide", {"divides": True}),
    ("set_ set_data resize_ resize_as_", {"replaces_storage": True}),
    ("seed manual_seed initial_seed", {"handles_generator": True}),
    ("lstm gru rnn_tanh rnn_relu", {"is_recurrent": True, "switch": Switch(5, "dropout", 0.0)}),
    ("dropout native_dropout feature_dropout alpha_dropout", {"switch": Switch(2, "train", True)}),
    (
        "batch_norm native_batch_norm cudnn_batch_norm miopen_batch_norm",
        {"statistics": Statistics(3, _TRAINING)},
    ),
    ("instance_norm", {"statistics": Statistics(3, _USES_INPUT)}),
)


def _packets() -> dict[Any, dict[str, Any]]:
    """Return what is known of ATen operators and of their forms that work in place."""
    found: dict[Any, dict[str, Any]] = {}
    for names, facts in _BY_NAME:
        for name in names.split():
            for packet in (getattr(_ATEN, name, None), getattr(_ATEN, f"{name}_", None)):
                if packet is not None:
                    found[packet] = {**found.get(packet, {}), **facts}
    return found


_PACKETS: Final = _packets()
#: What has been found out already. Targets go with whatever else holds them: among them are the
#: functions and kernels of programs, and methods that are bound to their models.
_KNOWN: Final[ByIdentity[Any, EffectFacts]] = ByIdentity()
#: The same of what lasts: operators of bcmend's own, names of methods of tensors, and methods of
#: tensors that are written in C, of which there are no weak references.
_LASTING: Final[dict[Any, EffectFacts]] = {}


def declare(operator: Any, facts: EffectFacts) -> None:
    """Add an operator of bcmend's own to the table."""
    _KNOWN.pop(operator)
    _LASTING[operator] = facts


def facts_of_target(target: Any) -> EffectFacts:
    """Return the facts about an operator, a function, or the name of a method of tensors."""
    if type(target).__hash__ is None:
        return UNKNOWN
    found = _KNOWN.get(target) or _LASTING.get(target)
    if found is None:
        found = _facts(target)
        if isinstance(target, str) or targets.is_method_in_c(target):
            if found is not UNKNOWN:
                _LASTING[target] = found
        elif type(target).__weakrefoffset__:
            _KNOWN.put(target, found)
    return found


def _facts(target: Any) -> EffectFacts:
    if isinstance(target, str):
        if hasattr(torch.Tensor, target):
            return facts_of_target(getattr(torch.Tensor, target))
        return EffectFacts() if _is_of_numbers(target) else UNKNOWN
    if target in _FUNCTIONS:
        return _FUNCTIONS[target]
    overloads = targets.overloads_of(target)
    if overloads:
        return _of_operator(target, overloads)
    if targets.is_python_of_torch(target):
        return _of_python(target)
    wrapped = targets.wrapped_by(target)
    if wrapped is not None:
        return facts_of_target(wrapped)
    if targets.is_quiet(target):
        return EffectFacts(is_collective=_is_of_distributed(target))
    return UNKNOWN


def _is_of_numbers(name: str) -> bool:
    """Return whether a method is one of Python's numbers, such as ``__round__``."""
    return any(hasattr(each, name) for each in (int, float))


def _of_operator(target: Any, overloads: list[Any]) -> EffectFacts:
    """Return what the schemas and tags of an operator say; of several overloads, all together."""
    dependent = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    tags = {tag for each in overloads for tag in each.tags}
    known = _PACKETS.get(packet_of(target), {})
    is_dependent = not dependent.isdisjoint(tags)
    found = EffectFacts(
        is_random=any(map(_is_random, overloads)),
        switch=_switch_of(overloads),
        is_total=not is_dependent and all(map(_is_total, overloads)),
        writes=any(_writes(each, is_exact=[target] == overloads) for each in overloads),
        is_collective=overloads[0].namespace in _COLLECTIVE,
        reads_on_host=is_dependent,
        has_hidden_state=overloads[0].namespace not in _AS_DECLARED,
    )
    if not _FAILING.isdisjoint(overloads):
        known = {**known, "is_total": False}
    return replace(found, **known)


def _is_random(overload: Any) -> bool:
    takes_generator = any("Generator" in str(each.type) for each in overload._schema.arguments)
    return torch.Tag.nondeterministic_seeded in overload.tags or takes_generator


def _switch_of(overloads: list[Any]) -> Switch | None:
    """Return the probability of dropout, with which attention draws."""
    found = {
        Switch(at, each.name, each.default_value if each.has_default_value() else None)
        for overload in overloads
        for at, each in enumerate(overload._schema.arguments)
        if each.name == "dropout_p"
    }
    return found.pop() if len(found) == 1 else None


def _is_total(overload: Any) -> bool:
    is_pointwise = torch.Tag.pointwise in overload.tags and not _is_random(overload)
    fails_while_tracing = overload.namespace == "prim"
    return is_pointwise or overload.is_view or fails_while_tracing or overload in _ONE_TOTAL_DRAW


#: It sorts a list of TorchScript's in place.
_OF_LISTS: Final = frozenset([_ATEN.sort.Tensor])


def _writes(overload: Any, *, is_exact: bool) -> bool:
    """Return whether an overload changes a tensor that it is given.

    A function by the name of an operator is given those of keywords as ``out=`` only.
    """
    written = [
        each
        for each in overload._schema.arguments
        if each.alias_info is not None and each.alias_info.is_write and "Tensor" in str(each.type)
    ]
    if is_exact:
        return bool(written)
    return overload not in _OF_LISTS and not all(each.kwarg_only for each in written)


def _of_python(function: Any) -> EffectFacts:
    """Return what the operators may do that a function of torch's may call."""
    known = (facts_of_target(each) for each in {*targets.called_by(function)})
    called = [each for each in known if each is not UNKNOWN]
    return EffectFacts(
        is_random=any(each.is_random for each in called),
        is_partial=any(each.is_partial for each in called),
        writes=any(each.writes for each in called),
        writing=_in_place_switch(function),
        replaces_storage=any(each.replaces_storage for each in called),
        is_collective=_is_of_distributed(function),
        reads_on_host=any(each.reads_on_host for each in called),
        handles_generator=any(each.handles_generator for each in called),
        is_composite=True,
    )


def _in_place_switch(function: Any) -> Switch | None:
    parameters = list(inspect.signature(function, follow_wrapped=False).parameters.values())
    for position, each in enumerate(parameters):
        if each.name == "inplace":
            return Switch(position, each.name, each.default)
    return None


def _is_of_distributed(target: Any) -> bool:
    where = getattr(target, "__module__", None) or ""
    return where.split(".")[:2] == ["torch", "distributed"]
