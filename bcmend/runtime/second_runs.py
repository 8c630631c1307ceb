"""Frames run once more in plain Python, from inside the code that Dynamo has compiled for them.

Writes the end of a compiled frame in Dynamo's instructions: a call of the frame's original code
with the arguments that the frame was entered with, whose result the frame returns. Right only where
nothing of what the frame does to Python objects has been replayed yet, since Dynamo's code leaves
arguments and cells alone until then.
"""

from __future__ import annotations

import dis
import inspect
from types import CellType, CodeType, FunctionType
from typing import Any, Final

from torch._C._dynamo.eval_frame import set_eval_frame
from torch._dynamo import config
from torch._dynamo.bytecode_transformation import (
    create_build_tuple,
    create_call_function,
    create_instruction,
)
from torch._dynamo.eval_frame import skip_code

from bcmend.runtime import frames

__all__ = ["can_return", "plainly", "run_code", "write_return_if"]

_UNFINISHED: Final = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
_JUMP: Final = next(
    name for name in ("POP_JUMP_IF_FALSE", "POP_JUMP_FORWARD_IF_FALSE") if name in dis.opmap
)


def can_return(tx: Any) -> bool:
    """Whether the frame being traced can return what a second run of it gives."""
    code = tx.output.root_tx.f_code
    return not code.co_flags & _UNFINISHED and not config.nested_graph_breaks


def write_return_if(codegen: Any, run: str, *operands: Any) -> None:
    """Write: if the boolean on the stack is true, return what a second run gives; else go on.

    Nothing that is loaded behind the jump may be kept for later code.

    Args:
        codegen: where to write; nothing but the boolean lies on the stack.
        run: the name of a global that holds ``run_code``, or a function that calls it.
        operands: further constants for it.
    """
    code = codegen.tx.output.root_tx.f_code
    after = create_instruction("NOP")
    given = [_load_argument(codegen, name) for name in frames.arguments_of(code)]
    cells = [codegen.create_load_closure(name) for name in code.co_freevars]
    constants = [codegen.create_load_const_unchecked(each) for each in (code, *operands)]
    codegen.extend_output(
        [
            create_instruction(_JUMP, target=after),
            *codegen.load_function_name(run, True),
            *given,
            create_build_tuple(len(given)),
            *cells,
            create_build_tuple(len(cells)),
            *constants,
            *create_call_function(2 + len(constants), False),
            create_instruction("RETURN_VALUE"),
            after,
        ]
    )
    codegen.clear_tos()


def _load_argument(codegen: Any, name: str) -> Any:
    if name in codegen.cell_and_freevars():
        return codegen.create_load_deref(name)
    return codegen.create_load(name)


def run_code(
    values: tuple[Any, ...], cells: tuple[CellType, ...], code: CodeType, space: dict[str, Any]
) -> Any:
    """Call a function of ``code`` in plain Python.

    Args:
        values: of each of its arguments, in the order of its variables.
        cells: of its free variables.
        code: its code.
        space: its globals.
    """
    function = FunctionType(frames.with_lines(code), space, code.co_name, None, cells)
    left = dict(zip(frames.arguments_of(code), values, strict=True))
    positional = [left.pop(name) for name in code.co_varnames[: code.co_argcount]]
    named = left.popitem()[1] if code.co_flags & inspect.CO_VARKEYWORDS else {}
    if code.co_flags & inspect.CO_VARARGS:
        positional += left.popitem()[1]
    return plainly(function, *positional, **left, **named)


def plainly(function: Any, /, *arguments: Any, **named: Any) -> Any:
    """Call a function without any of what it calls being compiled."""
    callback = set_eval_frame(None)
    try:
        return function(*arguments, **named)
    finally:
        set_eval_frame(callback)


for _function in (run_code, plainly):
    skip_code(_function.__code__)
