"""What bcmend replaces and uses of the running torch, as `python -m bcmend doctor` prints it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bcmend import releases


def lines() -> Iterator[str]:
    """Yield what bcmend replaces in torch, and which of its private names it uses."""
    yield releases.sentence()
    yield from releases.contract()
    if not releases.is_used():
        return
    from bcmend.dynamo import compat, hooks, operators
    from bcmend.patching import torch_check

    torch_check.declare_hooks()
    registry = hooks.REGISTRY
    yield from (f"missing in this torch: {name}" for name in registry.missing())
    for of_trace, title in (
        (False, "methods of torch are replaced while patched code is compiled"),
        (True, "methods are overridden in a subclass, for the objects of such a trace"),
    ):
        rows = [(h.target, h.purpose) for h in registry.hooks if h.is_of_trace is of_trace]
        yield from _table(len({target for target, _ in rows}), title, rows)
    rows = [(each.target, each.purpose) for each in registry.watches]
    yield from _table(len(rows), "functions of torch are watched while anything waits", rows)
    for table, title in (
        (operators.FUNCTIONS, "handlers of functions of torch are added meanwhile"),
        (operators.OPERATORS, "operators of bcmend are known to Dynamo while anything is patched"),
        (operators.KERNELS, "kernels of torch's operators are replaced while anything is patched"),
    ):
        rows = [(each.target, each.purpose) for each in registry.rows if each.table == table]
        yield from _table(len(rows), title, rows)
    rows = [(f"{each.origin}.{each.name}", each.purpose) for each in compat.symbols()]
    yield from _table(len(rows), "private names of torch are used", rows)


def _table(count: int, title: str, rows: Sequence[tuple[str, str]]) -> Iterator[str]:
    yield f"\n{count} {title}"
    width = max(len(name) for name, _ in rows)
    for name, purpose in sorted(rows):
        yield f"  {name.ljust(width)}  {purpose}"
