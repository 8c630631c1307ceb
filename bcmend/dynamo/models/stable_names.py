"""Names of Dynamo's objects that are used outside of this package as they are.

They are what a model, a frame or a graph is made of, and keep their meaning between releases. A
name that a release lacks, or that means something else there, goes into a function of this package.
``tests/dynamo/models/test_stable_names.py`` compares the table with torch and with the code.
"""

from __future__ import annotations

import re
from typing import Final

_NAMES: Final = """
VariableTracker: as_proxy as_python_constant build call_function call_method clone debug_repr
    is_constant_none is_python_constant is_realized is_tensor make_guard mutation_type next_variable
    python_type python_type_name realize reconstruct set_name_hint set_source_location source unwrap
    visit
CellVariable: pre_existing_contents
ConstantVariable: create value
BaseListVariable: items
ConstDictVariable: items
ListIteratorVariable: items
RangeVariable: items start step stop
TensorVariable: class_type method_requires_grad_ requires_grad
SymNodeVariable: create evaluate_expr sym_num
NumpyNdarrayVariable: create
BuiltinVariable: fn
GetAttrVariable: name obj py_type
FunctoolsPartialVariable: func
MethodDescriptorVariable: descriptor
NestedUserFunctionVariable: closure f_globals fn_name get_code
UserDefinedObjectVariable: value
UserDefinedClassVariable: value
ExceptionVariable: __cause__ __context__
CatchWarningsCtxManagerVariable: catch_warnings_args
ContextWrappingVariable: cleanup_assert enter exit fn_name module_name set_cleanup_hook
MutationType: scope
SideEffects: attr_mutation_kinds check_allowed_side_effect clone has_pending_mutation_of_attr
    id_to_variable is_modified keepalive load_cell mutation should_allow_side_effects_in_hop
    store_attr store_attr_mutations tensor_hooks track_global_existing
InstructionTranslatorBase: current_instruction debug_locals error_on_graph_break export f_code
    f_globals indexof instruction_pointer instructions lineno nn_module_stack one_graph output
    package parent pop push stack step symbolic_locals
Instruction: arg argval offset opname positions target
ExceptionTableEntry: target
OutputGraph: add_cleanup_hook autograd_grad_consumed_grad_fns cleanup_hooks create_node
    create_proxy cudagraph_annotation current_tracer current_tx export fake_mode global_scope graph
    guards import_sources install_subgraph leaf_var_creation_order local_scope new_var nn_modules
    output_instructions placeholders pregraph_bytecode random_calls resolve_source_value root_tracer
    root_tx save_global_state shape_env should_exit side_effects signature_cache subtracer tracers
    tracing_context
SubgraphTracer: bound_symbols create_graph_input create_proxy graph has_input_mutation
    input_name_to_proxy lifted_freevars parent
MutationInfo: mutated_input_indices
GraphArg: example source
TracingContext: fake_mode global_context guards_context try_get
GlobalContext: global_state
GuardsContext: dynamo_guards
GuardsSet: inner remove_guards_with_source update
Guard: create_fn name originating_source user_stack
GuardBuilder: HASATTR SEQUENCE_LENGTH add_python_lambda_leaf_guard_to_root arg_ref get_guard_manager
VariableBuilder: install_guards
Source: make_guard name reconstruct
ChainedSource: base
GlobalSource: global_name
LocalSource: local_name
RandomValueSource: random_call_index
PyCodegen: add_cache add_push_null append_output call_function cell_and_freevars clear_tos
    create_load create_load_closure create_load_const create_load_const_unchecked create_load_deref
    create_load_python_module extend_output foreach get_instructions
    load_function_name load_method pop_top store tempvars tx uses
Unsupported: gb_type real_stack
AsPythonConstantNotImplementedError: vt
RestartAnalysis: restart_reason
ShortenTraceback: first_useful_frame
GraphCompileReason: reason user_stack
OutputGraphCommon: shape_env
CompileContext: compile_id
"""
#: The names by class. A class has also those of the classes above it.
NAMES: Final[dict[str, frozenset[str]]] = {
    kind: frozenset(names.split())
    for kind, names in re.findall(r"^(\w+): ([^:]+)$", _NAMES, re.MULTILINE)
}

#: Names that this package uses and that not all tested releases have, by the releases that do.
OF_SOME_RELEASES: Final[dict[tuple[str, ...], frozenset[str]]] = {
    ("2.13",): frozenset("generator_exhausted generic_float generic_int user_cls".split()),
    ("2.13", "2.14"): frozenset("_base_vt exc_vt tuple_vt".split()),
    ("2.14", "2.15"): frozenset(
        """
        ComputedLazyConstantVariable _frame_state_created _frame_state_finished
        computed_lazy_constant_max_nodes cv_obj gi_exc_state handler
        local_generators lookup_tp_getset_member lookup_tp_method
        pygen_yf pynumber_float pynumber_int tp_methods tp_str_impl
        track_attribute_mutation_new _shallow_copy_placeholder_snapshots
        """.split()
    ),
    ("2.15",): frozenset("call_base_method im_self".split()),
}

#: Names under which Dynamo keeps facts about a node of its graph, in the node's ``meta``.
META: Final = frozenset(["example_value", "grapharg", "source_fn_stack"])

_CONSTRUCTORS: Final = """
AsPythonConstantNotImplementedError(vt)
BuiltinVariable(fn)
ConvertFrameReturn(apply_to_code, skip_reason)
DeletedVariable()
FunctionalTensorMode()
GetAttrVariable(obj, name)
AttrSource(base, member)
GetItemSource(base, index)
GlobalSource(global_name)
Guard(originating_source, create_fn)
GuardedCode(code, guard_manager, compile_id)
ListVariable(items)
PyCodegen(tx)
PythonFunctionalizeAPI(mode)
RandomValueSource(random_call_index)
RangeVariable(items)
SizeVariable(items)
SymNodeVariable(proxy, sym_num)
SyntheticLocalSource(local_name)
TupleVariable(items)
UnspecializedParamBufferSource(base, member)
UserFunctionVariable(fn)
ValueMutationNew()
ValueRanges(lower, upper)
"""
#: Classes of ``compat`` that are called outside of this package, and the parameters they are given.
CONSTRUCTORS: Final[dict[str, tuple[str, ...]]] = {
    kind: tuple(names.split(", ")) if names else ()
    for kind, names in re.findall(r"^(\w+)\((.*)\)$", _CONSTRUCTORS, re.MULTILINE)
}
