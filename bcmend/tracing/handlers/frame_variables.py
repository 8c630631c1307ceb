"""The variables of a frame, as the program sees them.

``locals()`` and ``vars()`` have no names that rewriting has added. Where Python continues in the
same frame behind a compiled part, arguments that the frame has deleted are still there: ``del`` was
traced, and left no code. They are deleted there.

Dynamo does not know where a method is from of an object that the call makes. It takes what the
method has in variables of outer scopes, as a decorator puts it there, for values of the call, or
stops: at the method of a context that ``@torch.no_grad()`` holds, for one. The class was there
before the call, and so was the function.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from bcmend.bytecode import emit
from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import containers, functions, methods, translators
from bcmend.dynamo.values import Value, global_of
from bcmend.names import PREFIX

_PURPOSE: Final = "`locals()` and `vars()` of mended code"


def _without_own_names(found: Value) -> Value:
    if isinstance(found, compat.ConstDictVariable) and found.source is None:
        for key in [each for each in found.items if _is_own(containers.key_model(each))]:
            del found.items[key]
    return found


def _is_own(key: Value) -> bool:
    name = key.as_python_constant() if key.is_python_constant() else None
    return isinstance(name, str) and name.startswith(PREFIX)


@hooks.around(compat.BuiltinVariable, methods.CALL_LOCALS, _PURPOSE)
def _call_locals(inner: Any, self: Value, tx: compat.Tracer, *args: Value) -> Value:
    return _without_own_names(inner(self, tx, *args))


@hooks.around(compat.BuiltinVariable, methods.CALL_VARS, _PURPOSE)
def _call_vars(inner: Any, self: Value, tx: compat.Tracer, *args: Value, **named: Value) -> Value:
    found: Value = inner(self, tx, *args, **named)
    return found if args or named else _without_own_names(found)


@hooks.around(
    compat.InstructionTranslatorBase,
    methods.BREAK_AT_A_STEP,
    "arguments that are deleted before a graph break",
    gate=hooks.first,
)
def _step_graph_break(inner: Any, self: Any, next_instruction: Any) -> None:
    known = {*translators.bound_locals(self), *self.f_code.co_cellvars}
    deleted = [name for name in frames.arguments_of(self.f_code) if name not in known]
    if deleted and self.parent is None:
        deletions = [
            compat.create_instruction(emit.delete_local.op, argval=name) for name in deleted
        ]
        jump = compat.create_jump_absolute(next_instruction)
        self.instructions = [*self.instructions, *deletions, jump]
        next_instruction = deletions[0]
    inner(self, next_instruction)


@hooks.around(
    compat.UserFunctionVariable,
    methods.BIND_ARGUMENTS,
    "outer variables of methods of objects that the call makes",
)
def _bind(inner: Any, self: Any, tx: compat.Tracer, args: Sequence[Value], kwargs: Any) -> Any:
    """Bind as a global function one that has no source, and that was there before the call."""
    if functions.has_unknown_cells(self, args):
        self = compat.UserFunctionVariable(self.fn, source=global_of(tx.output, self.fn))
    return inner(self, tx, args, kwargs)
