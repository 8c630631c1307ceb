"""What the user has registered to be traced in place of calls.

Dynamo reads the replacements as attributes of this module, so that it has guards on them.
"""

from __future__ import annotations

import sys
from typing import Any

from torch._dynamo.source import AttrSource
from torch._dynamo.variables.base import VariableTracker

from bcmend.runtime import frames
from bcmend.runtime.substitution import Call, Refused, answers_to

__all__: list[str] = []


@answers_to("call")
def _call(call: Call) -> VariableTracker | None:
    """Trace a call of the replacement; inside of that, the callable is what it was."""
    tx: Any = call.tx
    replacement = call.row.replacement
    code = getattr(replacement, "__code__", None)
    if code is not None and any(frame.f_code is code for frame in frames.being_traced(tx)):
        return None
    name = f"of_{id(replacement)}"
    setattr(sys.modules[__name__], name, replacement)
    source = AttrSource(tx.import_source(__name__), name)
    given = [] if call.owner is None or _is_bound(call) else [call.owner]
    function = VariableTracker.build(tx, replacement, source).realize()
    if type(function).__name__ == "SkipFunctionVariable":
        raise Refused("Dynamo does not trace the replacement either")
    result: VariableTracker = function.call_function(tx, [*given, *call.args], call.kwargs)
    return result


def _is_bound(call: Call) -> bool:
    """Whether what was registered is the method of one object, or no method of an instance."""
    return getattr(call.function, "__self__", None) is not None
