"""Every private name of torch that bcmend uses, each imported once.

Nothing else in bcmend imports one; ``ruff`` enforces that. Only tested releases import this module.
"""

# ruff: noqa: F401

from __future__ import annotations

import ast
import inspect
import re
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

import torch
from torch._C import (
    _AutoDispatchBelowAutograd,
    _current_autograd_node,
    _dispatch_tls_local_exclude_set,
    _dispatch_tls_local_include_set,
    _ForceDispatchKeyGuard,
)
from torch._C._autograd import (
    CreationMeta,
    _get_creation_meta,
    _saved_tensors_hooks_disable,
    _saved_tensors_hooks_enable,
    _saved_tensors_hooks_get_disabled_error_message,
    _top_saved_tensors_default_hooks,
)
from torch._C._dynamo.eval_frame import (
    _debug_get_cache_entry_list,
    _FrameAction,
    _FrameExecStrategy,
    get_eval_frame_callback,
    set_code_exec_strategy,
    set_eval_frame,
    set_fullgraph_compiled_frame_count,
)
from torch._C._functorch import (
    get_dynamic_layer_stack_depth,
    get_unwrapped,
    is_batchedtensor,
    is_functorch_wrapped_tensor,
    peek_interpreter_stack,
    pop_dynamic_layer_stack_and_undo_to_depth,
)
from torch._dynamo import compiled_autograd as compiled_autograd
from torch._dynamo import config as dynamo_config
from torch._dynamo import convert_frame, graph_break_hints, package, symbolic_convert, trace_rules
from torch._dynamo.backends.common import AotAutograd
from torch._dynamo.bytecode_transformation import (
    create_build_tuple,
    create_call_function,
    create_instruction,
    create_jump_absolute,
)
from torch._dynamo.codegen import PyCodegen
from torch._dynamo.convert_frame import CatchErrorsWrapper, compile_lock, get_compile_id
from torch._dynamo.current_scope_id import current_scope_id, enter_new_scope
from torch._dynamo.eval_frame import always_optimize_code_objects, skip_code
from torch._dynamo.exc import (
    BackendCompilerFailed,
    FailOnRecompileLimitHit,
    InternalTorchDynamoError,
    ObservedException,
    ObservedUserStopIteration,
    RequiresGradRestartAnalysis,
    RestartAnalysis,
    SkipFrame,
    TorchDynamoException,
    TorchRuntimeError,
    UnspecializeRestartAnalysis,
    Unsupported,
    UserError,
    handle_observed_exception,
    observed_exception_map,
    raise_observed_exception,
    unimplemented,
)
from torch._dynamo.external_utils import wrap_inline
from torch._dynamo.guards import DeletedGuardManagerWrapper, GuardBuilder, install_guard
from torch._dynamo.mutation_guard import unpatched_nn_module_init
from torch._dynamo.output_graph import OutputGraph, SubgraphTracer
from torch._dynamo.resume_execution import ContinueExecutionCache
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.source import (
    AttrSource,
    DictGetItemSource,
    GetItemSource,
    GlobalSource,
    LocalSource,
    RandomValueSource,
    SyntheticLocalSource,
    UnspecializedParamBufferSource,
)
from torch._dynamo.symbolic_convert import (
    ExceptionVals,
    InliningInstructionTranslator,
    InstructionTranslatorBase,
)
from torch._dynamo.symbolic_convert import tls as translator_tls
from torch._dynamo.trace_rules import SkipResult
from torch._dynamo.types import ConvertFrameReturn, GuardedCode, wrap_guarded_code
from torch._dynamo.utils import (
    _get_error_on_graph_break,
    _set_error_on_graph_break,
    cmp_name_to_op_mapping,
    get_fake_value,
    unpack_iterable,
)
from torch._dynamo.variables import (  # type: ignore[attr-defined]
    ExceptionVariable,
    builder,
    higher_order_ops,
    object_protocol,
    user_defined,
)
from torch._dynamo.variables.base import (
    AsPythonConstantNotImplementedError,
    AttributeMutationNew,
    AttrMutationKind,
    ValueMutationExisting,
    ValueMutationNew,
    VariableTracker,
    is_side_effect_safe,
)
from torch._dynamo.variables.builder import (
    GraphArg,
    VariableBuilder,
    get_specialized_props,
    wrap_fx_proxy,
    wrap_fx_proxy_cls,
)
from torch._dynamo.variables.builtin import (
    BuiltinVariable,
    GetAttrBuiltinVariable,
    SetAttrBuiltinVariable,
)
from torch._dynamo.variables.constant import ConstantVariable
from torch._dynamo.variables.ctx_manager import (
    CatchWarningsCtxManagerVariable,
    ContextWrappingVariable,
    GenericContextWrappingVariable,
)
from torch._dynamo.variables.dicts import (
    ConstDictVariable,
    DictViewVariable,
    DunderDictVariable,
    MappingProxyVariable,
)
from torch._dynamo.variables.functions import (
    LocalGeneratorFunctionVariable,
    LocalGeneratorObjectVariable,
    NestedUserFunctionVariable,
    PolyfilledFunctionVariable,
    UserFunctionVariable,
    UserMethodVariable,
)
from torch._dynamo.variables.hashable import HashableTracker, is_hashable
from torch._dynamo.variables.higher_order_ops import (
    AutogradFunctionApplyVariable,
    TorchHigherOrderOperatorVariable,
)
from torch._dynamo.variables.iter import IteratorVariable
from torch._dynamo.variables.lazy import LazyVariableTracker
from torch._dynamo.variables.lists import (
    BaseListVariable,
    DequeVariable,
    ListIteratorVariable,
    ListVariable,
    RangeIteratorVariable,
    RangeVariable,
    SizeVariable,
    SliceVariable,
    TupleVariable,
)
from torch._dynamo.variables.misc import (
    CellVariable,
    ConstantLikeVariable,
    DeletedVariable,
    GetAttrVariable,
    LoggingLoggerVariable,
    NewGlobalVariable,
    NumpyVariable,
    RandomVariable,
    StringFormatVariable,
    SuperVariable,
    WeakRefVariable,
)
from torch._dynamo.variables.sets import SetVariable
from torch._dynamo.variables.tensor import NumpyNdarrayVariable, SymNodeVariable, TensorVariable
from torch._dynamo.variables.torch import TorchInGraphFunctionVariable
from torch._dynamo.variables.torch_function import (
    TorchFunctionModeStackVariable,
    can_dispatch_torch_function,
)
from torch._dynamo.variables.user_defined import (
    DefaultDictVariable,
    FrozenDataClassVariable,
    NamedTupleVariable,
    OrderedDictVariable,
    RemovableHandleVariable,
    StructSequenceVariable,
    UserDefinedClassVariable,
    UserDefinedDictVariable,
    UserDefinedExceptionClassVariable,
    UserDefinedExceptionObjectVariable,
    UserDefinedObjectVariable,
)
from torch._functorch import config as functorch_config
from torch._functorch import partitioners
from torch._functorch._aot_autograd.schemas import SerializableAOTDispatchCompiler
from torch._functorch.partitioners import min_cut_rematerialization_partition
from torch._guards import ChainedSource, Guard, GuardBuilderBase, Source, TracingContext
from torch._higher_order_ops import effects as effects_of_operators
from torch._higher_order_ops.effects import _EffectType, _register_effectful_op
from torch._higher_order_ops.utils import _clone_aliasing_output, materialize_as_graph
from torch._inductor import config as inductor_config
from torch._inductor.virtualized import V
from torch._logging._internal import trace_log, trace_structured
from torch._ops import HigherOrderOperator, OpOverload, OpOverloadPacket
from torch._prims_common import is_non_overlapping_and_dense_or_false
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch._subclasses.functional_tensor import (
    FunctionalTensorMode,
    PythonFunctionalizeAPI,
    dispatch_functionalize,
)
from torch._tensor_str import PRINT_OPTS
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.autograd.grad_mode import _enter_inference_mode, _unsafe_preserve_version_counter
from torch.export import _trace as export_trace
from torch.fx.experimental.proxy_tensor import (
    ProxyTorchDispatchMode,
    get_proxy_mode,
    make_fx,
    track_tensor_tree,
)
from torch.fx.experimental.symbolic_shapes import (
    GuardOnDataDependentSymNode,
    ShapeEnv,
    canonicalize_bool_expr,
    free_symbols,
    free_unbacked_symbols,
    statically_known_true,
)
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode,
)
from torch.utils._pytree import tree_leaves, tree_map
from torch.utils._sympy.functions import Max, Min
from torch.utils._sympy.interp import sympy_interp
from torch.utils._sympy.reference import PythonReferenceAnalysis
from torch.utils._sympy.solve import try_solve
from torch.utils._sympy.value_ranges import ValueRanges, bound_sympy
from torch.utils.checkpoint import _CachedTorchDispatchMode, _CachingTorchDispatchMode

try:  # its name since torch 2.14
    from torch._inductor.ir import Switch as LoweredChoice  # type: ignore[attr-defined]
except ImportError:
    from torch._inductor.ir import Conditional as LoweredChoice

#: Attributes of torch that are private and no classes or functions of a module.
DYNAMO_FILE: Final = torch._dynamo.__file__
POLYFILLS_FILE: Final = torch._dynamo.polyfills.__file__
MODULE_CALL_IMPL: Final = torch.nn.Module._call_impl
MODULE_WRAPPED_CALL: Final = torch.nn.Module._wrapped_call_impl
ASSERT_ASYNC: Final = torch.ops.aten._assert_async.msg
ASSERT_SCALAR: Final = torch.ops.aten._assert_scalar.default
DispatchKey: Final = torch._C.DispatchKey
_get_data_attr: Final = torch._C._autograd._get_data_attr  # type: ignore[attr-defined]
_nn_pad: Final = torch._C._nn.pad
_set_grad_enabled_now: Final = torch._C._set_grad_enabled
_set_default_dtype_now: Final = torch._C._set_default_dtype
_is_any_autocast_enabled: Final = torch._C._is_any_autocast_enabled
explain_dynamo: Final = torch._dynamo.explain
reset_dynamo: Final = torch._dynamo.reset

_C = torch._C
#: Settings of the process or the thread without public names: name, getter, and setter if any.
PRIVATE_SETTINGS: Final = (
    ("forward gradients", _C._is_fwd_grad_enabled, _C._set_fwd_grad_enabled),
    ("threads of autograd", _C._is_multithreading_enabled, _C._set_multithreading_enabled),
    ("replay of views", _C._is_view_replay_enabled, _C._set_view_replay_enabled),
    ("saved tensors hooks", _C._autograd._saved_tensors_hooks_is_enabled, None),  # type: ignore[attr-defined]
    (
        "gradients required in place",
        _C._functorch.get_inplace_requires_grad_allowed,
        _C._functorch.set_inplace_requires_grad_allowed,
    ),
    ("transforms of torch.func", _C._functorch.get_dynamic_layer_stack_depth, None),
    ("level of forward gradients", lambda: torch.autograd.forward_ad._current_level, None),
    (
        "torch functions",
        _C._get_torch_function_state,  # type: ignore[attr-defined]
        _C._set_torch_function_state,  # type: ignore[attr-defined]
    ),
    ("modes of torch functions", torch.overrides._get_current_function_mode_stack, None),
    ("modes of dispatch", _C._len_torch_dispatch_stack, None),
    (
        "default device",
        lambda: torch.utils._device.CURRENT_DEVICE,
        lambda device: setattr(torch.utils._device, "CURRENT_DEVICE", device),
    ),
    ("NNPACK", _C._get_nnpack_enabled, _C._set_nnpack_enabled),
    ("engine of quantization", _C._get_qengine, _C._set_qengine),
    (
        "library for linear algebra",
        _C._get_linalg_preferred_backend,
        _C._set_linalg_preferred_backend,
    ),
    ("library for BLAS", _C._get_blas_preferred_backend, _C._set_blas_preferred_backend),
    (
        "half precision on the CPU",
        _C._get_cpu_allow_fp16_reduced_precision_reduction,  # type: ignore[attr-defined]
        _C._set_cpu_allow_fp16_reduced_precision_reduction,  # type: ignore[attr-defined]
    ),
    ("order of attention kernels", _C._get_sdp_priority_order, _C._set_sdp_priority_order),
    ("overrideable attention", _C._get_overrideable_sdp_enabled, _C._set_sdp_use_overrideable),
    ("broadcast warnings", _C._get_backcompat_broadcast_warn, _C._set_backcompat_broadcast_warn),
    ("keepdim warnings", _C._get_backcompat_keepdim_warn, _C._set_backcompat_keepdim_warn),
)

_predispatch = torch._functorch.predispatch
#: What torch calls for itself, with no effect that a program can see.
WITHOUT_EFFECT: Final = (
    torch._C._log_api_usage_once,
    _predispatch.lazy_load_decompositions,
)
#: What blocks of ``with`` call on entering and leaving; what they set is guarded, or brought back.
PAIRED_SETTERS: Final = (
    *(torch._C._set_grad_enabled, torch._C._set_deterministic_algorithms),
    *(torch._C._set_fwd_grad_enabled, torch._C._functorch.set_inplace_requires_grad_allowed),
    *(_saved_tensors_hooks_disable, _saved_tensors_hooks_enable),
    *(torch._C._functorch._grad_increment_nesting, torch._C._functorch._grad_decrement_nesting),
    *(_predispatch._jvp_increment_nesting, _predispatch._jvp_decrement_nesting),
    *(_predispatch._vmap_increment_nesting, _predispatch._vmap_decrement_nesting),
    *(_predispatch._enter_dual_level, _predispatch._exit_dual_level),
)

#: The translator of a frame being traced, as annotations have it.
Tracer = InstructionTranslatorBase

_PURPOSES: Final = """
models of values in a trace: AutogradFunctionApplyVariable BaseListVariable BuiltinVariable
    CatchWarningsCtxManagerVariable CellVariable ConstDictVariable ConstantLikeVariable
    ConstantVariable ContextWrappingVariable DefaultDictVariable DeletedVariable DequeVariable
    DictViewVariable DunderDictVariable ExceptionVals ExceptionVariable FrozenDataClassVariable
    GenericContextWrappingVariable GetAttrBuiltinVariable GetAttrVariable IteratorVariable
    LazyVariableTracker ListIteratorVariable ListVariable LocalGeneratorFunctionVariable
    LocalGeneratorObjectVariable LoggingLoggerVariable MappingProxyVariable NamedTupleVariable
    NestedUserFunctionVariable NewGlobalVariable NumpyNdarrayVariable NumpyVariable
    OrderedDictVariable PolyfilledFunctionVariable RandomVariable RangeIteratorVariable
    RangeVariable RemovableHandleVariable SetAttrBuiltinVariable SetVariable SizeVariable
    SliceVariable StringFormatVariable StructSequenceVariable SuperVariable SymNodeVariable
    TensorVariable TorchHigherOrderOperatorVariable TorchInGraphFunctionVariable TupleVariable
    UserDefinedClassVariable UserDefinedDictVariable UserDefinedExceptionClassVariable
    UserDefinedExceptionObjectVariable UserDefinedObjectVariable UserFunctionVariable
    UserMethodVariable VariableTracker WeakRefVariable
how a model is changed in a trace: AttrMutationKind AttributeMutationNew SideEffects
    ValueMutationExisting ValueMutationNew current_scope_id enter_new_scope is_side_effect_safe
make and read a model: AsPythonConstantNotImplementedError GraphArg VariableBuilder builder
    can_dispatch_torch_function cmp_name_to_op_mapping get_specialized_props HashableTracker
    is_hashable object_protocol unpack_iterable wrap_fx_proxy wrap_fx_proxy_cls
where a value of the trace comes from: AttrSource ChainedSource DictGetItemSource GetItemSource
    GlobalSource LocalSource RandomValueSource Source SyntheticLocalSource
    UnspecializedParamBufferSource
guards on what a trace relies on: Guard GuardBuilder GuardBuilderBase install_guard
what is being traced: InliningInstructionTranslator InstructionTranslatorBase OutputGraph
    SubgraphTracer TracingContext translator_tls
write the code around a compiled graph: PyCodegen create_build_tuple create_call_function
    create_instruction create_jump_absolute
how a trace ends early: RestartAnalysis SkipFrame UnspecializeRestartAnalysis
why a trace fails: BackendCompilerFailed FailOnRecompileLimitHit InternalTorchDynamoError
    RequiresGradRestartAnalysis TorchDynamoException TorchRuntimeError Unsupported UserError
    graph_break_hints unimplemented
exceptions of the program in a trace: ObservedException ObservedUserStopIteration
    handle_observed_exception observed_exception_map raise_observed_exception
which code Dynamo compiles, and when: ConvertFrameReturn _FrameAction _FrameExecStrategy
    _debug_get_cache_entry_list set_code_exec_strategy _get_error_on_graph_break
    _set_error_on_graph_break compile_lock get_eval_frame_callback set_eval_frame
    set_fullgraph_compiled_frame_count always_optimize_code_objects skip_code
the first trace of what waits to be mended: CatchErrorsWrapper DeletedGuardManagerWrapper
    GuardedCode convert_frame export_trace get_compile_id package symbolic_convert user_defined
    wrap_guarded_code wrap_inline
which functions Dynamo inlines: SkipResult trace_rules
settings of Dynamo, of AOTAutograd, of Inductor: dynamo_config functorch_config inductor_config
what Inductor has AOTAutograd called by: AotAutograd SerializableAOTDispatchCompiler
trace a choice for a back end: FunctionalTensorMode ProxyTorchDispatchMode PythonFunctionalizeAPI
    _AutoDispatchBelowAutograd _clone_aliasing_output _dispatch_tls_local_exclude_set
    _dispatch_tls_local_include_set get_proxy_mode dispatch_functionalize materialize_as_graph
    min_cut_rematerialization_partition track_tensor_tree tree_map
which numbers a backward is given: partitioners
the code in which a frame goes on behind a graph break: ContinueExecutionCache
operators: HigherOrderOperator OpOverload OpOverloadPacket higher_order_ops
what Inductor is lowering, and how it lowers choices: LoweredChoice V
whether torch traces backward passes: compiled_autograd
what a checkpoint keeps: _CachedTorchDispatchMode _CachingTorchDispatchMode
autograd inside an operator, and in a backward: _ForceDispatchKeyGuard _current_autograd_node
operators with an effect: _EffectType _register_effectful_op effects_of_operators
assertions inside a graph: ASSERT_ASYNC ASSERT_SCALAR
run an operation on fake tensors: FakeTensor FakeTensorMode get_fake_value make_fx
see the operators behind an operation: TorchDispatchMode _disable_current_modes
run sides of an operator directly: DispatchKey _get_current_dispatch_mode
unbacked sizes and numbers: GuardOnDataDependentSymNode ShapeEnv canonicalize_bool_expr free_symbols
    free_unbacked_symbols statically_known_true
compute with symbolic expressions: Max Min PythonReferenceAnalysis ValueRanges bound_sympy
    sympy_interp try_solve
hooks of saved tensors that are in force: _top_saved_tensors_default_hooks
views, versions and history of tensors: CreationMeta _get_creation_meta _get_data_attr
    _unsafe_preserve_version_counter is_non_overlapping_and_dense_or_false
grad mode, inference mode, default dtype and autocast inside a graph: _set_grad_enabled_now
    _set_default_dtype_now _enter_autocast _exit_autocast _enter_inference_mode
    _is_any_autocast_enabled
settings without public names: PRIVATE_SETTINGS PAIRED_SETTERS _saved_tensors_hooks_disable
    _saved_tensors_hooks_enable _saved_tensors_hooks_get_disabled_error_message WITHOUT_EFFECT
    TorchFunctionModeStackVariable
transforms of torch.func: get_unwrapped is_batchedtensor is_functorch_wrapped_tensor
    peek_interpreter_stack get_dynamic_layer_stack_depth pop_dynamic_layer_stack_and_undo_to_depth
padding by a number out of a tensor: _nn_pad
tensors in containers, and how they are printed: tree_leaves PRINT_OPTS
frames between a call of a module and its forward: MODULE_CALL_IMPL MODULE_WRAPPED_CALL
what makes an object a module, without what Dynamo does beside it: unpatched_nn_module_init
files of Dynamo, to know its frames: DYNAMO_FILE POLYFILLS_FILE
what is shown beside a graph: trace_log trace_structured
the demonstration: explain_dynamo reset_dynamo
"""
#: What the names are for. A test compares them with the imports above.
PURPOSES: Final[dict[str, list[str]]] = {
    purpose: names.split()
    for purpose, names in re.findall(r"^(.+?): ([^:]+)$", _PURPOSES, re.MULTILINE)
}


class Symbol(NamedTuple):
    """A private name of torch, the module that it comes from, and what it is for."""

    name: str
    origin: str
    purpose: str


def symbols() -> list[Symbol]:
    """Return every private name of torch that bcmend uses, by purpose."""
    origins = dict(_imports())
    return [
        Symbol(name, origins.get(name, "torch"), purpose)
        for purpose, names in PURPOSES.items()
        for name in names
    ]


def _imports() -> Iterator[tuple[str, str]]:
    """Yield each name that this module imports from torch, and from which module."""
    for node in ast.walk(ast.parse(inspect.getsource(sys.modules[__name__]))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("torch"):
            yield from ((each.asname or each.name, str(node.module)) for each in node.names)
