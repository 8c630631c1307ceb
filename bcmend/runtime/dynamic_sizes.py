"""Operators whose result is as long as the data say, captured in mended code.

``nonzero``, ``torch.where(mask)``, ``x[mask]`` and their kin end Dynamo's graph, unless its shape
environment allows for sizes that nobody knows while the frame is traced. In mended code, while a
call is captured whole, the environment of that one trace allows for them, from the first such
operator on; no configuration is changed. Torch may have to assume something of such a size, say
that two of them are equal, and asserts that in the graph. Unless the user asked for one graph
(``fullgraph=True``, where stock Dynamo does the same), a graph in which it does is traced again
with the breaks of stock Dynamo.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch._dynamo.symbolic_convert import InstructionTranslator
from torch._ops import HigherOrderOperator
from torch.fx import GraphModule, Node
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from bcmend.runtime import backoff, repeats, scalars
from bcmend.runtime.watches import SiteChanged

__all__ = ["install", "is_unknown"]


def is_unknown(size: Any) -> bool:
    """Whether a size is one that only the data tell."""
    return bool(free_unbacked_symbols(size))


_TORCHS_ANSWER: Final = ShapeEnv.allow_dynamic_output_shape_ops


def _allows(environment: ShapeEnv) -> bool:
    if environment.settings.allow_dynamic_output_shape_ops:
        return True
    translator = _translator()
    if translator is None or translator.output.shape_env is not environment:
        return False
    if not scalars.may_take(translator):
        return False
    _begin(translator, environment)
    return True


def _translator() -> Any:
    try:
        return InstructionTranslator.current_tx()
    except AttributeError:  # nothing is being traced
        return None


def _begin(tx: Any, environment: ShapeEnv) -> None:
    """Allow for such sizes in this trace, and look at what torch assumes of them at its end."""
    environment.settings = dataclasses.replace(
        environment.settings, allow_dynamic_output_shape_ops=True
    )
    repeats.note(tx)  # torch asserts in the graph what it assumes of a size, in its own words
    state = backoff.state_of(tx.output.root_tx.f_code)
    state.takes_numbers = True

    def finish(module: GraphModule) -> None:
        if _guesses(module) or not _asserted(environment).isdisjoint(_made_in(module)):
            state.leave_numbers()
            raise SiteChanged(restart_reason="bcmend: torch assumes something of a size")

    tx.output.register_finalizer_fns.append(finish)


def _asserted(environment: ShapeEnv) -> set[Any]:
    """Return the symbols of which torch asserts more than the range that it knows."""
    found = environment.deferred_runtime_asserts.values()
    return {symbol for known in found for each in known for symbol in each.expr.free_symbols}


def _guesses(module: GraphModule) -> bool:
    """Whether torch has taken a size for another than 1 without asserting it, in ``squeeze``."""
    return any(
        node.target in ("squeeze", torch.squeeze) and _may_drop_unknown(node)
        for node in _nodes_in(module)
    )


def _may_drop_unknown(node: Node) -> bool:
    """Whether a dimension that is dropped if its size is 1 has a size that only the data tell."""
    source, *dimensions = node.args
    example = source.meta.get("example_value") if isinstance(source, Node) else None
    if not isinstance(example, torch.Tensor):
        return False
    given: Any = dimensions[0] if dimensions else node.kwargs.get("dim", range(example.dim()))
    each = (given,) if isinstance(given, int) else given
    return not isinstance(each, Iterable) or any(is_unknown(example.shape[one]) for one in each)


def _nodes_in(module: GraphModule) -> Iterator[Node]:
    """Yield the nodes of a graph and of the graphs in it."""
    for part in module.modules():
        if isinstance(part, GraphModule):
            yield from part.graph.nodes


def _made_in(module: GraphModule) -> set[Any]:
    """Return the symbols of the sizes that operators in a graph and the graphs in it have made."""
    return {
        symbol
        for node in _nodes_in(module)
        if not (node.target == "item" or isinstance(node.target, HigherOrderOperator))
        for symbol in node.meta.get("unbacked_bindings") or ()
    }


def install() -> None:
    """Let torch ask here first."""
    ShapeEnv.allow_dynamic_output_shape_ops = property(_allows)  # type: ignore[assignment, method-assign]
