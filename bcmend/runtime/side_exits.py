"""Side exits: where what a graph has computed is thrown away and the call is made in plain Python.

An arm that raises is not traced to its end; the trace goes on with the other one. A side exit (a
term of trace compilers: Gal and others, "Trace-based just-in-time type specialization for dynamic
languages", PLDI 2009) tests the condition when the graph has run, before any of its effects on
Python objects are replayed. If the arm was to be taken, the boundary runs the original code, which
does whatever eager execution does. It does not matter then whether the arm would have raised (an
operation may only have failed on fake tensors, or Dynamo's model of Python be wrong), nor who
catches the exception.

That is right only where the graph itself leaves no trace, which is known when it is complete: if it
does, the frame is traced again without.
"""

from __future__ import annotations

from typing import Any

import torch
from torch._C._dynamo.eval_frame import reset_code
from torch._dynamo.source import AttrSource
from torch._dynamo.variables import TensorVariable
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import inline, repeats, sites
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


@torch.compiler.disable  # type: ignore[untyped-decorator]
def take_if(predicate: torch.Tensor, key: str, lasting: bool) -> None:
    """Leave the compiled frame by its side exit if the condition holds."""
    if bool(predicate):
        raise SideExit(key, lasting)


def add(tx: Any, site: LiveSite, predicate: VariableTracker, *, is_only_way: bool) -> None:
    """Add a side exit to the frame being traced, which has to end at a boundary.

    ``is_only_way`` says that no record can take its place.

    Dynamo calls what is in ``debug_locals`` when the graph has run, before it replays effects.
    """
    assert isinstance(predicate, TensorVariable)
    repeats.note(tx)  # what comes after a check may fail inside the graph
    source = AttrSource(tx.import_source(__name__), take_if.__name__)
    function = VariableTracker.build(tx, take_if, source)
    arguments = [predicate, constant(site.key), constant(bool(tx.one_graph))]
    tx.output.root_tx.debug_locals.append((function, arguments))
    exits: list[tuple[LiveSite, bool]] = kept(tx.output, "side_exits", list)
    if not exits:
        output = tx.output
        output.register_finalizer_fns.append(lambda module: _check(output, module, exits))
    exits.append((site, is_only_way))


def _check(output: Any, module: Any, exits: list[tuple[LiveSite, bool]]) -> None:
    """Have the frame traced without its side exits, if its graph cannot be thrown away."""
    if repeats.is_repeatable(output, module):
        if not inline.writes(output):
            return
        if any(is_only_way for _, is_only_way in exits):
            inline.must_wait(output)
    for site, _ in exits:
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
