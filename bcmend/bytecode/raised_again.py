"""Handlers that raise again whatever comes to them, and those that may keep an exception."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from bcmend.bytecode.opcodes import (
    COPIES,
    DISCARDS,
    EXITS,
    FILLERS,
    HANDLER_ENDS,
    HANDLERS,
    INTRINSICS,
    LOCAL_STORES,
    RAISES_AGAIN,
    SWAPS,
    begin_with,
)

#: How handlers begin that raise again what comes to them: around a handler, of an inlined
#: comprehension, and around all of a generator; the last two are CPython's since 3.12.
_RAISE_AGAIN: Final = (
    (COPIES, HANDLER_ENDS, RAISES_AGAIN),
    (SWAPS, DISCARDS, SWAPS, LOCAL_STORES),
    (INTRINSICS, RAISES_AGAIN),
)
#: How the handler of a ``with`` begins, which raises again unless the context manager keeps it.
_OF_WITH: Final = (HANDLERS, EXITS)


def may_keep(
    names: Sequence[str],
    handler: int | None,
    handler_over: Callable[[int], int | None],
    *,
    in_with: bool = False,
) -> bool:
    """Return whether a handler, or one outwards of it, may keep an exception.

    Args:
        names: the opcodes of a function.
        handler: where the innermost handler begins; ``None`` if there is none.
        handler_over: gives where the handler over an instruction begins.
        in_with: whether context managers may keep exceptions.
    """
    forms = _RAISE_AGAIN if in_with else (_OF_WITH, *_RAISE_AGAIN)
    while handler is not None:
        window = range(handler, min(handler + 12, len(names)))
        # Ranges may begin with a filler.
        known = [index for index in window if names[index] not in FILLERS]
        raises = [index for index in known if names[index] in RAISES_AGAIN]
        first = [names[index] for index in known]
        if not raises or not any(begin_with(first, each) for each in forms):
            return True
        handler = handler_over(raises[0])
    return False
