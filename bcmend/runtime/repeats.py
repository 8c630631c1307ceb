"""Whether a call whose graph failed may be made a second time.

Reads the finished graph of a frame that makes records. A second run is equal to a first one if what
the first changed in place can be put back; random numbers are drawn once more, from the same state.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.fx import GraphModule

from bcmend.runtime import backoff, failing_graphs, frames, random_numbers
from bcmend.runtime.per_trace import at_the_end

__all__ = ["note"]


def note(tx: Any) -> None:
    """Have the graph being traced examined when it is complete."""
    output = tx.output
    if tx.export or getattr(output, "_bcmend_noted", False):
        return
    output._bcmend_noted = True
    code = output.root_tx.f_code

    def examine() -> None:
        state = backoff.state_of(code)
        state.repeatable = failing_graphs.can_be_put_back(output) and state.repeatable is not False

    def silence(module: torch.nn.Module) -> None:
        if backoff.state_of(code).repeatable:
            _be_silent(module)

    if frames.ends_at_a_boundary(tx):
        failing_graphs.fail_again(output)
    at_the_end(output, examine)
    output.register_finalizer_fns.append(silence)
    random_numbers.take_before(output)


def _be_silent(module: torch.nn.Module) -> None:
    """Have graphs that fail write nothing: the call is made again, and need not fail.

    A graph module that torch runs as it is writes its own traceback to ``sys.stderr``
    (torch/fx/graph_module.py).
    """
    for each in module.modules():
        if isinstance(each, GraphModule):
            type(each)._wrapped_call = staticmethod(torch.nn.Module.__call__)  # type: ignore
