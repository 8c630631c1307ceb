"""Named facts about the running CPython: code elsewhere asks for these, never for the version."""

from __future__ import annotations

import sys
import sysconfig
from typing import Final

#: A build without the lock of the interpreter, where other threads run between two instructions.
_IS_FREE_THREADED: Final = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
#: The first two numbers of the version, with a "t" for such a build, and whether this package is
#: for it.
PYTHON: Final = "{}.{}".format(*sys.version_info) + "t" * _IS_FREE_THREADED
IS_KNOWN: Final = (3, 11) <= sys.version_info[:2] <= (3, 14) and not _IS_FREE_THREADED

_PYTHON_312: Final = sys.version_info >= (3, 12)
_PYTHON_313: Final = sys.version_info >= (3, 13)
_PYTHON_314: Final = sys.version_info >= (3, 14)

# --- calls ---------------------------------------------------------------------------------------

#: 3.11 splits a call in two: PRECALL has to stand right before every CALL.
CALL_HAS_PRECALL: Final = not _PYTHON_312

#: The NULL that fills the place of a missing ``self`` lies under the callable up to 3.12, above it
#: from 3.13 on.
NULL_BEFORE_CALLABLE: Final = not _PYTHON_313

#: 3.11 loads a method with LOAD_METHOD; later versions set a bit in the argument of LOAD_ATTR.
HAS_LOAD_METHOD: Final = not _PYTHON_312

#: Up to 3.13 a bit in the argument of CALL_FUNCTION_EX says whether there are keyword arguments;
#: from 3.14 on their place is always there, and a NULL fills it.
STARRED_CALL_HAS_FLAG: Final = not _PYTHON_314

#: Up to 3.12 MAKE_FUNCTION takes closure and defaults itself, as flags in its argument; from 3.13
#: on it has no argument, and SET_FUNCTION_ATTRIBUTE adds each of them afterwards.
FUNCTION_ATTRIBUTES_ARE_SET_AFTER: Final = _PYTHON_313

# --- jumps ---------------------------------------------------------------------------------------

#: 3.11 has a forward and a backward form of each conditional jump.
JUMPS_CARRY_DIRECTION: Final = not _PYTHON_312

#: From 3.13 on conditional jumps want a real bool, made by TO_BOOL (or by a comparison).
HAS_TO_BOOL: Final = _PYTHON_313

#: From 3.13 on a bit in the argument of COMPARE_OP converts its result to a bool.
COMPARE_OP_CARRIES_BOOL: Final = _PYTHON_313

#: 3.11 pops an exhausted iterator in FOR_ITER; later END_FOR at the target does that.
FOR_ITER_POPS_ITERATOR: Final = not _PYTHON_312

#: 3.12's END_FOR pops the iterator and a placeholder; 3.13's pops one, and a POP_TOP follows.
END_FOR_POPS_ITERATOR: Final = not _PYTHON_313

#: 3.11 pops the exhausted receiver in SEND; later END_SEND at the target does that.
SEND_POPS_RECEIVER: Final = not _PYTHON_312

#: From 3.12 on YIELD_VALUE takes an argument: the depth of exception blocks in 3.12, and in
#: 3.13 whether it is part of an ``await`` or ``yield from``.
YIELD_HAS_ARGUMENT: Final = _PYTHON_312

#: From 3.14 on NOT_TAKEN, for those who watch the branches of a program, follows each conditional
#: jump. It does nothing else, so that decoding leaves it out and assembling writes it.
JUMPS_ARE_MARKED: Final = _PYTHON_314

#: From 3.14 on ``any``, ``all`` and ``tuple`` over a generator are written as a loop beside the
#: call, with a test of whether the name still stands for the builtin.
SOME_BUILTINS_ARE_INLINED: Final = _PYTHON_314

#: From 3.14 on the test of a ``while`` is at the start of the loop alone; before, it is written a
#: second time at the end.
LOOPS_TEST_ONCE: Final = _PYTHON_314

# --- blocks of ``with`` ---------------------------------------------------------------------------

#: From 3.14 on a ``with`` looks up ``__exit__`` and ``__enter__`` by LOAD_SPECIAL and calls the
#: latter; the method and the object that it is called for stay as two operands. Up to 3.13
#: BEFORE_WITH does all of it and leaves a bound method.
WITH_KEEPS: Final = 2 if _PYTHON_314 else 1

# --- values --------------------------------------------------------------------------------------

#: From 3.14 on LOAD_SMALL_INT pushes integers up to 255 that are in no table.
HAS_SMALL_INTS: Final = _PYTHON_314

#: From 3.14 on a flag says whether the first constant is a docstring; before, any text that comes
#: first is one.
DOCSTRING_FLAG: Final = 0x4000000 if _PYTHON_314 else 0

# --- variables -----------------------------------------------------------------------------------

#: From 3.12 on LOAD_FAST of an unbound local is undefined behaviour; where the compiler is not sure
#: it emits LOAD_FAST_CHECK. In 3.11 every LOAD_FAST checks.
LOAD_FAST_MUST_BE_BOUND: Final = _PYTHON_312

# From 3.14 on LOAD_FAST_BORROW pushes a local without counting the reference. The compiler does it
# where it has seen that the operand is consumed before the local is bound anew or deleted, and that
# it does not leave its basic block (Python/flowgraph.c, ``optimize_load_fast``, and
# InternalDocs/interpreter.md, "Reference counting"). Code that is moved, or into which a store is
# inserted, need not keep to that, so that decoding makes LOAD_FAST of it, which is right anywhere:
# all that a program sees of it is one more in ``sys.getrefcount``.

#: Up to 3.12 LOAD_CLOSURE loads a cell itself; 3.13 uses LOAD_FAST on the cell's slot.
HAS_CLOSURE_OPCODE: Final = not _PYTHON_313

#: From 3.12 on list, set and dict comprehensions have no frame of their own (PEP 709), and the
#: locals they shadow are saved on the operand stack.
COMPREHENSIONS_ARE_INLINED: Final = _PYTHON_312
