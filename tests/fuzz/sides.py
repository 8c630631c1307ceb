"""All sides of a program's branches, by one of its calls, as ``bcmend.verify`` takes them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Final

import bcmend
from bcmend.errors import TrialError
from tests.fuzz.programs import Program, factory_of, inputs_of, policy_of

#: For the calls of one program.
_SECONDS: Final = 20.0


def found_on_all_sides(program: Program) -> Iterator[str]:
    """Yield how a call that is told which sides to take differs from eager execution.

    What stock differs in as well is left out, and so is what the inputs show without being told:
    the other oracles compare that, and know what is declared of it.
    """
    subject = factory_of(program)()
    calls = inputs_of(program)()
    call = calls[random.Random(program.text).randrange(len(calls))]
    with bcmend.patched(subject, policy=policy_of(program)):
        try:
            found = bcmend.verify(
                subject,
                *call.arguments,
                runs=1,
                train=program.training,
                sides="all",
                seconds=_SECONDS,
                **call.keywords,
            )
        except (TrialError, bcmend.CallError):
            return
    for each in () if found.sides is None else found.sides.differences:
        if each.forced and not each.stock:
            told = ", ".join(f"{site.rpartition('.')[2]} {side}" for site, side in each.forced)
            yield f"{each.aspect} {each.where}: {each.eager}, mended {each.mended}, told {told}"
