"""What rewritten bytecode reaches through the global ``@bcmend``."""

from __future__ import annotations

from builtins import UnboundLocalError as UnboundLocalError

from bcmend.delivery import own_frames, read_predicates
from bcmend.delivery.own_frames import leave_out as leave_out
from bcmend.dynamo import plain_python

# Modules that declare hooks and handlers, and that nothing else imports.
from bcmend.tracing.backends import (  # noqa: F401
    checkpointed,
    compile_caches,
    donated_memory,
    layout_questions,
)

# It declares a handler, and nothing else imports it.
from bcmend.tracing.effects import guarded_keys  # noqa: F401
from bcmend.tracing.entry.boundary import run as run
from bcmend.tracing.entry.boundary import run_in_place as run_in_place
from bcmend.tracing.entry.primitives import branch as branch
from bcmend.tracing.entry.primitives import data_dependent as data_dependent
from bcmend.tracing.entry.primitives import entered as entered
from bcmend.tracing.entry.primitives import guard as guard
from bcmend.tracing.entry.primitives import nothing as nothing
from bcmend.tracing.entry.primitives import record as record
from bcmend.tracing.entry.primitives import recording as recording
from bcmend.tracing.entry.primitives import runs_iteration as runs_iteration
from bcmend.tracing.entry.primitives import split as split
from bcmend.tracing.entry.primitives import unbound as unbound
from bcmend.tracing.entry.primitives import undecided as undecided
from bcmend.tracing.handlers import (  # noqa: F401
    any_all,
    checks,
    exception_classes,
    float_tests,
    frame_variables,
    identity,
    loggers,
    min_max,
    recurrent,
    size_arguments,
    strings,
    tensor_bool,
)
from bcmend.tracing.indexing import (  # noqa: F401
    item_reads,
    masked_stores,
    open_places,
    unread_items,
)
from bcmend.tracing.loops import loop_breaks, mask_loops, open_ranges  # noqa: F401
from bcmend.tracing.numbers import float_inputs  # noqa: F401
from bcmend.tracing.speculation import (  # noqa: F401
    done_while_tracing,
    hooks_in_arms,
    missing_attributes,
)
from bcmend.tracing.substitutes import (  # noqa: F401
    arrays,
    autograd_leaf,
    batch_norms,
    clocks,
    copy_calls,
    elided_contexts,
    host_calls,
    host_functions,
    new_parameters,
    replacements,
)

plain_python.have_dynamo_skip(own_frames, read_predicates)
