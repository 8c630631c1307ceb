"""Lists and sets that stand in a tuple of a module.

Dynamo takes a tuple that an attribute of a module holds for a constant where all that is in it can
be written as a literal, as a list of numbers can. What a call does to such a list is lost then, and
it is another one than the list that the program has elsewhere. So the items of such a tuple are
looked at one by one, as those of any other tuple. The method that takes it for a constant stands in
a table by type, which torch makes once; so the method that reads the table is hooked.

Works round ``VariableBuilder.wrap_listlike`` (torch/_dynamo/variables/builder.py). Reproduced on
torch 2.13.0 and 2.15.0; see docs/upstream.md.
"""

from __future__ import annotations

from typing import Any

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods


@hooks.around(
    compat.VariableBuilder, methods.WRAP, "lists in tuples of modules", gate=hooks.of_builder
)
def _wrap(inner: Any, self: Any, value: Any) -> Any:
    if type(value) is not tuple or not _holds_a_list(value):
        return inner(self, value)
    self.install_guards(compat.GuardBuilder.SEQUENCE_LENGTH)
    items = [
        compat.LazyVariableTracker.create(
            each, compat.GetItemSource(self.source, place), tx=self.tx
        )
        for place, each in enumerate(value)
    ]
    return compat.TupleVariable(items, source=self.source)


def _holds_a_list(value: tuple[Any, ...]) -> bool:
    """Return whether a tuple, or one in it, holds a list or a set."""
    return any(
        type(each) in (list, set) or (type(each) is tuple and _holds_a_list(each)) for each in value
    )
