"""Side exits: where what a graph has computed is thrown away and the call is made in plain Python.

An arm that raises is not traced to its end; the trace goes on with the other one. A side exit (a
term of trace compilers: Gal and others, "Trace-based just-in-time type specialization for dynamic
languages", PLDI 2009) tests the condition when the graph has run, before any of its effects on
Python objects are replayed. If the arm was to be taken, the boundary runs the original code, which
does whatever eager execution does. It does not matter then whether the arm would have raised (an
operation may only have failed on fake tensors, or Dynamo's model of Python be wrong), nor who
catches the exception. A frame that does not end at a boundary runs its own original code and
returns what that returns.

What output is made of at the end of the call may fail then. That is tried here too, and where it
does the frame is left in the same way.

So is a frame that does not end at a boundary if its graph fails (``failing_graphs``): what was to
be written, or to be found wrong, before the failure would be lost. Where the frame does end there,
the boundary sees to that.

That is right only where the graph itself leaves no trace, or one that can be put back (``undo``).
That is known when it is complete; if it is not so, the frame is traced again without.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import CellType, CodeType
from typing import Any

import torch
from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo.bytecode_transformation import (
    create_build_tuple,
    create_call_function,
    create_instruction,
)
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.variables import TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import (
    choices,
    failing_graphs,
    inline,
    random_numbers,
    repeats,
    second_runs,
    sites,
    undo,
)
from bcmend.runtime.conditions import truths
from bcmend.runtime.merge import constant
from bcmend.runtime.per_trace import at_the_end, kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["SideExit", "add", "are_possible", "came_back", "keep_output"]


class SideExit(Exception):
    """Raised in the compiled body of a boundary: the call is to be made in plain Python.

    ``lasting`` says that the site keeps it even where the plain call does not fail, since the user
    asked for one graph.
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


def take_first(
    keys: tuple[str, ...],
    raises: bool,
    lasting: bool,
    before: Any,
    trials: tuple[_Trial, ...],
    *predicates: torch.Tensor,
) -> bool:
    """Say whether the condition of a side exit holds; put everything back if so."""
    changes, draws = before
    if _TAKEN.is_by_failure:
        _TAKEN.key, _TAKEN.is_by_trial, _TAKEN.is_by_failure = "", False, False
        undo.put_back((), draws=draws)  # its copies are lost with the graph
        return True
    checked = [*predicates, *(trial[1] for trial in trials if trial[1] is not None)]
    holds = iter(truths(checked))
    found = [key for key in keys if next(holds)]
    failed = None if found else _first_to_fail(trials, holds)
    key = found[0] if found else failed
    if key is None:
        return False
    undo.put_back(changes, draws=draws)
    if raises:
        raise SideExit(key, lasting or failed is not None)
    _TAKEN.key, _TAKEN.is_by_trial = key, failed is not None
    return True


def _first_to_fail(trials: Sequence[_Trial], holds: Iterator[bool]) -> str | None:
    """Return the key of the first record that cannot be made, of those whose condition holds."""
    for key, predicate, trial, inputs in trials:
        if predicate is not None and not next(holds):
            continue
        try:
            second_runs.plainly(trial, *choices.resolve(inputs))
        except Exception:
            return key
    return None


def leave(
    values: tuple[Any, ...], cells: tuple[CellType, ...], code: CodeType, lasting: bool
) -> Any:
    """Return what a frame returns that has to be left by a side exit."""
    taken = SideExit(_TAKEN.key, lasting or _TAKEN.is_by_trial)
    result = second_runs.run_code(values, cells, code, sys._getframe(1).f_globals)
    came_back(taken, code)
    return result


def nothing() -> None:
    """Do nothing."""


class _Lost:
    """What a graph that has failed returns."""

    def __getitem__(self, index: int) -> None:
        return None


def _leave_behind_a_failure() -> _Lost:
    """Have the frame left by its side exit, since its graph has failed."""
    _TAKEN.is_by_failure = True
    return _Lost()


for _function in (take_first, leave, nothing, _first_to_fail, _leave_behind_a_failure):
    skip_code(_function.__code__)


class _Exits(VariableTracker):
    """The side exits of a frame being traced.

    Stands for a function that Dynamo calls when the graph has run, before it replays effects. The
    function does nothing; what counts is written before it is loaded. A frame with nobody to raise
    ``SideExit`` to makes the call itself.
    """

    _nonvar_fields = {"output", "sites", *VariableTracker._nonvar_fields}  # noqa: RUF012

    def __init__(self, tx: Any, *, raises: bool, **more: Any) -> None:
        super().__init__(**more)
        self.output = tx.output
        self.sites: list[LiveSite] = []
        self.has_only_way = False
        self.keys: list[str] = []
        self.predicates: list[VariableTracker] = []
        self.trials: list[tuple[str, VariableTracker, VariableTracker, VariableTracker]] = []
        self.raises, self.lasting = raises, bool(tx.one_graph)
        self.before = undo.Kept(tx.output)
        self.is_written = False
        self._nothing = tx.output.install_global("__bcmend_nothing", nothing)
        self._leave = tx.output.install_global("__bcmend_leave", leave)

    def reconstruct(self, codegen: Any) -> None:
        self.is_written = True
        if not self.sites and not self.outlive_the_graph():
            codegen.extend_output(codegen.load_function_name(self._nothing, False))
            return
        codegen.add_push_null(lambda: codegen.load_import_from(__name__, take_first.__name__))
        for known in (tuple(self.keys), self.raises, self.lasting):
            codegen.append_output(codegen.create_load_const(known))
        codegen(self.before if self.sites else self._draws_before())
        for key, *parts in self.trials:
            codegen.append_output(codegen.create_load_const(key))
            codegen.foreach(parts)
            codegen.append_output(create_build_tuple(1 + len(parts)))
        codegen.append_output(create_build_tuple(len(self.trials)))
        codegen.foreach(self.predicates)
        codegen.extend_output(create_call_function(5 + len(self.predicates), False))
        if self.raises:
            codegen.append_output(create_instruction("POP_TOP"))
        else:
            second_runs.write_return_if(codegen, self._leave, self.lasting)
        codegen.extend_output(codegen.load_function_name(self._nothing, False))

    def _draws_before(self) -> VariableTracker:
        """What is to be put back where only a graph that fails is a reason to leave."""
        return TupleVariable([TupleVariable([]), constant(random_numbers.draws(self.output))])

    def instead_of_the_graph(self) -> Callable[[], Any] | None:
        is_left = self.is_written and self.outlive_the_graph()
        return _leave_behind_a_failure if is_left else None

    def outlive_the_graph(self) -> bool:
        """Whether the frame can be left if its graph fails."""
        return not self.raises and failing_graphs.can_be_put_back(self.output)


def are_possible(tx: Any, *, at_boundary: bool) -> bool:
    """Whether the frame being traced can have side exits, as far as is known."""
    return not tx.export and (at_boundary or second_runs.can_return(tx))


def add(
    tx: Any,
    site: LiveSite,
    predicate: VariableTracker | None,
    *,
    at_boundary: bool,
    is_only_way: bool,
    trial: tuple[VariableTracker, VariableTracker] | None = None,
) -> None:
    """Add a side exit to the frame being traced.

    Args:
        tx: the translator of the frame.
        site: whose arm is not compiled.
        predicate: a boolean tensor that says whether the arm is taken; ``None`` for what stands in
            none.
        at_boundary: whether what the frame raises goes to a boundary, with nothing in between.
        is_only_way: whether no record can take its place.
        trial: a function and its arguments, a tuple; the exit is taken if the call of it fails.
    """
    repeats.note(tx)  # what comes after a check may fail inside the graph
    exits = _exits_of(tx, at_boundary)
    exits.sites.append(site)
    exits.has_only_way = exits.has_only_way or is_only_way
    if trial is not None:
        exits.trials.append((site.key, predicate or constant(None), *trial))
        return
    assert isinstance(predicate, TensorVariable)
    exits.keys.append(site.key)
    exits.predicates.append(predicate)


def keep_output(tx: Any) -> None:
    """Have what the frame being traced writes written although its graph fails behind that.

    That is for frames that do not end at a boundary.
    """
    if are_possible(tx, at_boundary=False):
        _exits_of(tx, at_boundary=False)


def _exits_of(tx: Any, at_boundary: bool) -> _Exits:
    output = tx.output

    def make() -> _Exits:
        exits = _Exits(tx, raises=at_boundary)
        output.root_tx.debug_locals.append((exits, []))
        if not at_boundary:
            failing_graphs.give_instead(output, lambda: exits.instead_of_the_graph())
        at_the_end(output, lambda: _check(exits))
        return exits

    return kept(output, "side_exits", make)


def _check(exits: _Exits) -> None:
    """Have the frame traced without its side exits, if its graph cannot be thrown away."""
    if not exits.sites:
        return
    output = exits.output
    if exits.is_written and not undo.obstacle(output):
        if not inline.writes(output):
            return
        if exits.has_only_way:
            inline.must_wait(output)
    for site in exits.sites:
        sites.leave_without_exit(site)
    raise SiteChanged(restart_reason="bcmend: the graph cannot be thrown away")


def came_back(taken: SideExit, code: Any) -> None:
    """Note that the plain call after a side exit has not failed: the arm is an ordinary one.

    Where the graph may break, it is better compiled on its own.
    """
    site = sites.find(taken.key)
    if site is not None and not taken.lasting:
        site.side_exits = False
        reset_code(code)
