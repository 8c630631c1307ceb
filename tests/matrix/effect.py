"""What an effect is: the statements that have it, and how it is looked at."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Effect:
    """An effect of a program, as text.

    The statements may name ``s``, an object with whatever ``state`` gives it, the argument ``x``,
    and the variable ``y``, a tensor that is returned in the end; ``s.w`` is a parameter of one
    item, ``s.t`` a tensor of four zeros, and ``s.log`` an empty list.

    Attributes:
        name: what changes.
        act: the statements.
        look: an expression that shows the effect, from inside and from outside of the call.
        thing: an expression for the object that changes or takes another's place.
        state: statements that prepare ``s``.
        setup: definitions at the top of the module.
        declare: a ``global`` or ``nonlocal`` statement that a function with the effect needs.
        local: the statement that makes the variable ``z`` of the program, if the effect is on it.
        training: whether it needs tensors with a history.
    """

    name: str
    act: str
    look: str = "None"
    thing: str = "s.t"
    state: str = ""
    setup: str = ""
    declare: str = ""
    local: str = ""
    training: bool = False
