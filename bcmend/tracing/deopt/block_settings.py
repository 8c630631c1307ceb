"""Settings that the blocks in a graph set at their starts and set back at their ends.

A back end that runs the nodes of a graph one by one has no more of a ``with`` than these two calls:
where an operation between them fails, the block is not left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

import torch
from torch.fx import Graph

from bcmend.dynamo import compat


def nesting_of_autocast() -> int:
    """Return in how many blocks of autocast this thread is."""
    torch.autocast_increment_nesting()
    return int(torch.autocast_decrement_nesting())


def set_nesting_of_autocast(value: int) -> None:
    """Have this thread be in ``value`` blocks of autocast."""
    while nesting_of_autocast() > value:
        torch.autocast_decrement_nesting()
    while nesting_of_autocast() < value:
        torch.autocast_increment_nesting()


def _disable_hooks_of_saved_tensors(message: str | None) -> None:
    if message is None:
        compat._saved_tensors_hooks_enable()
    else:
        compat._saved_tensors_hooks_disable(message)


#: Getter and setter of each.
_TABLE: Final[tuple[tuple[Callable[[], Any], Any], ...]] = (
    (torch.is_grad_enabled, compat._set_grad_enabled_now),
    (compat._saved_tensors_hooks_get_disabled_error_message, _disable_hooks_of_saved_tensors),
    *(
        (get, put)
        for name, get, put in compat.PRIVATE_SETTINGS
        if name in ("forward gradients", "gradients required in place")
    ),
    (nesting_of_autocast, set_nesting_of_autocast),
    (torch.is_autocast_cache_enabled, torch.set_autocast_cache_enabled),
    *(
        (partial(get, device), partial(put, device))
        for device in ("cpu", "cuda")
        for get, put in (
            (torch.is_autocast_enabled, torch.set_autocast_enabled),
            (torch.get_autocast_dtype, torch.set_autocast_dtype),
        )
    ),
)

_STARTS: Final[frozenset[Any]] = frozenset([*compat.PAIRED_SETTERS, compat._enter_autocast])


def are_set_in(graph: Graph) -> bool:
    """Return whether there is a block in a graph that sets one of these."""
    return any(node.target in _STARTS for node in graph.nodes)


def read() -> list[Any]:
    """Return the values that they have now."""
    return [get() for get, _ in _TABLE]


def put_back(values: Sequence[Any]) -> None:
    """Give them the values of ``read()``."""
    for (_, put), value in zip(_TABLE, values, strict=True):
        put(value)
