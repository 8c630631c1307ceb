"""Decide whether a call whose graph failed may be made a second time.

It may if what the graph changed in place can be restored; random numbers are drawn from the same
state again.
"""

from __future__ import annotations

from typing import Final

import torch
from torch.fx import GraphModule

from bcmend.dynamo import compat, frames
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end, at_the_end_of_a_graph
from bcmend.tracing.deopt import graph_failure, kept_for_backward
from bcmend.tracing.effects import random_draws
from bcmend.tracing.sites import body_states


def may_be_computed_again() -> bool:
    """Return whether a backward pass may make this call again, and has to get the same of it.

    ``torch.utils.checkpoint`` counts the tensors that either run saves, by hooks. So what a call
    finds out must not change how the next one is compiled.
    """
    return compat._top_saved_tensors_default_hooks(False) is not None


_IS_NOTED: Final = Slot(bool, rolls_back=False)


def note(tx: compat.Tracer) -> None:
    """Have the graph being traced examined when it is complete, once a trace."""
    output = tx.output
    if tx.export or _IS_NOTED.of(output):
        return
    _IS_NOTED.put(output, True)
    graph_failure.say_of_graph(output)
    kept_for_backward.note(output)
    code = output.root_tx.f_code

    def examine(module: object) -> None:
        body_states.state_of(code).repeatable = graph_failure.can_be_put_back(output)

    def silence(module: torch.nn.Module) -> None:
        if body_states.state_of(code).repeatable:
            _be_silent(module)

    if frames.ends_at_a_boundary(tx):
        graph_failure.fail_again(output)
    at_the_end(output, Phase.JUDGE, examine)
    at_the_end_of_a_graph(output, Phase.EDIT, silence)
    random_draws.take_before(output)


def _be_silent(module: torch.nn.Module) -> None:
    """Stop graph modules from writing a traceback to ``sys.stderr`` (torch/fx/graph_module.py).

    The call is made again, and need not fail then.
    """
    for each in module.modules():
        if isinstance(each, GraphModule):
            type(each)._wrapped_call = staticmethod(torch.nn.Module.__call__)  # type: ignore
