"""Remove the paths behind a swallowed exception, for ``with`` blocks that swallow none.

Behind a block that may swallow an exception, every variable bound in it may be unbound, as far as
bytecode shows, and a branch that reads one would be refused. Most context managers in model code
are known by name never to swallow one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bcmend.analysis.conditions import called_name
from bcmend.analysis.facts import Facts, facts_of
from bcmend.bytecode import emit
from bcmend.bytecode.opcodes import (
    ASYNC_BLOCK_ENTRIES,
    BLOCK_ENTRIES,
    CALLS,
    EXITS,
    HANDLERS,
    RAISES_AGAIN,
    TRUE_JUMPS,
    TRUTHS,
    begin_with,
    row,
)
from bcmend.knowledge.callable_names import NEVER_SWALLOWING
from bcmend.rewrite.passes.rearrange import with_others, without_unreachable

_FOLLOW_AT_MOST: Final = 3
_WITHS: Final = BLOCK_ENTRIES - ASYNC_BLOCK_ENTRIES
#: The block that a handler of a ``with`` begins with.
_HANDLER: Final = (HANDLERS, EXITS, TRUE_JUMPS)


def without_swallowing(facts: Facts) -> Facts:
    """Return facts about the function without the paths that are never taken."""
    tests = {
        test
        for index, instruction in enumerate(facts.instructions)
        if instruction.op in _WITHS and _never_swallows(facts, facts.operand(index, -1))
        for test in _tests_behind(facts, index)
    }
    # Dropping what __exit__ returned lets control fall through to where it is raised again.
    (discard,), (nothing,) = emit.pop_top(), emit.nothing()
    truths = {test - 1 for test in tests if facts.instructions[test - 1].op in TRUTHS}
    others = dict.fromkeys(tests, discard) | dict.fromkeys(truths, nothing)
    dropped = with_others(facts.function, others)
    return facts_of(without_unreachable(dropped)) if tests else facts


def asks_for_swallowing(facts: Facts, jump: int) -> bool:
    """Return whether a jump tests what ``__exit__`` returned for an exception: never a tensor."""
    return begin_with(_ops(facts, max(jump - 2, 0), jump)[-1:], [EXITS])


def _ops(facts: Facts, start: int, end: int) -> list[str]:
    return [each.op for each in facts.instructions[start:end] if each.op not in TRUTHS]


def _tests_behind(facts: Facts, block: int) -> list[int]:
    """Return the jump on what the ``__exit__`` of a block returned for an exception."""
    handler = facts.graph.handler_block(facts.graph.block_of[block + 1])
    if handler is None:
        return []
    bounds = facts.graph.blocks[handler]
    ops = _ops(facts, bounds.start, bounds.end)
    is_exit = len(ops) == len(_HANDLER) and begin_with(ops, _HANDLER)
    raises = facts.instructions[bounds.end].op in RAISES_AGAIN
    return [bounds.end - 1] if is_exit and raises else []


def _never_swallows(facts: Facts, makers: Iterable[int], follow: int = _FOLLOW_AT_MOST) -> bool:
    """Return whether a context manager is made by calls that are known."""
    known = [_is_known(facts, maker, follow) for maker in makers]
    return bool(known) and all(known)


def _is_known(facts: Facts, maker: int, follow: int) -> bool:
    if maker < 0 or follow == 0:
        return False
    instruction = facts.instructions[maker]
    if row(instruction.op).reads == "local" and instruction.arg not in facts.argument_names:
        stores = facts.stores.get(instruction.arg, ())
        operands = (facts.operand(store, -1) for store in stores)
        return all(_never_swallows(facts, operand, follow - 1) for operand in operands)
    return instruction.op in CALLS and called_name(facts, maker) in NEVER_SWALLOWING
