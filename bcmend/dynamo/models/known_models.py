"""The models of Dynamo that bcmend was written with, and what looks for others.

What a new model holds, and how it is changed, is not known: an arm that meets one would be merged
without what it has done to it. A model goes into the list once it was looked at: which of its
fields change, and whether Dynamo's side effects know of that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from bcmend.dynamo import compat

KNOWN: Final = frozenset(
    """
    VariableTracker
    AcceleratorDeviceIndexVariable AssociativeScanHigherOrderVariable AttributeErrorVariable
    AutoFunctionalizeHigherOrderVariable AutocastModeVariable AutogradEngineVariable
    AutogradFunctionApplyVariable AutogradFunctionContextVariable AutogradFunctionVariable
    BackwardHookVariable BaseBuiltinVariable BaseHOPVariable BaseListIteratorVariable
    BaseListVariable BaseSetVariable BaseTorchVariable BaseUserFunctionVariable
    BoundBuiltinMethodVariable BuiltinVariable CUDADeviceVariable CallMethodVariable
    CallTorchbindHigherOrderVariable CatchWarningsCtxManagerVariable CellVariable ChainVariable
    CheckpointHigherOrderVariable ClassAttrClassMethodVariable ClassMethodDescriptorVariable
    ClassMethodVariable CollectionsNamedTupleFunction CollectiveFunctionRewriteVariable
    CommonListMethodsVariable ComptimeVariable ComputedLazyConstantVariable CondHigherOrderVariable
    ConstDictVariable ConstantLikeVariable ConstantVariable ContextWrappingVariable
    ContextlibContextManagerLocalGeneratorObjectVariable CountIteratorVariable
    CreateTMADescriptorExperimentalVariable CreateTMADescriptorStableVariable CudaStreamVariable
    CudagraphOverrideVariable CustomFunctionHigherOrderOperatorVariable DataPtrVariable
    DebuggingVariable DefaultDictVariable DelayGraphBreakVariable DeletedVariable
    DequeIteratorVariable DequeReverseIteratorVariable DequeVariable DescriptorVariable
    DictBuiltinVariable DictItemsIterator DictItemsVariable DictIterator DictKeySetVariable
    DictKeysIterator DictKeysVariable DictValuesIterator DictValuesVariable DictViewIterator
    DictViewVariable DisabledSavedTensorsHooksVariable DispatchKeySetVariable DistributedVariable
    DualLevelContextManager DunderDictVariable DynamoBypassingWrapperHigherOrderVariable
    DynamoConfigPatchVariable EnteredVariable ErrorOnGraphBreakVariable EventVariable
    ExceptionVariable ExecutorchCallDelegateHigherOrderVariable ExportTracepointHigherOrderVariable
    FSDPManagedNNModuleVariable FSDPParamGroupUseTrainingStateVariable FakeIdVariable
    FakeItemVariable FilterVariable FlexAttentionBackwardHighOrderVariable
    FlexAttentionHigherOrderVariable FrameSummaryVariable FrozenDataClassVariable FrozensetVariable
    FuncTorchInterpreterVariable FunctionDecoratedByContextlibContextManagerVariable
    FunctionalCallVariable FunctoolsPartialVariable FunctorchHigherOrderVariable
    FxTracebackAnnotateVariable GenericContextWrappingVariable GenericDeviceVariable
    GetAttrBuiltinVariable GetAttrVariable GetSetDescriptorVariable
    GradIncrementNestingCtxManagerVariable GradInplaceRequiresGradCtxManagerVariable
    GradModeVariable HasAttrBuiltinVariable HintsWrapperHigherOrderVariable IgnoredFunctionVariable
    InferenceModeVariable InlineAsmElementwiseHigherOrderVariable InspectSignatureVariable
    InspectVariable IntWrapperVariable InvokeSubgraphHigherOrderVariable IterBuiltinVariable
    IteratorVariable ItertoolsVariable JvpIncrementNestingCtxManagerVariable
    KeyedJaggedTensorVariable LambdaVariable LazyConstantVariable LazyVariableTracker
    ListBuiltinVariable ListIteratorVariable ListReverseIteratorVariable ListVariable
    LocalGeneratorFunctionVariable LocalGeneratorObjectVariable LocalMapWrappedHigherOrderVariable
    LoggingLoggerVariable MapHigherOrderVariable MapVariable MappingProxyVariable
    MemberDescriptorVariable MethodDescriptorVariable MethodWrapperVariable MutableMappingVariable
    NNModuleHooksDictVariable NNModuleVariable NameErrorVariable NamedTupleVariable
    NestedUserFunctionVariable NewGlobalVariable NothingVariable NullContextVariable NullVariable
    NumpyDTypeVariable NumpyNdarrayVariable NumpyVariable ObjectVariable OpaqueObjectClassVariable
    OptimizerVariable OrderedDictVariable OrderedSetClassVariable OrderedSetVariable
    OutDtypeHigherOrderVariable PolyfilledFunctionVariable PreserveVersionContextVariable
    PrintHigherOrderVariable ProfilerContextVariable ProfilerRecordFunctionContextVariable
    PropertyVariable PyTreeGetNodeTypeFunctionVariable PyTreeTreeIsLeafFunctionVariable
    PythonModuleVariable RandomClassVariable RandomVariable RangeIteratorVariable RangeVariable
    RecordFunctionVariable RemovableHandleVariable ReparametrizeModuleCallVariable
    RepararametrizeModuleContextVariable RepeatIteratorVariable RunWithRNGStateHigherOrderVariable
    SDPAKernelVariable SDPAParamsVariable ScanHigherOrderVariable SetAttrBuiltinVariable
    SetFwdGradEnabledContextManager SetIterator SetVariable SimpleNamespaceVariable SizeVariable
    SkipFunctionVariable SliceVariable SourcelessGraphModuleVariable
    SparseTensorCreationSkipVariable StaticMethodVariable StopIterationVariable
    StreamContextVariable StreamVariable StrictModeHigherOrderVariable StringFormatVariable
    StructSequenceVariable SuperVariable SymNodeVariable SysFunctionVariable
    TMADescriptorExperimentalVariable TMADescriptorStableVariable
    TemporarilyPopInterpreterStackCtxManagerVariable TensorSubclassVariable TensorVariable
    TensorWithTFOverrideVariable TorchCtxManagerClassVariable TorchFunctionDisableVariable
    TorchFunctionModeStackVariable TorchFunctionModeVariable TorchHigherOrderOperatorVariable
    TorchInGraphFunctionVariable TorchScriptObjectVariable TraceWrappedHigherOrderOperatorVariable
    TracebackVariable TreeMapOnlyFunctionVariable TritonKernelVariable TritonSetAllocatorVariable
    TupleGetterVariable TupleIteratorVariable TupleVariable TypingVariable UnboundVariable
    UnknownVariable UnspecializedBuiltinNNModuleVariable UnspecializedNNModuleVariable
    UnspecializedPythonVariable UntypedStorageVariable UserDefinedClassVariable
    UserDefinedConstantVariable UserDefinedDefaultDictVariable UserDefinedDequeVariable
    UserDefinedDictVariable UserDefinedExceptionClassVariable UserDefinedExceptionObjectVariable
    UserDefinedFrozensetVariable UserDefinedListVariable UserDefinedObjectVariable
    UserDefinedOrderedDictVariable UserDefinedSetVariable UserDefinedTupleVariable
    UserDefinedVariable UserFunctionVariable UserMethodVariable
    VmapIncrementNestingCtxManagerVariable WeakRefVariable WhileLoopHigherOrderVariable
    WhileLoopStackOutputHigherOrderVariable WithEnterFunctionVariable WithExitFunctionVariable
    WorldMetaClassVariable WrapHigherOrderVariable WrapWithAutocastHigherOrderVariable
    WrapWithSetGradEnabledHigherOrderVariable WrappedNestedUserFunctionVariable
    WrappedSkipFunctionVariable WrappedUserFunctionVariable WrappedUserMethodVariable
    WrapperDescriptorVariable WrapperUserFunctionVariable WrapperUserMethodVariable
    XPUDeviceVariable XpuStreamVariable ZipLongestVariable ZipVariable _KwargAttrExceptionVariable
    """.split()
)
_TORCH: Final = "torch."


def is_unknown(model: Any) -> bool:
    """Return whether a model is one of Dynamo's that the list does not have."""
    return _is_unknown_kind(type(model))


def is_a_model(name: str) -> bool:
    """Return whether a class of that name is a model, known or not."""
    return name in KNOWN


def _is_unknown_kind(kind: type) -> bool:
    return kind.__name__ not in KNOWN and kind.__module__.startswith(_TORCH)


@contextmanager
def noted() -> Iterator[list[str]]:
    """Yield a list of the names of such models that are made in the block."""
    found: list[str] = []
    every: list[Any] = type(compat.VariableTracker).all_subclasses
    kinds = list(filter(_is_unknown_kind, every))
    before = [vars(kind).get("__init__") for kind in kinds]
    made = [_noting(kind.__init__, found) for kind in kinds]
    try:
        for kind, constructor in zip(kinds, made, strict=True):
            kind.__init__ = constructor
        yield found
    finally:
        for kind, constructor in zip(kinds, before, strict=True):
            if constructor is not None:
                kind.__init__ = constructor
            elif "__init__" in vars(kind):
                del kind.__init__


def _noting(constructor: Callable[..., None], found: list[str]) -> Callable[..., None]:
    def construct(model: Any, *arguments: Any, **keywords: Any) -> None:
        if is_unknown(model):
            found.append(type(model).__name__)
        constructor(model, *arguments, **keywords)

    return construct
