"""Where records go while a frame is traced.

The frame that a boundary runs has the buffer of the call as its last argument, under a name that
no source can spell. Records of that frame and of all that it inlines are appended to it; Dynamo
replays the appends after the graph. Where the graph may break, other code runs before the call has
ended, so the records of each graph are delivered as soon as it has run. Inside an arm, records
gather in a list of the tracer's own until the branch is lowered. One trace, one stack of open
lists, kept on its ``OutputGraph``.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch._dynamo.side_effects import SideEffects
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import (
    ConstantVariable,
    ListVariable,
    TensorVariable,
    TupleVariable,
    UserDefinedObjectVariable,
)
from torch._dynamo.variables.base import ValueMutationNew, VariableTracker
from torch._dynamo.variables.dicts import DictViewVariable
from torch._dynamo.variables.misc import StringFormatVariable
from torch._dynamo.variables.tensor import SymNodeVariable
from torch._dynamo.variables.user_defined import OrderedDictVariable

from bcmend.names import BUFFER
from bcmend.runtime import (
    calls,
    containers,
    copies,
    frames,
    histories,
    inline,
    records,
    repeats,
    side_exits,
    watches,
)
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite

__all__ = [
    "Draft",
    "add_inline",
    "append",
    "function_of_records",
    "is_open",
    "open_arm",
    "records_until_now",
    "shows_moments",
    "snapshot",
]


@dataclass(frozen=True, slots=True)
class Draft:
    """A record as the tracer has it.

    ``predicate`` is a 0-d boolean tensor, or ``None`` for a record that is always delivered;
    ``raises`` says that the action has to end in an exception; ``is_exit`` makes of it a
    side exit, which does without an action, and ``is_only_way`` that no record can take its place;
    ``is_trial`` that the exit is taken if the action fails;
    ``is_statement`` that it stands for output or a
    check of the program, which may run inside the graph.
    """

    site: LiveSite
    action: VariableTracker
    predicate: VariableTracker | None
    inputs: VariableTracker
    raises: bool = False
    is_exit: bool = False
    is_only_way: bool = False
    is_trial: bool = False
    is_statement: bool = False


def _stack(tx: Any) -> list[list[Draft]]:
    return kept(tx.output, "open_arms", list)


def _buffer(tx: Any) -> Any:
    """Return the buffer of the root frame, or make one that is delivered when its graph has run."""
    output = tx.output
    given = output.root_tx.symbolic_locals.get(BUFFER)
    if given is not None and frames.is_captured_whole(tx):
        return given.realize()
    made = getattr(output, "_bcmend_buffer", None)
    if made is None:
        made = output._bcmend_buffer = ListVariable([], mutation_type=ValueMutationNew())
        source = AttrSource(tx.import_source(records.__name__), "OUTLET")
        outlet = VariableTracker.build(tx, records.OUTLET, source).realize()
        output.side_effects.store_attr(outlet, "records", made)
        _replay_last(output.side_effects, outlet)
    return made


def _replay_last(effects: SideEffects, outlet: VariableTracker) -> None:
    """Have ``outlet`` stored to when all else that the graph changed is in its place.

    Dynamo replays changes in the reverse of the order in which it met the objects.
    """
    others = effects.id_to_variable
    first = {key: each for key, each in others.items() if each is outlet}
    effects.id_to_variable = {**first, **others}


def is_open(tx: Any) -> bool:
    """Whether a record made now would reach somebody."""
    return not tx.export


@contextmanager
def open_arm(tx: Any) -> Iterator[list[Draft]]:
    """Gather the records of an arm."""
    drafts: list[Draft] = []
    _stack(tx).append(drafts)
    try:
        yield drafts
    finally:
        _stack(tx).pop()


def append(tx: Any, draft: Draft) -> None:
    """Add a record to the innermost open list."""
    stack = _stack(tx)
    if stack:
        stack[-1].append(draft)
        return
    if draft.is_exit:
        side_exits.add(
            tx,
            draft.site,
            draft.predicate,
            at_boundary=frames.ends_at_a_boundary(tx),
            is_only_way=draft.is_only_way,
            trial=(draft.action, draft.inputs) if draft.is_trial else None,
        )
        return
    if draft.is_statement:
        if _run_inside(tx, draft):
            return
        inline.note_deferred(tx)
        if not frames.ends_at_a_boundary(tx):
            side_exits.keep_output(tx)
    predicate = constant(None) if draft.predicate is None else draft.predicate
    repeats.note(tx)
    key, raises = constant(draft.site.key), constant(draft.raises)
    record = TupleVariable([key, predicate, raises, draft.action, draft.inputs])
    _buffer(tx).call_method(tx, "append", [record], {})


def records_until_now(tx: Any) -> Iterator[VariableTracker]:
    """Yield what each record holds that has been made so far, in this arm and outside of it."""
    output = tx.output
    given = output.root_tx.symbolic_locals.get(BUFFER)
    for buffer in (given, getattr(output, "_bcmend_buffer", None)):
        if buffer is not None:
            yield from (record.items[-1] for record in buffer.realize().items)
    for drafts in _stack(tx):
        yield from (draft.inputs for draft in drafts)


def add_inline(tx: Any, draft: Draft) -> bool:
    """Have a statement of the main graph run at its place, if that is wanted."""
    return not _stack(tx) and _run_inside(tx, draft)


def _run_inside(tx: Any, draft: Draft) -> bool:
    return not tx.export and inline.add(
        tx, draft.site, draft.action, draft.inputs, draft.predicate, raises=draft.raises
    )


def function_of_records(tx: Any, name: str) -> VariableTracker:
    """Return Dynamo's model of a function of ``records``."""
    source = AttrSource(tx.import_source(records.__name__), name)
    function: VariableTracker = VariableTracker.build(tx, getattr(records, name), source)
    return function


class CannotSnapshot(Exception):
    """A value whose later changes could not be told from its present."""


def snapshot(tx: Any, site: LiveSite, value: VariableTracker) -> VariableTracker:
    """Return ``value`` as it is now, whatever is changed later.

    Containers are copied. A tensor is copied only where the site says so: at first it is watched,
    and the trace is made again with copies if it turns out to be changed later.
    """
    value = value.realize()
    if hasattr(value, "as_recorded"):  # a stand-in of ``unmerged``, which builds on this module
        kept: VariableTracker = value.as_recorded(site, lambda side: snapshot(tx, site, side))
        return kept
    if isinstance(value, TensorVariable):
        return _snapshot_tensor(tx, site, value)
    copied = _snapshot_container(tx, site, value)
    if copied is not None:
        return copied
    if not (
        isinstance(value, (ConstantVariable, SymNodeVariable))
        or value.source is not None
        or value.is_python_constant()
        or _can_be_rebuilt(value)
    ):
        raise CannotSnapshot(type(value).__name__)
    if not shows_moments(tx, site):
        _watch_object(tx, site, value)
    return value


def shows_moments(tx: Any, site: LiveSite) -> bool:
    """Whether what the text of an object shows is put back when a record of ``site`` is delivered.

    Not for a check, and not for output that the graph writes itself, which shows the present.
    """
    return site.kind == "output" and not inline.is_wanted(tx, site, raises=False)


def _watch_object(tx: Any, site: LiveSite, value: VariableTracker) -> None:
    """Have a site withdrawn if an object whose text shows its state is changed later."""
    if isinstance(value, UserDefinedObjectVariable) and _shows_its_state(value.value_type):
        what = f"{value.value_type.__qualname__}, which is changed later"
        watches.add_object(tx, value, lambda: site.withdraw("cannot-snapshot", what))


def _shows_its_state(cls: Any) -> bool:
    """Whether the text that stands for an object depends on its attributes, as far as is known."""
    is_plain = any(cls.__repr__ is each.__repr__ for each in _PLAIN)
    own = (name for name in ("__str__", "__format__") if getattr(cls, name) is not _OBJECT[name])
    return not is_plain or any(own)


#: Classes whose text does not depend on what is stored to an attribute in a forward.
_PLAIN: Final[tuple[Any, ...]] = (
    object,
    torch.nn.Module,
    logging.Logger,
    logging.LoggerAdapter,
)
_OBJECT: Final = vars(object)


def _snapshot_container(tx: Any, site: LiveSite, value: Any) -> VariableTracker | None:
    """Return a copy of a container, or of a text that is still to be formatted."""
    items = containers.items_in(value)
    if items is not None:
        return containers.made_of(value, [snapshot(tx, site, item) for item in items])
    if isinstance(value, DictViewVariable):
        inner: Any = snapshot(tx, site, value.dv_dict)
        return type(value)(inner)
    if type(value) is OrderedDictVariable and value.python_type() is OrderedDict:
        return _snapshot_dictionary(tx, site, value)
    if isinstance(value, StringFormatVariable):
        return StringFormatVariable.create(
            value.format_string,
            [_unmarked(snapshot(tx, site, item)) for item in value.sym_args],
            {key: _unmarked(snapshot(tx, site, item)) for key, item in value.sym_kwargs.items()},
        )
    return None


def _snapshot_dictionary(tx: Any, site: LiveSite, value: Any) -> VariableTracker:
    """Return a copy of an ordered dictionary."""
    copied: VariableTracker = value.call_method(tx, "copy", [], {})
    for key, item in list(value._base_vt.items.items()):
        kept = snapshot(tx, site, item)
        if kept is not item:
            copied.call_method(tx, "__setitem__", [key.vt, kept], {})
    return copied


def _can_be_rebuilt(value: VariableTracker) -> bool:
    """Objects made in the traced code that Dynamo builds again after the graph."""
    return type(value).__name__ in (
        "NestedUserFunctionVariable",
        "UserDefinedObjectVariable",
        "UserDefinedExceptionObjectVariable",
        "ExceptionVariable",
        "NamedTupleVariable",
        "SizeVariable",
        "SliceVariable",
        "RangeVariable",
        "DefaultDictVariable",
        "OrderedDictVariable",
        "UserDefinedDictVariable",
        "SetVariable",
        "FrozensetVariable",
    )


def _snapshot_tensor(tx: Any, site: LiveSite, value: TensorVariable) -> VariableTracker:
    history = None
    if shows_moments(tx, site) and (value.source is None or copies.is_due(tx, site)):
        history = histories.name_of(example_of(value))
    kept = copies.unchanged(tx, site, value)
    if history is None:
        return kept
    kept = calls.method(tx, "detach", kept)  # no zeros flow back into what nobody but output reads
    if _stack(tx):  # an arm must not return what shares memory with what it was given
        kept = calls.method(tx, "clone", kept)
    return TupleVariable([constant(histories.MARK), constant(history), kept])


def _unmarked(kept: VariableTracker) -> VariableTracker:
    """Return a tensor alone, without the name of its history, for a text that Dynamo formats."""
    if isinstance(kept, TupleVariable) and len(kept.items) == 3:
        mark = kept.items[0]
        if isinstance(mark, ConstantVariable) and mark.value == histories.MARK:
            return kept.items[2]
    return kept
