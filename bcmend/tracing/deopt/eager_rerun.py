"""Re-execution of a frame in eager, from inside the code that Dynamo has compiled for it.

Correct only before effects on Python objects are replayed: until then Dynamo's code leaves the
arguments and cells of the frame unchanged.
"""

from __future__ import annotations

import inspect
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from bcmend.bytecode import emit
from bcmend.bytecode.layout import RAW_JUMP_IF_FALSE
from bcmend.dynamo import compat, frames, plain_python

_UNFINISHED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR


def can_return(tx: compat.Tracer) -> bool:
    """Return whether the frame being traced can return what a second run of it gives."""
    code = tx.output.root_tx.f_code
    return not code.co_flags & _UNFINISHED and not compat.dynamo_config.nested_graph_breaks


def write_return_if(codegen: Any, run: str, *operands: Any) -> None:
    """Write ``if <the boolean on the stack>: return run(arguments, cells, code, *operands)``.

    ``run`` is the name of a global. Nothing else is on the stack.
    """
    code = codegen.tx.output.root_tx.f_code
    after = compat.create_instruction(emit.nothing.op)
    given = [_load_argument(codegen, name) for name in frames.arguments_of(code)]
    cells = [codegen.create_load_closure(name) for name in code.co_freevars]
    constants = [codegen.create_load_const_unchecked(each) for each in (code, *operands)]
    codegen.extend_output(
        [
            compat.create_instruction(RAW_JUMP_IF_FALSE, target=after),
            *codegen.load_function_name(run, True),
            *given,
            compat.create_build_tuple(len(given)),
            *cells,
            compat.create_build_tuple(len(cells)),
            *constants,
            *compat.create_call_function(2 + len(constants), False),
            compat.create_instruction(emit.return_value.op),
            after,
        ]
    )
    codegen.clear_tos()  # what was loaded behind the jump is not there for later code


def _load_argument(codegen: Any, name: str) -> Any:
    if name in codegen.cell_and_freevars():
        return codegen.create_load_deref(name)
    return codegen.create_load(name)


def run_code(
    values: tuple[Any, ...], cells: tuple[CellType, ...], code: CodeType, space: dict[str, Any]
) -> Any:
    """Call a function of ``code`` in plain Python; ``values`` are in the order of its variables."""
    function = FunctionType(frames.with_lines(code), space, code.co_name, None, cells)
    left = dict(zip(frames.arguments_of(code), values, strict=True))
    positional = [left.pop(name) for name in code.co_varnames[: code.co_argcount]]
    named = left.popitem()[1] if code.co_flags & inspect.CO_VARKEYWORDS else {}
    if code.co_flags & inspect.CO_VARARGS:
        positional += left.popitem()[1]
    return plain_python.run(function, *positional, **left, **named)


plain_python.have_dynamo_skip(run_code)
