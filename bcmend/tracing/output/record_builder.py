"""Records of output and checks while a frame is traced.

The frame that a boundary runs has the buffer of the call as its last argument, under a name that
no source can spell. Records of that frame and of all that it inlines are appended to it; Dynamo
replays the appends after the graph. Where the graph may break, the records of each graph are
delivered as soon as it has run. The records of an arm gather in a list of their own until the
branch is lowered.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import torch

from bcmend.delivery import codec, grad_fn_label
from bcmend.dynamo import compat, frames, fx_graph, values
from bcmend.dynamo.models import containers, objects, texts
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant, example_of, global_of
from bcmend.names import BUFFER
from bcmend.tracing.deopt import canaries, rerun_policy, safe_indices, side_exits
from bcmend.tracing.effects import watches
from bcmend.tracing.heap import roots
from bcmend.tracing.output import tensor_copies
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import encoding, outlet
from bcmend.tracing.sites.phi import Phi
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite

IN_A_BODY: Final = "in the body of another operator, such as a checkpoint"
#: Classes whose text does not depend on what is stored to an attribute in a forward.
_PLAIN: Final[tuple[Any, ...]] = (object, torch.nn.Module, logging.Logger, logging.LoggerAdapter)
_OBJECT: Final = vars(object)


class Kind(Enum):
    """What a record is."""

    OUTPUT = auto()  # a statement of the program that writes
    CHECK = auto()  # an exception of the program, in which its action has to end
    EXIT = auto()  # a side exit, which has no action
    TRIAL = auto()  # a side exit that is also taken if its action fails
    STORE = auto()  # a store that follows the side taken
    CANARY = auto()  # a side of a branch, whose action is its truth: compared when first taken

    @property
    def is_exit(self) -> bool:
        return self in (Kind.EXIT, Kind.TRIAL)


@dataclass(frozen=True, slots=True)
class Draft:
    """A record as the tracer has it.

    ``predicate`` is a 0-d boolean tensor; ``None`` for a record that is always delivered.
    """

    site: LiveSite
    action: Value
    predicate: Value | None
    inputs: Value
    kind: Kind


def store_by(
    tx: compat.Tracer, site: LiveSite, action: Callable[..., None], inputs: Iterable[Value]
) -> Draft:
    """Return the record of a store that ``action``, of ``delivery.records``, makes."""
    held = compat.TupleVariable([*inputs])
    return Draft(site, values.function_of(tx, action), None, held, Kind.STORE)


#: The tracers of the arms in which records are gathered, the innermost last.
_TRACERS: Final[Slot[list[Any]]] = Slot(list, rolls_back=False)
#: The buffer of a frame that has none of a boundary.
_BUFFER: Final[Slot[compat.ListVariable | None]] = Slot(lambda: None, rolls_back=False)


def _stack(tx: compat.Tracer) -> list[list[Draft]]:
    return roots.RECORDS.of(tx.output)


def _buffer(tx: compat.Tracer) -> Any:
    """Return the buffer of the root frame, or make one that is delivered when its graph has run."""
    output = tx.output
    given = output.root_tx.symbolic_locals.get(BUFFER)
    if given is not None and frames.is_captured_whole(tx):
        return given.realize()
    made = _BUFFER.of(output)
    if made is None:
        made = containers.new_list([])
        _BUFFER.put(output, made)
        source = global_of(output, outlet.OUTLET)
        given_to = Value.build(tx, outlet.OUTLET, source).realize()
        output.side_effects.store_attr(given_to, "records", made)
        _replay_last(output.side_effects, given_to)
    return made


def _replay_last(effects: compat.SideEffects, outlet: Value) -> None:
    """Make the store to ``outlet`` the last: Dynamo replays in the reverse order of its table."""
    others = effects.id_to_variable
    first = {key: each for key, each in others.items() if each is outlet}
    effects.id_to_variable = {**first, **others}


def is_open(tx: compat.Tracer) -> bool:
    """Return whether a record made now would be delivered."""
    return not tx.export


@contextmanager
def open_arm(tx: compat.Tracer) -> Iterator[list[Draft]]:
    """Gather the records of an arm."""
    drafts: list[Draft] = []
    _stack(tx).append(drafts)
    _TRACERS.of(tx.output).append(tx.output.current_tracer)
    try:
        yield drafts
    finally:
        _stack(tx).pop()
        _TRACERS.of(tx.output).pop()


def is_in_a_body(tx: compat.Tracer) -> bool:
    """Return whether the body of an operator of torch's is being traced, such as a checkpoint.

    Its values are not there for a record, which belongs to the graph around it.
    """
    return tx.output.current_tracer is not [tx.output.root_tracer, *_TRACERS.of(tx.output)][-1]


def append(tx: compat.Tracer, draft: Draft) -> None:
    """Add a record to the innermost open list. Raises ``Refusal`` in the body of an operator."""
    if is_in_a_body(tx):
        raise Refusal("not-captured", IN_A_BODY)
    _require_nothing_hidden_behind(tx, draft)
    stack = _stack(tx)
    if stack:
        stack[-1].append(draft)
        return
    if tx.export:
        _assert_in_graph(tx, draft)
        return
    at_boundary = frames.ends_at_a_boundary(tx)
    if draft.kind.is_exit:
        trial = (draft.action, draft.inputs) if draft.kind is Kind.TRIAL else None
        side_exits.add_side_exit(
            tx, draft.site, draft.predicate, at_boundary=at_boundary, trial=trial
        )
        return
    if draft.kind is Kind.CANARY:
        assert draft.predicate is not None
        side = canaries.Side(draft.site.key, draft.action.as_python_constant())
        side_exits.add_canary(tx, side, draft.predicate)
        return
    if draft.kind is not Kind.STORE and not at_boundary:
        side_exits.write_output_if_graph_fails(tx)
    predicate = constant(None) if draft.predicate is None else draft.predicate
    if draft.kind is Kind.CHECK and draft.predicate is not None:
        safe_indices.is_discarded_if(tx, draft.predicate)
    rerun_policy.note(tx)
    key, raises = constant(draft.site.key), constant(draft.kind is Kind.CHECK)
    record = compat.TupleVariable([key, predicate, raises, draft.action, draft.inputs])
    _buffer(tx).call_method(tx, "append", [record], {})


def _assert_in_graph(tx: compat.Tracer, draft: Draft) -> None:
    """Have an exported program, which delivers nothing, assert that a check holds."""
    assert draft.kind is Kind.CHECK
    assert isinstance(draft.predicate, compat.TensorVariable)
    holds = fx_graph.method(tx, "logical_not", draft.predicate)
    given = (holds.as_proxy(), draft.action.as_python_constant())
    tx.output.create_proxy("call_function", compat.ASSERT_ASYNC, given, {})


def _require_nothing_hidden_behind(tx: compat.Tracer, draft: Draft) -> None:
    """Have a check left as it is if what eager execution would not run then has a state."""
    site = draft.site
    if draft.kind.is_exit or draft.kind is Kind.CHECK:
        watches.add_hidden(
            tx, lambda name: [site.unmendable("hidden-state", name), Finding(Claim.FAILS, site)]
        )


def failed_checks(tx: compat.Tracer, within: Any) -> list[Value]:
    """Return the conditions of the checks made so far: where one holds, nothing now is used.

    Those of the whole graph, or of the arm whose tracer is ``within`` if there is one.
    """
    tracers = _TRACERS.of(tx.output)
    known = within in tracers
    found = [] if known else [*safe_indices.discarded_if(tx)]
    for drafts in _stack(tx)[tracers.index(within) if known else 0 :]:
        for each in drafts:
            if each.kind in (Kind.CHECK, Kind.EXIT) and each.predicate is not None:
                found.append(each.predicate)
    return found


def records_until_now(tx: compat.Tracer) -> Iterator[Value]:
    """Yield the inputs of each record made so far, in this arm and outside of it."""
    output = tx.output
    given = output.root_tx.symbolic_locals.get(BUFFER)
    for buffer in (given, _BUFFER.of(output)):
        if buffer is not None:
            held: Any = buffer.realize()
            yield from (record.items[-1] for record in held.items)
    for drafts in _stack(tx):
        yield from (draft.inputs for draft in drafts)


def snapshot(tx: compat.Tracer, site: LiveSite, value: Value) -> Value:
    """Return ``value`` as it is now, whatever is changed later.

    Containers are copied, tensors only if a former trace has changed them later.
    """
    value = value.realize()
    if isinstance(value, Phi):
        return value.as_recorded(site, lambda side: snapshot(tx, site, side))
    if isinstance(value, compat.TensorVariable):
        return _snapshot_tensor(tx, site, value)
    copy = _snapshot_container(tx, site, value)
    if copy is not None:
        return copy
    if not (
        isinstance(value, (compat.ConstantVariable, compat.SymNodeVariable))
        or value.source is not None
        or value.is_python_constant()
        or type(value).__name__ in objects.REBUILT
    ):
        raise Refusal("cannot-snapshot", type(value).__name__)
    if isinstance(value, compat.UserDefinedObjectVariable) and not shows_moments(site):
        kind = objects.class_of(value)
        if _shows_its_state(kind):
            what = f"{kind.__qualname__}, which is changed later"
            watches.add_object(tx, value, site.unmendable("cannot-snapshot", what))
    return value


def shows_moments(site: LiveSite) -> bool:
    """Return whether the attributes of objects are restored while a record is delivered."""
    return site.kind == "output"


def _shows_its_state(cls: Any) -> bool:
    """Return whether the text of an object may depend on its attributes."""
    is_plain = any(cls.__repr__ is each.__repr__ for each in _PLAIN)
    own = (name for name in ("__str__", "__format__") if getattr(cls, name) is not _OBJECT[name])
    return not is_plain or any(own)


def _snapshot_container(tx: compat.Tracer, site: LiveSite, value: Any) -> Value | None:
    """Return a copy of a container, or of a text that is still to be formatted."""
    items = values.items_in(value)
    if items is not None:
        return values.made_of(value, [snapshot(tx, site, item) for item in items])
    if isinstance(value, compat.DictViewVariable):
        inner: Any = snapshot(tx, site, containers.dictionary_of(value))
        return containers.view_like(value, inner)
    if type(value) is compat.OrderedDictVariable and value.python_type() is OrderedDict:
        copied: Value = value.call_method(tx, "copy", [], {})
        contents: Any = containers.contents_of(value)
        containers.guard_keys(contents)
        for key, item in list(contents.items.items()):
            stored = snapshot(tx, site, item)
            if stored is not item:
                copied.call_method(tx, "__setitem__", [containers.key_model(key), stored], {})
        return copied
    if isinstance(value, compat.StringFormatVariable):
        arguments, named = texts.arguments_of(value), texts.named_arguments_of(value)
        return texts.text_of(
            texts.template_of(value),
            [_unlabeled(snapshot(tx, site, item)) for item in arguments],
            {key: _unlabeled(snapshot(tx, site, item)) for key, item in named.items()},
        )
    return None


def _snapshot_tensor(tx: compat.Tracer, site: LiveSite, value: compat.TensorVariable) -> Value:
    history = None
    if shows_moments(site) and (value.source is None or tensor_copies.is_due(tx, site)):
        history = grad_fn_label.name_of(example_of(value))
    stored = tensor_copies.unchanged(tx, site, value)
    if history is None:
        return stored
    # Only output reads it, and no gradient of zeros is to flow back from there.
    stored = fx_graph.method(tx, "detach", stored)
    if _stack(tx):  # an arm must not return what shares memory with what it was given
        stored = fx_graph.method(tx, "clone", stored)
    return encoding.encoded(codec.LABELED, constant(history), stored)


def _unlabeled(stored: Value) -> Value:
    """Return a tensor without the name of its ``grad_fn``, for a text that Dynamo formats."""
    return stored.items[-1] if encoding.is_encoded(stored, codec.LABELED) else stored  # type: ignore[attr-defined]
