"""Which ``with`` blocks never swallow an exception.

Behind a block that may, every variable bound in it may be unbound, as far as bytecode shows. Reads
facts; produces the handlers of the blocks that are known by the name of what they enter.
"""

from __future__ import annotations

from collections.abc import Iterable

from bcmend.analysis.conditions import Evidence, called_name
from bcmend.cfg.graph import Graph
from bcmend.codeobj.opcodes import row
from bcmend.torch_knowledge import NEVER_SWALLOWING

__all__ = ["never_swallowing"]

_FOLLOW_AT_MOST = 3


def never_swallowing(graph: Graph, evidence: Evidence) -> frozenset[int]:
    """Return the blocks of ``graph`` to which exceptions go that are raised again there."""
    found = set()
    for index, instruction in enumerate(evidence.instructions):
        if instruction.op != "BEFORE_WITH" or graph.block_of[index] not in graph.reachable:
            continue
        handler = graph.handler_block(graph.block_of[index + 1])
        if handler is not None and _all_known(evidence, evidence.operand(index, -1)):
            found.add(handler)
    return frozenset(found)


def _all_known(evidence: Evidence, makers: Iterable[int], follow: int = _FOLLOW_AT_MOST) -> bool:
    known = list(makers)
    return bool(known) and all(_is_known(evidence, maker, follow) for maker in known)


def _is_known(evidence: Evidence, maker: int, follow: int) -> bool:
    if maker < 0 or follow == 0:
        return False
    instruction = evidence.instructions[maker]
    if row(instruction.op).reads == "local":
        name = instruction.arg
        stores = evidence.stores.get(name, ())
        return name not in evidence.argument_names and all(
            _all_known(evidence, evidence.operand(store, -1), follow - 1) for store in stores
        )
    is_call = instruction.op.startswith("CALL")
    return is_call and called_name(evidence, maker) in NEVER_SWALLOWING
