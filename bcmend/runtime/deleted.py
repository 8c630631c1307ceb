"""Arguments that a frame has deleted before its graph breaks.

Where Dynamo has Python go on in the same frame, behind what it has compiled, the arguments are
still there: ``del`` was traced, and nothing of it left. They are deleted there.
"""

from __future__ import annotations

from typing import Any

from torch._dynamo.bytecode_transformation import create_instruction, create_jump_absolute
from torch._dynamo.symbolic_convert import InstructionTranslatorBase

from bcmend.runtime import frames, substitution

__all__ = ["install"]


def _with_deletions(before: Any) -> Any:
    """Return what has Python go on at an instruction of a frame being traced."""

    def step_graph_break(self: Any, going_on: Any) -> None:
        known = {*self.symbolic_locals, *self.f_code.co_cellvars}
        deleted = [name for name in frames.arguments_of(self.f_code) if name not in known]
        if deleted and self.parent is None and substitution.is_patched(self) is not None:
            deletions = [create_instruction("DELETE_FAST", argval=name) for name in deleted]
            self.instructions = [
                *self.instructions,
                *deletions,
                create_jump_absolute(going_on),
            ]
            going_on = deletions[0]
        before(self, going_on)

    return step_graph_break


def install() -> None:
    """Have arguments deleted that the program has deleted."""
    InstructionTranslatorBase.step_graph_break = _with_deletions(  # type: ignore[method-assign]
        InstructionTranslatorBase.step_graph_break
    )
