"""Places and items that masks select in an arm, by calls: ``boxes[keep.nonzero()[:, 0]]``.

See ``tracing/numbers/arm_selections``, which says how a mask selects in an arm.
"""

from __future__ import annotations

import operator
from typing import Any, Final

import torch

from bcmend.dynamo import compat, fx_graph, handlers
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.values import example_of
from bcmend.tracing.numbers import arm_selections

_PURPOSE: Final = "what masks select in an arm"


def _arguments(call: Call) -> tuple[Any, ...] | None:
    """Return all that a call is given, the tensor first; ``None`` if some of it has a name."""
    owner = () if call.owner is None else (call.owner,)
    return None if call.kwargs else (*owner, *call.args)


def _places(call: Call) -> Answer:
    """Answer ``mask.nonzero()``, a row for each place."""
    given = _arguments(call)
    if given is None or len(given) != 1:
        return PASS
    found = arm_selections.selection_by(call.tx, given[0])
    if found is None:
        return PASS
    result = fx_graph.method(call.tx, "nonzero", found.mask)
    arm_selections.note(call.tx, found.mask, found, result)
    return result


def _where(call: Call) -> Answer:
    """Answer ``torch.where(mask)``, a tuple of the places."""
    rows = _places(call)
    if rows is PASS:
        return PASS
    places = fx_graph.method(call.tx, "select", rows, 1, 0)
    return compat.TupleVariable([places])


def _selected(call: Call) -> Answer:
    """Answer ``x.masked_select(mask)``, which is ``x[mask]`` if both have one and the same size."""
    given = _arguments(call)
    if given is None or len(given) != 2:
        return PASS
    tensor, mask = (each.realize() for each in given)
    found = arm_selections.selection_by(call.tx, mask)
    if found is None or type(tensor) is not compat.TensorVariable:
        return PASS
    sizes = example_of(tensor).shape, example_of(found.mask).shape
    if len(sizes[0]) != 1 or not compat.statically_known_true(sizes[0][0] == sizes[1][0]):
        return PASS
    result = fx_graph.function(call.tx, operator.getitem, tensor, found.mask.as_proxy())
    arm_selections.note(call.tx, tensor, found, result)
    return result


handlers.tensor_method("nonzero", place=8)(_places)
handlers.tensor_method("argwhere", place=8)(_places)
handlers.tensor_method("masked_select", place=8)(_selected)
handlers.function(torch.nonzero, _PURPOSE)(_places)
handlers.function(torch.argwhere, _PURPOSE)(_places)
handlers.function(torch.where, _PURPOSE)(_where)
handlers.function(torch.masked_select, _PURPOSE)(_selected)
