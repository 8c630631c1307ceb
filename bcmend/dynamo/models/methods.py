"""Names of Dynamo's methods: those that hooks replace, and those that bcmend's models override.

A hook is declared with a constant of this module, and ``implements`` gives a method of a model of
bcmend's the name by which Dynamo calls it.
"""

from __future__ import annotations

import dis
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any, Final, TypeVar, cast

from bcmend.bytecode import decode, opcodes
from bcmend.dynamo import compat

Function = TypeVar("Function", bound=Callable[..., Any])
Model = TypeVar("Model", bound=type)


def _either(owner: Any, name: str, before: str) -> str:
    """Return the name that a method has in this release; ``before`` that of torch 2.13."""
    return name if hasattr(owner, name) else before


#: Of an owner and a name what was held there, how many modules there were, and the other places.
_HELD: Final[dict[tuple[int, str], tuple[Any, int, list[tuple[Any, str]]]]] = {}


def also_held(owner: Any, name: str, function: Any) -> list[tuple[Any, str]]:
    """Return the places beside its owner where a function is held, which Dynamo calls as well.

    They are entries of a class's table of methods, which torch 2.13 does not have, and modules
    of Dynamo's that have imported the function by name. Each trace asks for what the last one did.
    """
    known = _HELD.get((id(owner), name))
    if known is None or known[0] is not function or known[1] != len(sys.modules):
        found = _holders(owner, name, function)
        known = _HELD[id(owner), name] = function, len(sys.modules), found
    return known[2]


def _holders(owner: Any, name: str, function: Any) -> list[tuple[Any, str]]:
    if isinstance(owner, ModuleType):
        names = {str(each.__package__) for each in (owner, compat.symbolic_convert)}
        packages = [sys.modules[each] for each in names]
        beside = {id(each): each for package in packages for each in vars(package).values()}
        modules = [each for each in beside.values() if isinstance(each, ModuleType)]
        holders = [each for each in modules if vars(each).get(name, owner) is function]
        return [(each, name) for each in holders if each is not owner]
    table: dict[str, Any] = vars(owner).get(METHOD_TABLE, {}) if isinstance(owner, type) else {}
    entries = (each for each in table.values() if hasattr(each, _HANDLER))
    return [(each, _HANDLER) for each in entries if getattr(each, _HANDLER) is function]


def is_of_another_python(owner: Any, name: str) -> bool:
    """Return whether a method is that of an opcode that the running Python does not have."""
    return owner is compat.InstructionTranslatorBase and name.isupper() and name not in dis.opmap


def opcode_tables(owner: Any, name: str) -> list[tuple[list[Any], int]]:
    """Return the tables of opcodes that translators are led by, and the place of one in each."""
    place = dis.opmap.get(name, -1)
    if owner is not compat.InstructionTranslatorBase or place < 0:
        return []
    kinds, found = [owner], []
    while kinds:
        kind = kinds.pop()
        kinds.extend(kind.__subclasses__())
        if _OPCODE_TABLE in vars(kind):
            found.append((getattr(kind, _OPCODE_TABLE), place))
    return found


_OPCODE_TABLE: Final = "dispatch_table"
METHOD_TABLE: Final = "tp_methods"
_HANDLER: Final = "handler"

# Slots of models, which follow those of Python's types.

_ANY: Final = compat.VariableTracker
GETATTR: Final = _either(_ANY, "tp_getattro_impl", "var_getattr")
REPR: Final = _either(_ANY, "tp_repr_impl", "repr_impl")
RICHCOMPARE: Final = _either(_ANY, "tp_richcompare_impl", "richcompare_impl")
HASH: Final = "hash_impl"
#: How a key of a dictionary is made of a model.
MAKE_KEY: Final = "__init__"
ITER: Final = "tp_iter_impl"
ITERNEXT: Final = "tp_iternext_impl"
#: How a field of a model that its class declares is found, where classes do; none in torch 2.13.
FIND_FIELD: Final = "lookup_tp_getset_member"
STR: Final = "tp_str_impl"
LENGTH: Final = _either(_ANY, "sq_length_impl", "sq_length")
CONCAT: Final = "sq_concat_impl"
CONTAINS: Final = _either(_ANY, "sq_contains_impl", "sq_contains")
SUBSCRIPT: Final = "mp_subscript_impl"
ASSIGN_SUBSCRIPT: Final = "mp_ass_subscript_impl"
INPLACE_OR: Final = "nb_inplace_or_impl"
AS_INTEGER: Final = "nb_int_impl"
#: The slots of operators on one number.
UNARY_NUMBER_SLOTS: Final = (
    *(f"nb_{name}_impl" for name in ("negative", "positive", "absolute")),
    AS_INTEGER,
)
#: The slots of operators on two numbers, as ``object_protocol.binary_op1`` is given them.
BINARY_NUMBER_SLOTS: Final = frozenset(
    f"nb_{name}"
    for name in ("add", "subtract", "multiply", "true_divide", "floor_divide", "remainder")
)
EXCLUSIVE_OR_SLOT: Final = "nb_xor"
TRUE_DIVISION_SLOT: Final = "nb_true_divide"
FLOOR_DIVISION_SLOT: Final = "nb_floor_divide"
REMAINDER_SLOT: Final = "nb_remainder"
#: Those that raise where the second number is zero.
DIVISION_SLOTS: Final = frozenset([TRUE_DIVISION_SLOT, FLOOR_DIVISION_SLOT, REMAINDER_SLOT])

# Methods of models of any kind.

BIND_ARGUMENTS: Final = "bind_args"
CALL_FUNCTION: Final = "call_function"
CALL_METHOD: Final = "call_method"
GUARD_KEYS: Final = "install_dict_keys_match_guard"
GUARD_CONTAINS: Final = "install_dict_contains_guard"

# Methods of ``BuiltinVariable`` and of its kin for ``getattr`` and ``setattr``.

CALL_BUILD_CLASS: Final = "call___build_class__"
CALL_FLOAT: Final = "call_float"
CALL_FORMAT: Final = "call_format"
CALL_GETATTR: Final = "_call_getattr"
CALL_GETITEM: Final = "call_getitem"
CALL_ID: Final = "call_id"
CALL_ISINSTANCE: Final = "call_isinstance"
CALL_LOCALS: Final = "call_locals"
CALL_MIN_MAX: Final = "_call_min_max_binary"
CALL_MIN_MAX_OF_ITEMS: Final = "_call_min_max_seq"
CALL_NOT: Final = "call_not_"
CALL_RANGE: Final = "call_range"
CALL_SETATTR: Final = "_call_setattr"
CALL_REPR: Final = "call_repr"
CALL_STR: Final = "call_str"
CALL_VARS: Final = "call_vars"
COMPARE_WITH_NUMBER: Final = "_comparison_with_symnode"
COMPARE_WITH_TENSOR: Final = "_comparison_with_tensor"
INSERT_OPERATION: Final = "_handle_insert_op_in_graph"
MAKE_HANDLER: Final = "_make_handler"
#: What sorts a list, where that is a method of its own; none in torch 2.13.
SORT_OF_LISTS: Final = tuple(
    name for name in ("list_sort",) if hasattr(compat.BaseListVariable, name)
)

# Methods of models of tensors, numbers, containers and objects.

AS_TENSOR: Final = "as_tensor"
DATA_OF_TENSOR: Final = "method_attr_data"
EVALUATE: Final = "evaluate_expr"
EXIT: Final = "exit"
GENERIC_GETATTR: Final = "generic_getattr"
HAS_ATTRIBUTE: Final = "call_obj_hasattr"
GRADIENT_OF_TENSOR: Final = "method_attr_grad"
GETITEM_CONSTANT: Final = "getitem_const"
ITEM_OF_TENSOR: Final = "method_item"
LENGTH_METHOD: Final = "method___len__"
REWIRE_BACKWARD: Final = "rewire_bwd_graph_outputs"
READ_WHAT_HAS_CHANGED: Final = "synchronize_attributes"
TOLIST_OF_TENSOR: Final = "method_tolist"
TRACE_BACKWARD: Final = "trace_backward_graph"
IS_DYNAMIC_SOURCE: Final = "is_dynamic_source"
BINDS_SYMBOL: Final = "is_symbol_binding_fx_node"
BINDERS_OF_SYMBOLS: Final = "find_symbol_binding_fx_nodes"
HAS_EFFECTS: Final = "has_effects"
WRAP: Final = "_wrap"
WRAP_FLOAT: Final = "wrap_symfloat"
WRAP_MODULE: Final = "wrap_module"

#: Methods of generators of Python that Dynamo calls while it traces; none in torch 2.13.
DRAWN_WHILE_TRACING: Final = tuple(
    name for name in ("sample", "shuffle") if hasattr(compat.RandomVariable, name)
)

# Methods of the translator of a frame.

BREAK_AT_A_STEP: Final = "step_graph_break"
ENTER_WITH: Final = decode.ENTERS_A_BLOCK
LOOK_UP_SPECIAL: Final = decode.LOOKS_UP
EXCEPTION_HANDLER: Final = "exception_handler"
FORMAT_VALUE: Final = "_format_value"
#: The opcode that adds ``**keywords`` to those of a call.
(MERGE_KEYWORDS,) = opcodes.MERGES
HAS_BACKWARD_JUMP: Final = "maybe_has_backedge"
LOG_GRAPH_BREAK: Final = "log_graph_break"
RUN: Final = "run"
LOAD_GLOBAL: Final = "_load_global"
STEP: Final = "step"
CREATE_NODE: Final = "create_node"

# Methods of the graph being traced, of the side effects and of the shape environment.

ALLOW_DYNAMIC_OUTPUTS: Final = "allow_dynamic_output_shape_ops"
CALL_BACK_END: Final = "call_user_compiler"
CHECK_PROXY: Final = "_check_mutation_guard"
CHECK_GRADIENTS_OF_OUTPUTS: Final = "_check_requires_grad_intermediate_outputs"
CHECK_SIDE_EFFECT: Final = "check_allowed_side_effect"
COMPILE_SUBGRAPH: Final = "compile_subgraph"
CREATE: Final = "create"
CREATE_UNBACKED_INT: Final = "create_unbacked_symint"
EVALUATE_NODE: Final = "evaluate_sym_node"
GUARD_OR_DEFER: Final = "guard_or_defer_runtime_assert"
INSTALL_GLOBAL: Final = "install_global_unsafe"
BUILD_WEAK_REFERENCE: Final = "build"
ADD_CACHE: Final = "add_cache"
LOAD_ATTRIBUTE: Final = "load_attr"
RENAME_UNBACKED: Final = "_rename_unbacked_to"
TRACK_ATTRIBUTES: Final = "track_attribute_mutation_new"
TRACK_MUTABLE: Final = "track_mutable"
TRACK_OBJECT: Final = "_track_obj"
WRITE_BACK: Final = "codegen_update_mutated"

# Functions of modules, and what is called as a function.

BINARY_OPERATION: Final = "binary_op1"
CALL: Final = "__call__"
CALL_RANDOM: Final = "call_random_fn"
COMPARE_IDENTITY: Final = "vt_identity_compare"
COMPILE_FRAME: Final = "compile_frame"
LOAD_PACKAGE: Final = "load"
TRACE_FRAME: Final = "trace_frame"
EXPORT_NON_STRICT: Final = "_non_strict_export"
EXPORT_STRICT: Final = "_strict_export"
IMPORT: Final = "__import__"
READ_ATTRIBUTE: Final = "generic_getattr"
NORMALIZE_ASSERT: Final = "_detect_and_normalize_assert_statement"
RICHCOMPARE_ITEMS: Final = "generic_richcompare_bool"


class _Implementation:
    """A method that its class also has by the names that Dynamo calls."""

    def __init__(self, function: Callable[..., Any], names: tuple[str, ...]) -> None:
        self._function, self._names = function, names

    def __set_name__(self, owner: type, name: str) -> None:
        for each in (name, *self._names):
            setattr(owner, each, self._function)


def implements(*names: str) -> Callable[[Function], Function]:
    """Declare that a method of a class is what Dynamo calls by ``names``."""

    def declare(function: Function) -> Function:
        return cast(Function, _Implementation(function, names))

    return declare


def without_models_in(*fields: str) -> Callable[[Model], Model]:
    """Declare the fields of a model in which Dynamo looks for no other models."""

    def declare(model: Model) -> Model:
        variable: Any = model
        variable._nonvar_fields = {*fields, *compat.VariableTracker._nonvar_fields}
        return model

    return declare


def operator_model(name: str, call: Callable[..., Any]) -> type:
    """Return a model of an operator of bcmend: ``call`` is given the model and the call.

    No mode of torch functions is asked about the call, as ``torch.set_default_device`` sets one:
    what the operator traces would be traced inside that mode, where it is off.
    """
    attributes = {
        "__module__": __name__,  # else it would be that of Dynamo's metaclass
        "_HOP_NAME": f"bcmend.{name}",
        "_ALLOW_FALLBACK_TO_EAGER": True,
        CALL_FUNCTION: call,
    }
    return type(f"{name.title()}Variable", (compat.TorchHigherOrderOperatorVariable,), attributes)
