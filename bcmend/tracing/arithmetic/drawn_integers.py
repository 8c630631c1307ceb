"""Whole numbers of what Python or numpy draw, as ``int(random.uniform(0, 9))``.

They are computed where it is drawn, before the graph, and are inputs of the graph. There they would
be expressions over a fraction, of which back ends make no sizes and bounds.
"""

from __future__ import annotations

import math
from typing import Any, Final

import torch

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.values import Value, is_unbacked, object_behind
from bcmend.tracing.sites import capture_mode, site_table
from bcmend.tracing.substitutes import host_calls

_WHOLE: Final = (int, round, math.floor, math.ceil, math.trunc)


@hooks.around(
    compat.InstructionTranslatorBase,
    methods.CALL_FUNCTION,
    "whole numbers of what was drawn",
    gate=hooks.first,
    place=1,
)
def _call_function(inner: Any, self: Any, fn: Value, args: Any, kwargs: Any) -> None:
    is_one = len(args) == 1 and not kwargs
    found = _of_drawn(self, fn.realize(), args[0]) if is_one else None
    if found is None:
        inner(self, fn, args, kwargs)
    else:
        self.push(found)


def _of_drawn(tx: compat.Tracer, called: Value, value: Value) -> Value | None:
    held = (object_behind(called, holder) for holder in ("fn", "value"))
    function = next((each for each in held if any(each is one for one in _WHOLE)), None)
    if function is None or not capture_mode.in_mended_code(tx):
        return None
    value = value.realize()
    if not isinstance(value, compat.SymNodeVariable):
        return None
    if not (isinstance(value.sym_num, torch.SymFloat) and is_unbacked(value)):
        return None
    site = site_table.number_being_traced(tx, function.__name__)
    if site is None:
        return None
    found = host_calls.computed_of_draws(tx, site, function, value)
    if found is not None:
        site.mended("operator", "computed of what is drawn before the graph")
    return found
