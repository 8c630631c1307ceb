"""All modules of tracing that declare hooks and handlers, and that nothing else need import.

A module that is not here, and that no other module imports, does nothing.
"""

# ruff: noqa: F401

from __future__ import annotations

from bcmend.tracing.accelerators import cuda_graphs
from bcmend.tracing.arithmetic import (
    drawn_integers,
    float_division,
    float_tests,
    folded_floats,
    handled_errors,
    number_methods,
    ordering,
    powers,
    scaled_sums,
)
from bcmend.tracing.backends import (
    checkpointed,
    compile_caches,
    detached_results,
    donated_memory,
    layouts,
)
from bcmend.tracing.effects import separate_objects
from bcmend.tracing.gradients import inner_gradients, input_leaves, repeated_arguments
from bcmend.tracing.handlers import (
    answered_attributes,
    any_all,
    checks,
    data_stores,
    dictionaries,
    enum_members,
    exception_classes,
    frame_variables,
    function_names,
    identity,
    lists_in_tuples,
    loggers,
    ranges,
    size_arguments,
    strings,
    tensor_bool,
    written_back,
)
from bcmend.tracing.indexing import (
    item_reads,
    joined_items,
    masked_stores,
    open_places,
    selected_places,
    unread_items,
)
from bcmend.tracing.loops import loop_breaks, mask_loops, open_ranges
from bcmend.tracing.numbers import number_inputs
from bcmend.tracing.opaque import assignments, numbered_calls, registered_calls, scripted_modules
from bcmend.tracing.recurrent import layers, packed_sequences
from bcmend.tracing.speculation import done_while_tracing, hooks_in_arms, missing_attributes
from bcmend.tracing.substitutes import (
    arrays,
    autograd_leaf,
    batch_norms,
    clocks,
    copy_calls,
    elided_contexts,
    host_calls,
    host_functions,
    new_parameters,
    state_questions,
    tensor_operands,
)
from bcmend.tracing.two_forms import arithmetic
