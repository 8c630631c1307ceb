"""Frames being traced, generators among them, and what compiles a frame."""

from __future__ import annotations

from types import CodeType
from typing import Any, Final

from bcmend.bytecode.decode import operation
from bcmend.bytecode.opcodes import INTRINSICS
from bcmend.dynamo import compat
from bcmend.dynamo.models import exceptions

#: The model of a context manager that is code of the program.
_OF_THE_PROGRAM: Final = compat.GenericContextWrappingVariable
#: The name of the model that locals without a value have, from CPython 3.12 on.
_UNBOUND: Final = "NullVariable"


def function_of(translator: Any) -> Any:
    """Return the function whose frame is being inlined; ``None`` if it is not known."""
    return getattr(getattr(translator, "funcvar", None), "fn", None)


def frame_of_generator(generator: Any) -> Any:
    """Return the translator of the frame of a generator."""
    return generator.inline_tracer


def is_exhausted(generator: Any) -> bool:
    """Return whether the frame of a generator has come to its end."""
    frame = generator.inline_tracer
    if hasattr(frame, "generator_exhausted"):  # torch 2.13
        return bool(frame.generator_exhausted)
    return bool(generator._frame_state_finished())


def runs_nothing_when_closed(generator: Any) -> bool:
    """Return whether no code of a generator runs when it is closed now."""
    if is_exhausted(generator) or generator._frame_state_created():
        return True
    if generator.pygen_yf() is not None or blocks_of(generator.inline_tracer):
        return False
    return not is_suspended_in_a_block(generator)


def is_suspended_in_a_block(generator: Any) -> bool:
    """Return whether a generator that has not ended stands in a ``try`` or ``with``."""
    if is_exhausted(generator):
        return False
    handler = exceptions.handler_of(generator.inline_tracer.current_instruction)
    return handler is not None and not is_around_a_generator(handler)


def is_around_a_generator(handler: Any) -> bool:
    """Return whether a handler is the one around all of a generator, from CPython 3.12 on.

    It lets through what closes the generator.
    """
    return operation(handler.target) in INTRINSICS


def forget_speculations(tx: compat.Tracer) -> None:
    """Have the next trace of the code compared with no earlier one, step by step."""
    tx.speculation_log.clear()


def bound_locals(frame: Any) -> set[str]:
    """Return the names of the locals of a frame that have a value."""
    named = frame.symbolic_locals.items()
    return {name for name, value in named if type(value).__name__ != _UNBOUND}


def blocks_of(frame: Any) -> list[Any]:
    """Return the blocks of ``with`` and ``try`` that a frame is in."""
    return list(frame.block_stack)


def contexts_of(frame: Any) -> list[Any]:
    """Return the contexts of the ``with`` blocks that a frame is in, the innermost last."""
    return [each.with_context for each in frame.block_stack if each.with_context is not None]


def is_in_a_context_of_the_program(frame: Any) -> bool:
    """Return whether a frame is in a ``with`` of a context manager that is code of the program."""
    return any(_is_of_the_program(each.with_context) for each in frame.block_stack)


def _is_of_the_program(context: Any) -> bool:
    """Return whether a model runs what the program wrote, not something of torch's instead."""
    kind = type(context)
    is_own = kind is _OF_THE_PROGRAM or not kind.__module__.startswith("torch.")
    return is_own and isinstance(context, _OF_THE_PROGRAM)


def leave_context(frame: Any) -> None:
    """Note that the innermost block of a context manager of the program has been left."""
    frame.active_generic_context_managers.pop()


def context_left_by(value: Any) -> Any:
    """Return the context manager that an operand leaves; ``None`` for any other operand."""
    return getattr(value, "ctx", None)


class FrameCompiler:
    """What Dynamo calls to compile a frame in place of ``compiler``.

    Dynamo reads the attribute to find the back end.
    """

    def __init__(self, compiler: Any) -> None:
        self._torchdynamo_orig_backend = compiler

    @property
    def compiler(self) -> Any:
        return self._torchdynamo_orig_backend


def wants_one_graph(callback: Any) -> bool:
    """Return whether what Dynamo calls to compile a frame was asked for one graph."""
    return bool(getattr(callback._torchdynamo_orig_backend, "_one_graph", False))


def store_nothing(callback: Any) -> None:
    """Have what Dynamo calls to compile frames keep nothing of them in packages on disk.

    A package finds code by its name, where mended code is not
    (``torch._dynamo.config.caching_precompile``).
    """
    outer = getattr(callback, "_torchdynamo_orig_backend", None)
    holders: list[Any] = [outer, getattr(outer, "_inner_convert", None)]  # for one graph, for any
    for each in holders:
        if getattr(each, "_package", None) is not None:
            each._package = None


def skipped(reason: str, *, with_calls: bool = True) -> compat.ConvertFrameReturn:
    """Return what has Dynamo run a frame in plain Python this time, and what it calls or not."""
    skip = compat._FrameAction.SKIP
    of_calls = skip if with_calls else compat._FrameAction.DEFAULT
    return compat.ConvertFrameReturn(
        frame_exec_strategy=compat._FrameExecStrategy(skip, of_calls),
        apply_to_code=False,
        skip_reason=reason,
    )


def have_inlined(tx: compat.Tracer, code: CodeType, reason: str) -> None:
    """Tell Dynamo that it may inline functions that have some code, in this trace."""
    context = tx.output.tracing_context
    if context is not None:
        verdict = compat.SkipResult(False, reason)
        context.previously_inlined_functions.setdefault(code, verdict)
