"""Side exits: where what a graph has computed is thrown away and the call is made in plain Python.

An arm that raises is not traced to its end; the trace goes on with the other one. A side exit (a
term of trace compilers: Gal and others, "Trace-based just-in-time type specialization for dynamic
languages", PLDI 2009) tests the condition when the graph has run, before any of its effects on
Python objects are replayed. If the arm was to be taken, the boundary runs the original code, which
does whatever eager execution does. It does not matter then whether the arm would have raised (an
operation may only have failed on fake tensors, or Dynamo's model of Python be wrong), nor who
catches the exception.

That is right only where the graph itself leaves no trace, or one that can be put back (``undo``).
That is known when it is complete; if it is not so, the frame is traced again without.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo.eval_frame import skip_code
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import inline, repeats, sites, undo
from bcmend.runtime.merge import constant
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.watches import SiteChanged

__all__ = ["SideExit", "add", "came_back"]


class SideExit(Exception):
    """Raised in a compiled frame: the call is to be made in plain Python.

    ``lasting`` says that the site keeps it even where the plain call does not fail, since the user
    asked for one graph.
    """

    def __init__(self, key: str, lasting: bool) -> None:
        super().__init__(key)
        self.key, self.lasting = key, lasting


def take_first(keys: list[str], lasting: bool, before: Any, *predicates: torch.Tensor) -> None:
    """Leave the compiled frame by the first of its side exits whose condition holds."""
    for key, holds in zip(keys, _truths(predicates), strict=True):
        if holds:
            changes, draws = before
            undo.put_back(changes, draws=draws)
            raise SideExit(key, lasting)


def _truths(predicates: tuple[torch.Tensor, ...]) -> Iterable[bool]:
    """Return the truth of each condition, waiting for an accelerator only once."""
    devices = {each.device for each in predicates}
    if len(devices) == 1 and len(predicates) > 1 and not predicates[0].is_cpu:
        return torch.stack(predicates).tolist()
    return map(bool, predicates)


for _function in (take_first, _truths):
    skip_code(_function.__code__)


class _Exits:
    """The side exits of a frame being traced, and the call that takes the first of them.

    Dynamo makes the calls in ``debug_locals`` when the graph has run, before it replays effects.
    """

    def __init__(self) -> None:
        self.sites: list[LiveSite] = []
        self.has_only_way = False
        self.keys: list[VariableTracker] = []
        self.arguments: list[VariableTracker] = []


def add(tx: Any, site: LiveSite, predicate: VariableTracker, *, is_only_way: bool) -> None:
    """Add a side exit to the frame being traced, which has to end at a boundary.

    ``is_only_way`` says that no record can take its place.
    """
    assert isinstance(predicate, TensorVariable)
    repeats.note(tx)  # what comes after a check may fail inside the graph
    output = tx.output
    exits: _Exits = kept(output, "side_exits", _Exits)
    if not exits.sites:
        source = AttrSource(tx.import_source(__name__), take_first.__name__)
        function = VariableTracker.build(tx, take_first, source)
        lasting = constant(bool(tx.one_graph))
        exits.arguments += [TupleVariable(exits.keys), lasting, undo.Kept(output)]
        output.root_tx.debug_locals.append((function, exits.arguments))
        output.register_finalizer_fns.append(lambda module: _check(output, exits))
    exits.sites.append(site)
    exits.has_only_way = exits.has_only_way or is_only_way
    exits.keys.append(constant(site.key))
    exits.arguments.append(predicate)


def _check(output: Any, exits: _Exits) -> None:
    """Have the frame traced without its side exits, if its graph cannot be thrown away."""
    if not undo.obstacle(output):
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
