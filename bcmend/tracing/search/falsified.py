"""The only ways in which bcmend ends a trace to have another one made."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NoReturn

from bcmend.dynamo import compat
from bcmend.tracing.search import assumptions, budget, log, strict
from bcmend.tracing.search.assumptions import Finding


class Falsified(compat.UnspecializeRestartAnalysis):
    """Ends a trace: what it assumed does not hold. Dynamo traces the code again.

    Attributes:
        findings: what does not hold.
    """

    def __init__(self, *findings: Finding) -> None:
        super().__init__(restart_reason=_reason(findings))
        self.findings = findings


class Rewritten(BaseException):
    """Ends a trace: the code was written anew meanwhile, or gets more numbers.

    No ``Exception``: Dynamo takes any of those for "no" where it asks a value something. Raised
    only where a boundary waits for it.

    Attributes:
        findings: what does not hold beside.
        restart_reason: says so to Dynamo.
    """

    def __init__(self, *findings: Finding) -> None:
        self.findings, self.restart_reason = findings, _reason(findings)
        super().__init__(self.restart_reason)


def _reason(findings: Sequence[Finding]) -> str:
    reasons = dict.fromkeys(map(str, findings)) or ["the code is traced anew"]
    return f"bcmend: {'; '.join(reasons)}"


class Endless(RuntimeError):
    """A trace has falsified what it had no right to assume: the search would not end."""


def weaken(*findings: Finding) -> bool:
    """Assume no more what was found not to hold; return whether any of it was until now."""
    fresh = [each for each in findings if assumptions.note(each)]
    for each in fresh:
        log.add_finding(each)
    return bool(fresh)


def falsify(*findings: Finding, cause: BaseException | None = None) -> NoReturn:
    """End the trace, and have the next one assume less.

    Raises:
        Falsified: always, unless nothing of it was assumed.
    """
    if not weaken(*findings) and all(map(log.was_known, findings)):
        error = Endless(f"falsified twice: {'; '.join(map(str, findings))}")
        if strict.IS_ON:
            raise strict.InternalError(str(error)) from cause
        raise error from cause
    budget.note_in_vain()
    raise Falsified(*findings) from cause
