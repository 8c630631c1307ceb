"""Choose between ``torch.where`` and ``torch.cond``, and say why.

- where is wrong if an operator may fail on the data, or if one draws random numbers while no
  gradients flow (all later numbers would differ from eager's);
- cond is wrong if an operator draws random numbers while gradients flow, since its backward draws
  them again, or if one has a state of its own, which it would change again; and it has no backward
  of recurrent layers and of transforms of ``torch.func``, and returns no tensor of which an arm
  alone knows the sizes;
- cond is wrong if gradients flow under compiled autograd, which cannot trace its backward, be it
  written by hand;
- if both are right, where is taken unless half of what both arms cost takes longer than a decision
  (``bcmend.tracing.effects.costs``).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import reduce

from bcmend.tracing.effects.costs import DECISION
from bcmend.tracing.effects.hazards import Hazards
from bcmend.tracing.sites.refusal import Refusal


class Operator(StrEnum):
    """What a branch becomes; named as the policy and the report name it."""

    WHERE = "where"
    COND = "cond"


@dataclass(frozen=True, slots=True)
class Choice:
    """What a branch becomes, and one line that says why it was chosen."""

    how: Operator
    why: str


def weigh(
    policy: str,
    hazards: Sequence[Hazards],
    gradients: bool,
    has_results: bool,
    only_where: str = "",
    *,
    traces_backwards: bool = False,
) -> Choice:
    """Return the choice. Raises ``Refusal`` where no lowering is right that the policy allows.

    ``hazards`` are those of both arms; ``gradients`` says whether gradients can flow into what the
    arms read, ``has_results`` whether the branch has live-outs that are tensors; ``only_where``
    says what ``torch.cond`` cannot do that the branch needs, ``traces_backwards`` whether compiled
    autograd is on.
    """
    both = reduce(Hazards.and_then, hazards)
    if gradients and traces_backwards:
        return _without_cond(both)
    cond_is_wrong = bool(both.random or both.hidden) and gradients
    where_is_wrong = bool(both.partial) or (bool(both.random) and not gradients)
    if not has_results and not both.random:
        if both.partial:
            return Choice(Operator.COND, _why_not_where(both))
        return Choice(Operator.WHERE, "no value differs")
    is_wrong = {Operator.WHERE: where_is_wrong, Operator.COND: cond_is_wrong}
    for operator, wrong in is_wrong.items():
        if operator == policy and not wrong:
            return Choice(operator, f"Policy(branch={policy!r})")
    if both.hidden and gradients:
        raise Refusal("hidden-state", both.hidden)
    if cond_is_wrong:
        raise Refusal("random-under-gradients", both.random)
    if policy == Operator.WHERE:
        raise Refusal("where-would-speculate", both.partial or both.random)
    if where_is_wrong:
        return Choice(Operator.COND, _why_not_where(both))
    return _by_cost(both, only_where)


def _by_cost(both: Hazards, only_where: str) -> Choice:
    """Return the choice where both lowerings are right."""
    if only_where:
        return Choice(Operator.WHERE, only_where)
    if both.waste / 2 > DECISION:
        return Choice(Operator.COND, _why_expensive(both))
    return Choice(Operator.WHERE, _why_where(both))


def _without_cond(both: Hazards) -> Choice:
    if both.partial or both.random:
        what = both.partial or both.random
        raise Refusal("where-would-speculate", f"{what}, under compiled autograd")
    return Choice(Operator.WHERE, "compiled autograd traces no torch.cond")


def _why_not_where(both: Hazards) -> str:
    if both.partial:
        return f"{both.partial} may fail on the data"
    return f"{both.random} draws random numbers"


def _why_expensive(both: Hazards) -> str:
    found = f"{both.expensive} is expensive"
    if both.waste == math.inf:
        return found
    return f"{found}: {_microseconds(both.waste / 2)} wasted, more than a decision"


def _why_where(both: Hazards) -> str:
    if both.expensive:
        wasted = _microseconds(both.waste / 2)
        return f"{both.expensive} is small: {wasted} wasted, less than a decision; nothing can fail"
    operators = "operator" if both.operators == 1 else "operators"
    return f"{both.operators} cheap {operators}, nothing can fail"


def _microseconds(seconds: float) -> str:
    return f"{seconds * 1e6:.2g} microseconds"
