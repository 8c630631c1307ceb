"""Choose between ``torch.where`` and ``torch.cond``, and say why.

Reads the hazards of both arms, what the policy asks for and whether gradients flow; produces a
choice or a refusal. First what is right is found, then what is cheap:

- where is wrong if an operator may fail on the data, or if one draws random numbers while no
  gradients flow (all later numbers would be others than in eager);
- cond is wrong if an operator draws random numbers while gradients flow, since its backward draws
  them again;
- of two that are right, where is taken unless the work that it wastes, on average half of what both
  arms cost, takes longer than a decision (``bcmend.runtime.costs``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from bcmend.runtime.costs import DECISION
from bcmend.runtime.operations import Hazards

__all__ = ["Choice", "weigh"]


@dataclass(frozen=True, slots=True)
class Choice:
    """A lowering, "where" or "cond", and one line that says why it was chosen."""

    how: str
    why: str


Refused = tuple[str, str]


def weigh(
    policy: str, hazards: Sequence[Hazards], gradients: bool, has_results: bool
) -> tuple[Choice | None, Refused | None]:
    """Return the choice, or the slug and the detail of a refusal.

    Args:
        policy: what ``Policy(branch=...)`` says.
        hazards: of both arms.
        gradients: whether gradients can flow into anything that the arms read.
        has_results: whether the branch leaves any tensor behind.
    """
    both = hazards[0]
    for one in hazards[1:]:
        both = both.and_then(one)
    cond_is_wrong = bool(both.random) and gradients
    where_is_wrong = bool(both.partial) or (bool(both.random) and not gradients)
    if not has_results and not both.random:
        if both.partial:
            return Choice("cond", _why_not_where(both)), None
        return Choice("where", "no value differs"), None
    if policy == "where":
        return _wish("where", where_is_wrong, both, cond_is_wrong)
    if policy == "cond":
        return _wish("cond", cond_is_wrong, both, cond_is_wrong)
    if not where_is_wrong and not _is_wasteful(both):
        if cond_is_wrong:
            return None, ("random-under-gradients", both.random)
        return Choice("where", _why_where(both)), None
    if cond_is_wrong:
        return None, ("random-under-gradients", both.random)
    return Choice("cond", _why_not_where(both) if where_is_wrong else _why_dear(both)), None


def _wish(
    how: str, is_wrong: bool, both: Hazards, cond_is_wrong: bool
) -> tuple[Choice | None, Refused | None]:
    if not is_wrong:
        return Choice(how, f"Policy(branch={how!r})"), None
    if cond_is_wrong:
        return None, ("random-under-gradients", both.random)
    return None, ("where-would-speculate", both.partial or both.random)


def _is_wasteful(both: Hazards) -> bool:
    return both.waste / 2 > DECISION


def _why_not_where(both: Hazards) -> str:
    if both.partial:
        return f"{both.partial} may fail on the data"
    return f"{both.random} draws random numbers"


def _why_dear(both: Hazards) -> str:
    if both.waste == math.inf:
        return f"{both.dear} is dear"
    return f"{both.dear} is dear: {_microseconds(both.waste / 2)} wasted, more than a decision"


def _why_where(both: Hazards) -> str:
    if both.dear:
        wasted = _microseconds(both.waste / 2)
        return f"{both.dear} is small: {wasted} wasted, less than a decision; nothing can fail"
    operators = "operator" if both.operators == 1 else "operators"
    return f"{both.operators} cheap {operators}, nothing can fail"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.2g} microseconds"
