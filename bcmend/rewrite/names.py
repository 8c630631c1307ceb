"""Names that rewritten code uses and that no source can spell."""

from __future__ import annotations

from typing import Final

#: Global: the module of primitives and of ``run``.
NAMESPACE: Final = "@bcmend"
#: Global: whether Dynamo traces this call (a constant while it does).
TRACING: Final = "@bcmend_tracing"
#: Global: the callback by which Dynamo compiles frames; false where it does not.
CALLBACK: Final = "@bcmend_callback"
#: Argument: the buffer of records of one call.
BUFFER: Final = "@buffer"
#: Local: a condition.
CONDITION: Final = "@condition"
#: Local: what a branch returned.
RESULT: Final = "@result"
#: Locals: operands on their way out of an arm.
OPERAND: Final = "@operand_{}"
#: Arguments of a deferred statement.
INPUT: Final = "@input_{}"
