"""Arguments that a frame has deleted before its graph breaks.

Where Python continues in the same frame behind the compiled part, the arguments are still there:
``del`` was traced, and left no code. They are deleted there.
"""

from __future__ import annotations

from typing import Any

from bcmend.dynamo import compat, frames, hooks


@hooks.around(
    compat.InstructionTranslatorBase,
    "step_graph_break",
    "arguments that are deleted before a graph break",
    gate=hooks.first,
)
def _step_graph_break(inner: Any, self: Any, next_instruction: Any) -> None:
    known = {*self.symbolic_locals, *self.f_code.co_cellvars}
    deleted = [name for name in frames.arguments_of(self.f_code) if name not in known]
    if deleted and self.parent is None:
        deletions = [compat.create_instruction("DELETE_FAST", argval=name) for name in deleted]
        jump = compat.create_jump_absolute(next_instruction)
        self.instructions = [*self.instructions, *deletions, jump]
        next_instruction = deletions[0]
    inner(self, next_instruction)
