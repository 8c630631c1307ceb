"""Whether the running torch calls what bcmend replaces, as `python -m bcmend doctor --live` says.

It takes some twenty seconds, and compiles some ninety small programs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bcmend import releases
from bcmend.liveness import loading, runner
from bcmend.liveness.runner import Ran, RunResult, Seen


def check() -> RunResult | None:
    """Run all programs; ``None`` where bcmend does not work with the running torch.

    Raises ``BcmendError`` while anything is patched, or where torch lacks what is replaced.
    """
    return runner.run(loading.programs()) if releases.is_used() else None


def lines(found: RunResult | None) -> Iterator[str]:
    """Yield what was found, what is wrong first."""
    yield releases.sentence()
    if found is None:
        return
    yield from _section("programs", [(_of_program(each), each.is_right) for each in found.ran])
    yield from _section(
        "hooks, rows and handlers", [(_of_hook(each), bool(each.programs)) for each in found.seen]
    )


def _section(title: str, rows: Sequence[tuple[str, bool]]) -> Iterator[str]:
    wrong = [line for line, is_right in rows if not is_right]
    yield f"\n{len(rows)} {title}, {len(wrong)} of them not as they have to be"
    yield from (f"  {line}" for line in (*wrong, *(line for line, is_right in rows if is_right)))


def _of_program(ran: Ran) -> str:
    if ran.is_right:
        return f"equal   {ran.program.name}"
    uncalled = f"torch has not called {', '.join(ran.not_called)}" if ran.not_called else ""
    return f"WRONG   {ran.program.name}: {'; '.join(filter(None, (ran.difference, uncalled)))}"


def _of_hook(seen: Seen) -> str:
    what = f"{seen.target}  {seen.purpose}"
    if not seen.programs:
        return f"DEAD    {what}"
    return f"called  {what}  ({seen.programs[0]})"
