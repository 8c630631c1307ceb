"""The protocol of values that differ by the arm of a branch that was taken.

A phi is materialised where one tensor, number or container serves for both sides; then it is an
ordinary model of Dynamo's. What is no such thing derives from ``Phi``: a lazy phi, of which both
sides are stored until something reads it; one that is stored to an attribute, where a record puts
the side taken when the graph has run; and a container whose changes are journaled, and made then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn, TypeAlias

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import APPENDS
from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value
from bcmend.tracing.search import budget
from bcmend.tracing.search.assumptions import Finding
from bcmend.tracing.sites.site_table import LiveSite

#: The merged tensors of a branch.
Merged: TypeAlias = Sequence[Value]
#: Makes a value of the merged tensors of a branch.
Build: TypeAlias = Callable[[Merged], Value]
#: Returns a side of a phi as it is now.
Keep: TypeAlias = Callable[[Value], Value]


class Phi:
    """A value that no single model of Dynamo's stands for. Derive it before that model's class."""

    def adopt_into(self, merger: Any, then_side: bool | None) -> Build:
        """Plan to bring the value from an arm into the trace around it.

        ``merger`` is that of the branch; ``then_side`` says for which arm, ``None`` for either.
        """
        raise NotImplementedError

    def as_recorded(self, reader: LiveSite, keep: Keep) -> Value:
        """Return the value for a record of ``reader``; ``keep`` gives each side as it is now."""
        raise NotImplementedError


class OpenContents:
    """What a phi for a container has in common: Dynamo's model of it has the contents in ``items``.

    What looks at them ends the trace; a comprehension that appends one more does not look.
    """

    @property
    def output(self) -> compat.OutputGraph:
        """Return the graph of the trace that it happened in."""
        raise NotImplementedError

    def ask(self) -> NoReturn:
        """Have the frame traced again, with contents that do not depend on the data."""
        raise NotImplementedError

    def appended_to(self, tx: compat.Tracer) -> Any:
        """Return the list to which an instruction appends the next item."""
        raise NotImplementedError

    @property
    def items(self) -> Any:
        """The contents, as far as they are known."""
        # While Dynamo writes code they are those before the records of the call are delivered.
        if self.output.should_exit:
            return vars(self)["items"]
        frame: Any = self.output.current_tx
        instruction = frame.current_instruction
        if operation(instruction) in APPENDS and frame.stack[-instruction.arg] is self:
            return self.appended_to(frame)
        self.ask()

    @items.setter
    def items(self, value: Any) -> None:
        vars(self)["items"] = value

    def __repr__(self) -> str:
        return type(self).__name__

    debug_repr = __str__ = __repr__

    def is_python_constant(self) -> bool:
        return False

    def as_python_constant(self) -> Any:
        raise NotImplementedError


#: What is assumed of values in two forms, with the nodes of their conditions.
_ASSUMED: Final[Slot[list[tuple[Finding, Any]]]] = Slot(list, rolls_back=False)


def note_left_apart(output: compat.OutputGraph, assumed: Finding, condition: Value) -> None:
    """Note what a trace assumes of a value that has two forms by a condition."""
    _ASSUMED.of(output).append((assumed, condition.as_proxy().node))


def left_apart_beside(output: compat.OutputGraph, found: Finding) -> list[Finding]:
    """Return what is assumed of other values by the condition of one, once the search is over.

    Code is split where such a value is read, and what the halves leave has two forms again. When no
    code is split any more, what was split for a condition is given up in one trace.
    """
    if not budget.is_over():
        return []
    assumed = _ASSUMED.of(output)
    conditions = {node for each, node in assumed if each == found}
    return list(dict.fromkeys(each for each, node in assumed if node in conditions))
