"""Names that rewritten code uses and that no source can spell; names that sites have.

Globals can have any name. Arguments have to be identifiers for Dynamo, which reads signatures:
theirs begin with a full-width letter, which Python's parser replaces by the common one wherever it
stands in a source (PEP 3131).
"""

from __future__ import annotations

from typing import Final

#: Global: the module of primitives and of ``run``.
NAMESPACE: Final = "@bcmend"
#: Attribute of it: tests whether an iteration of a loop runs.
RUNS_ITERATION: Final = "runs_iteration"
#: Global: whether Dynamo traces this call (a constant while it does).
TRACING: Final = "@bcmend_tracing"
#: Global: the callback by which Dynamo compiles frames; false where it does not.
CALLBACK: Final = "@bcmend_callback"
#: Global: what has the attribute that says whether a program is being exported, and its name.
COMPILER: Final = "@bcmend_compiler"
EXPORTING: Final = "_is_exporting_flag"
#: Global: what decides which sides are taken, where that is tried; locals of code that asks it.
FORCED: Final = "@bcmend_forced"
FORCED_VALUE: Final = "\uff46orced_value"
FORCED_TURNS: Final = "\uff46orced_turns_{}"
#: What locals and arguments begin with.
PREFIX: Final = "\uff42cmend_"
#: Argument: the buffer of records of one call.
BUFFER: Final = "\uff42cmend_buffer"
#: Argument: the numbers that were computed in front of one call.
NUMBERS: Final = "\uff42cmend_numbers"
#: What a local holds while it is unbound, where that has to be a value.
UNBOUND: Final = "\uff42cmend_unbound"
#: Local: a condition.
CONDITION: Final = "\uff42cmend_condition"
#: Under this name what was drawn before the graph is found beside the locals of a call.
DRAWN: Final = "\uff42cmend_drawn"
#: Local: what a branch returned.
RESULT: Final = "\uff42cmend_result"
#: Locals: operands on their way out of an arm.
OPERAND: Final = "\uff42cmend_operand_{}"
#: Arguments of a deferred statement.
INPUT: Final = "\uff42cmend_input_{}"
#: Arguments of a region function: itself, the number of the entry, and the live-ins.
FUNCTION: Final = "\uff42cmend_function"
ENTRY: Final = "\uff42cmend_entry"
INPUTS: Final = "\uff42cmend_inputs"
#: Locals: whether a ``with`` block, identified by its offset, is left by the exit of a number; and
#: the value that it is left with.
LEAVES: Final = "\uff42cmend_leaves_{}_{}"
LEAVES_BEGINS: Final = LEAVES.partition("{")[0]
LEFT_WITH: Final = "\uff42cmend_left_with_{}"
#: Constant: in place of the value of a variable that is not read any more.
DEAD: Final = "\uff42cmend_dead"
#: The kind of a site that splits the code in front of a read of a phi without a common form.
SPLIT: Final = "split"
