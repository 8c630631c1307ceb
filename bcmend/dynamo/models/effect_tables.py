"""The tables of side effects and of a trace, by name: which ones an arm may change."""

from __future__ import annotations

from typing import Any, Final

from bcmend.dynamo import compat
from bcmend.dynamo.models import translators

TENSOR_HOOKS: Final = "tensor_hooks"
SAVED_FOR_BACKWARD: Final = "save_for_backward"
#: Tables of side effects that hold what an arm did to objects, which a branch merges.
MERGED: Final = frozenset(
    "id_to_variable keepalive store_attr_mutations attr_mutation_kinds".split()
)
#: Tables of side effects of which nothing that the program can see depends.
NOTES: Final = frozenset("mutation_user_stacks mutated_sources _has_existing_dict_mutation".split())
#: Tables of a trace that hold what it has looked at or met, names that it has made, and what is
#: done when it is complete: nothing that the program can see depends on them. Which tensors have
#: become leaves is asked of nodes in the main graph alone.
FOUND_OUT: Final = frozenset(
    """
    local_scope global_scope cleanup_hooks code_options co_fields traced_code
    variable_tracker_cache guard_on_key_order guarded_mro_absent_keys mro_source_cache
    signature_cache attr_source_cache import_sources installed_globals cleanups
    input_source_to_sizes_strides input_source_to_var tracked_fakes
    tracked_fakes_id_to_source param_name_to_source dynamo_flat_name_to_original_fqn
    source_to_user_stacks non_compliant_ops compliant_custom_ops pregraph_bytecode
    register_finalizer_fns leaf_var_creation_order unspec_variable_map timestamp tracers _current_tx
    """.split()
)

#: Tables of a trace that say on which streams of an accelerator inputs have been changed in place.
CHANGES_BY_STREAM: Final = frozenset(["_input_mutation_streams", "_last_checked_input_versions"])
#: The generators that a trace has made, which it closes at its end; torch 2.13 has no such table.
LOCAL_GENERATORS: Final = "local_generators"
#: What inputs were before a store to their ``data``; torch has no such table before 2.15.
INPUTS_BEFORE_STORES: Final = "_shallow_copy_placeholder_snapshots"
#: The calls that are made before the graph.
RANDOM_CALLS: Final = "random_calls"


def closes_new_generators_unseen(output: Any, before: list[Any]) -> bool:
    """Return whether no code runs when a trace closes the generators that are new in it."""
    new = [each for each in getattr(output, LOCAL_GENERATORS) if each not in before]
    return all(map(translators.runs_nothing_when_closed, new))


def drop_closed_generators(output: Any, closed: list[Any]) -> None:
    """Have a trace not close generators at its end."""
    table = getattr(output, LOCAL_GENERATORS, [])
    table[:] = [each for each in table if each not in closed]


def output_of(effects: Any) -> Any:
    """Return the trace that side effects belong to."""
    return effects.output_graph_weakref()


def add_stored(effects: Any, variable: compat.VariableTracker, name: str, value: Any) -> None:
    """Note that an attribute has a value, as if an ordinary store had given it."""
    effects.store_attr_mutations.setdefault(variable, {})[name] = value
    kinds = effects.attr_mutation_kinds.setdefault(variable, {})
    kinds[name] = compat.AttrMutationKind.GENERIC_SETATTR


def put_back_stores(effects: Any, before: Any) -> None:
    """Give side effects the stores of attributes again that they had before."""
    effects.store_attr_mutations = before.store_attr_mutations
    effects.attr_mutation_kinds = before.attr_mutation_kinds


def tables_of_functions(tx: compat.Tracer) -> Any:
    """Return what a frame knows of the modes of torch functions."""
    return tx.symbolic_torch_function_state


def has_function_modes(tx: compat.Tracer) -> bool:
    """Return whether modes of torch functions are active, such as that of a default device."""
    return bool(tx.symbolic_torch_function_state.mode_stack)
