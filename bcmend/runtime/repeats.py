"""Whether a call whose graph failed may be made a second time.

Reads the finished graph of a frame that makes records. A second run is equal to a first one if the
first changed no argument in place and drew no random numbers.
"""

from __future__ import annotations

from typing import Any, Final

from torch.fx import Node

from bcmend.runtime import backoff

__all__ = ["is_repeatable", "may_draw", "note"]

#: Parts of the names of functions and methods that draw random numbers.
_RANDOM: Final = (
    "rand", "dropout", "bernoulli", "multinomial", "normal_", "uniform_", "exponential_", "poisson",
    "rrelu", "geometric_", "cauchy_", "random_", "gumbel",
)  # fmt: skip


def note(tx: Any) -> None:
    """Have the graph being traced examined when it is complete."""
    output = tx.output
    if getattr(output, "_bcmend_noted", False):
        return
    output._bcmend_noted = True
    code = output.root_tx.f_code

    def examine(module: Any) -> None:
        state = backoff.state_of(code)
        state.repeatable = is_repeatable(output, module) and state.repeatable is not False

    output.register_finalizer_fns.append(examine)


def is_repeatable(output: Any, module: Any) -> bool:
    """Whether a run of a complete graph leaves no trace but its results."""
    return (
        not output.root_tracer.has_input_mutation().has_mutation
        and not output.side_effects.tensor_hooks
        and not any(may_draw(node) for graph in _graphs(module) for node in graph.nodes)
    )


def _graphs(module: Any) -> list[Any]:
    return [each.graph for each in module.modules() if hasattr(each, "graph")]


def may_draw(node: Node) -> bool:
    """Whether a node may draw random numbers, going by its name and arguments."""
    if node.op not in ("call_function", "call_method"):
        return False
    name = node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    if name == "scaled_dot_product_attention":
        return bool(node.kwargs.get("dropout_p", 0.0)) or len(node.args) > 4
    if not any(part in name for part in _RANDOM):
        return False
    switched_off = node.kwargs.get("training") is False or node.args[2:3] == (False,)
    return not ("dropout" in name and switched_off)
