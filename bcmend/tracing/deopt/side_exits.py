"""Side exits: the results of a graph are discarded and the call is made in plain Python.

An arm that raises is not traced to its end; the trace goes on with the other one. A side exit (Gal
and others, "Trace-based just-in-time type specialization for dynamic languages", PLDI 2009) tests
the condition when the graph has run, before effects on Python objects are replayed. If it holds,
the boundary runs the original code; a frame that does not end at a boundary runs its own original
code and returns the result. So it does not matter whether the arm would have raised (an operation
may fail on fake tensors only), nor who catches the exception.

A frame is left in the same way if an argument of output cannot be made (a trial), and, if it does
not end at a boundary, if its graph fails: else earlier output and checks would be lost.

The graph must have no effects, or only such as ``undo_log`` restores. That is known when it is
complete; if it is not so, the frame is traced again without side exits.
"""

from __future__ import annotations

import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType
from typing import Any, Final

import torch

from bcmend.bytecode import emit
from bcmend.delivery import codec
from bcmend.delivery.read_predicates import truths
from bcmend.dynamo import compat, frames, plain_python
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import Value, constant, global_of, load_global
from bcmend.knowledge.interruptions import is_interruption
from bcmend.tracing.deopt import (
    canaries,
    eager_rerun,
    graph_failure,
    one_sided,
    rerun_policy,
    safe_indices,
    undo_log,
)
from bcmend.tracing.effects import random_draws
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify, weaken
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite


class SideExit(Exception):
    """Tells a boundary to make the call in plain Python.

    A ``lasting`` one stays even if that call does not fail, since the user asked for one graph.
    """

    def __init__(self, key: str, lasting: bool) -> None:
        super().__init__(key)
        self.key, self.lasting = key, lasting


class _Taken(threading.local):
    """The side exit by which this thread leaves a frame."""

    key: str = ""
    is_by_trial: bool = False
    is_by_failure: bool = False


_TAKEN = _Taken()

#: What may fail: key of the site, the condition of its arm, a function and its arguments.
_Trial = tuple[str, "torch.Tensor | None", Callable[..., Any], tuple[Any, ...]]

_WATCHES_NOTHING: Final = None, ()


def take_first(
    keys: tuple[str, ...],
    raises: bool,
    lasting: bool,
    before: Any,
    trials: tuple[_Trial, ...],
    watched: Any,
    *predicates: torch.Tensor,
) -> bool:
    """Return whether a side exit is taken; restore what the graph has changed if so.

    Args:
        keys: the sites of the first of ``predicates``.
        raises: whether an exit is an exception.
        lasting: what ``SideExit`` has.
        before: what the graph has changed, and whether it draws.
        trials: what is called, and may fail.
        watched: sides of which the rest of ``predicates`` are the conditions (``canaries``).

    Raises:
        SideExit: a side exit is taken, and ``raises`` is true.
        NewSide: a call takes a watched side for the first time.
    """
    changes, draws = before
    if _TAKEN.is_by_failure:
        _TAKEN.key, _TAKEN.is_by_trial, _TAKEN.is_by_failure = "", False, False
        undo_log.put_back((), draws=draws)  # its copies are lost with the graph
        return True
    exits, sides = predicates[: len(keys)], predicates[len(keys) :]
    checked = [*exits, *(trial[1] for trial in trials if trial[1] is not None), *sides]
    holds = iter(truths(checked))
    found = [key for key in keys if next(holds)]
    one_sided.count(keys, found[0] if found else None)
    failed = None if found or not trials else _first_to_fail(trials, holds)
    key = found[0] if found else failed
    if key is None:
        new = canaries.new_sides(watched, holds) if watched[1] else None
        if new is None:
            return False
        undo_log.put_back(changes, draws=draws)
        raise new
    undo_log.put_back(changes, draws=draws)
    if raises:
        raise SideExit(key, lasting or failed is not None)
    _TAKEN.key, _TAKEN.is_by_trial = key, failed is not None
    return True


def _first_to_fail(trials: Sequence[_Trial], holds: Iterator[bool]) -> str | None:
    """Return the key of the first trial that fails, of those whose condition holds."""
    for key, predicate, trial, inputs in trials:
        if predicate is not None and not next(holds):
            continue
        try:
            plain_python.run(trial, *codec.decoded(inputs))
        except Exception as error:
            # An argument of output fails; eager execution of the frame raises the same, at its
            # place. The results of the graph are given up.
            if is_interruption(error):
                raise
            return key
    return None


def leave(
    values: tuple[Any, ...], cells: tuple[CellType, ...], code: CodeType, lasting: bool
) -> Any:
    """Return what the original code of a frame returns, after a side exit was taken."""
    taken = SideExit(_TAKEN.key, lasting or _TAKEN.is_by_trial)
    result = eager_rerun.run_code(values, cells, code, sys._getframe(1).f_globals)
    came_back(taken, code)
    return result


def nothing() -> None:
    """Do nothing."""


def _leave_after_failure() -> Any:
    """Have the side exit of the frame taken, since its graph has failed; return its results."""
    _TAKEN.is_by_failure = True
    return defaultdict(nothing)


plain_python.have_dynamo_skip(take_first, leave, nothing, _first_to_fail, _leave_after_failure)


@methods.without_models_in("output", "sites")
class _Exits(compat.VariableTracker):
    """The side exits of a frame being traced.

    Stands for a function that Dynamo calls when the graph has run, before it replays effects. The
    function does nothing; the tests are written before it is loaded.
    """

    def __init__(self, tx: compat.Tracer, *, raises: bool, **more: Any) -> None:
        super().__init__(**more)
        self.output = tx.output
        self.sites: list[LiveSite] = []
        self.keys: list[str] = []
        self.predicates: list[Value] = []
        self.watched: list[tuple[canaries.Side, Value]] = []
        self.trials: list[tuple[str, *tuple[Value, ...]]] = []
        self.raises, self.lasting = raises, bool(tx.one_graph)
        self.before = undo_log.SavedState(tx.output)
        self.is_written = False
        self._nothing, self._leave = (
            global_of(tx.output, each).global_name for each in (nothing, leave)
        )

    def reconstruct(self, codegen: Any) -> None:
        self.is_written = True
        watched = self._watched()
        if not self.sites and not watched and not self.survives_graph_failure():
            codegen.extend_output(codegen.load_function_name(self._nothing, False))
            return
        codegen.add_push_null(lambda: load_global(codegen, take_first))
        for known in (tuple(self.keys), self.raises, self.lasting):
            codegen.append_output(codegen.create_load_const(known))
        codegen(self.before if self.sites or watched else self._only_draws())
        for key, *parts in self.trials:
            codegen.append_output(codegen.create_load_const(key))
            codegen.foreach(parts)
            codegen.append_output(compat.create_build_tuple(1 + len(parts)))
        codegen.append_output(compat.create_build_tuple(len(self.trials)))
        told = self.output.root_tx.f_code, tuple(side for side, _ in watched)
        codegen.append_output(
            codegen.create_load_const_unchecked(told if watched else _WATCHES_NOTHING)
        )
        predicates = [*self.predicates, *(each for _, each in watched)]
        codegen.foreach(predicates)
        codegen.extend_output(compat.create_call_function(6 + len(predicates), False))
        if self.raises:
            codegen.append_output(compat.create_instruction(emit.pop_top.op))
        else:
            eager_rerun.write_return_if(codegen, self._leave, self.lasting)
        codegen.extend_output(codegen.load_function_name(self._nothing, False))

    def _watched(self) -> list[tuple[canaries.Side, Value]]:
        """Return the sides to look for: none if the effects of the graph cannot be undone."""
        why = undo_log.obstacle(self.output) if self.watched else ""
        if why:
            sides = [side for side, _ in self.watched]
            canaries.say_not_compared(self.output.root_tx.f_code, sides, why)
        return [] if why else self.watched

    def _only_draws(self) -> Value:
        """Return the saved state where only the failure of the graph is a reason to leave."""
        draws = constant(random_draws.frame_draws(self.output))
        return compat.TupleVariable([compat.TupleVariable([]), draws])

    def instead_of_the_graph(self) -> Callable[[], Any] | None:
        is_left = self.is_written and self.survives_graph_failure()
        return _leave_after_failure if is_left else None

    def survives_graph_failure(self) -> bool:
        """Return whether the frame can be left if its graph fails."""
        return not self.raises and graph_failure.can_be_put_back(self.output)


def are_possible(tx: compat.Tracer, *, at_boundary: bool) -> bool:
    """Return whether the frame being traced can have side exits, as far as is known."""
    return not tx.export and (at_boundary or eager_rerun.can_return(tx))


def add_side_exit(
    tx: compat.Tracer,
    site: LiveSite,
    predicate: Value | None,
    *,
    at_boundary: bool,
    trial: tuple[Value, Value] | None = None,
) -> None:
    """Add a side exit to the frame being traced: for an arm, or for a trial.

    It is taken if ``predicate``, a boolean tensor, holds. ``trial`` is a function and the tuple of
    its arguments: then it is taken if the call fails as well.
    """
    rerun_policy.note(tx)  # what comes after a check may fail inside the graph
    exits = _exits_of(tx, at_boundary)
    exits.sites.append(site)
    if trial is not None:
        exits.trials.append((site.key, predicate or constant(None), *trial))
        return
    assert isinstance(predicate, compat.TensorVariable)
    exits.keys.append(site.key)
    exits.predicates.append(predicate)
    safe_indices.is_discarded_if(tx, predicate)


def add_canary(tx: compat.Tracer, side: canaries.Side, predicate: Value) -> None:
    """Have a call compared that is the first to take a side, of the frame being traced.

    It takes the side if ``predicate``, a boolean tensor, holds.
    """
    if canaries.at_boundary_only(tx, [side]):
        random_draws.take_before(tx.output)
        _exits_of(tx, at_boundary=True).watched.append((side, predicate))


def write_output_if_graph_fails(tx: compat.Tracer) -> None:
    """Have output before a failure of the graph written, in a frame that ends at no boundary."""
    if are_possible(tx, at_boundary=False):
        _exits_of(tx, at_boundary=False)


_EXITS: Final[Slot[_Exits | None]] = Slot(lambda: None, rolls_back=False)


def _exits_of(tx: compat.Tracer, at_boundary: bool) -> _Exits:
    output = tx.output
    known = _EXITS.of(output)
    if known is not None:
        return known
    exits = _Exits(tx, raises=at_boundary)
    _EXITS.put(output, exits)
    output.root_tx.debug_locals.append((exits, []))
    if not at_boundary:
        graph_failure.give_instead(output, exits.instead_of_the_graph)
    at_the_end(output, Phase.CHECK, lambda module: _check(exits))
    return exits


def _check(exits: _Exits) -> None:
    """Restart the trace without side exits if the effects of its graph cannot be undone."""
    if not exits.sites or (exits.is_written and not undo_log.obstacle(exits.output)):
        return
    falsify(*(Finding(Claim.THROWN_AWAY, site) for site in exits.sites))


def came_back(taken: SideExit, code: Any) -> None:
    """Note that the call after a side exit has not failed: the arm is compiled from now on."""
    if rerun_policy.may_be_computed_again():
        return
    one_sided.turn(taken.key, code)
    if taken.lasting:
        return
    site = site_table.find(taken.key)
    if site is not None and weaken(Finding(Claim.FAILS, site)):
        site.seen_sides.clear()  # of a check, and now it is a branch
        frames.forget(code, "bcmend compiles an arm that has not failed")
