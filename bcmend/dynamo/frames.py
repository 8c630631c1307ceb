"""The frames that Dynamo is tracing: which called which, and which resumed which.

Dynamo's ``parent`` of a generator's frame is the frame that made the generator; what resumes it may
be another one.
"""

from __future__ import annotations

import inspect
import os
import sysconfig
import weakref
from collections import deque
from collections.abc import Iterable, Iterator
from difflib import SequenceMatcher
from functools import partial
from itertools import groupby, takewhile
from pathlib import Path
from types import CodeType
from typing import Any, Final

import torch

from bcmend.bytecode.decode import decode, operation
from bcmend.bytecode.instructions import Location, UnknownOpcode
from bcmend.bytecode.line_table import checked, encode
from bcmend.bytecode.opcodes import IN_FRONT_OF_JUMPS, JUMPING, OPERAND_RETURNS
from bcmend.dynamo import compat
from bcmend.dynamo.models import exceptions
from bcmend.dynamo.slots import Slot
from bcmend.knowledge.interruptions import entries
from bcmend.names import BUFFER
from bcmend.weak_tables import ByIdentity

#: Code that was written for patched functions, and the mark of each function that has it.
_OURS: Final[dict[CodeType, list[Any]]] = {}


def add_code(codes: Iterable[CodeType], mark: Any) -> None:
    """Have frames of ``codes`` count as frames of patched code."""
    for code in codes:
        _OURS.setdefault(code, []).append(mark)


def remove_code(codes: Iterable[CodeType], mark: Any) -> None:
    """Take back one ``add_code``."""
    for code in codes:
        _OURS[code].remove(mark)
        if not _OURS[code]:
            del _OURS[code]


def is_of_patched(code: CodeType) -> bool:
    """Return whether ``code`` itself counts as patched code."""
    return code in _OURS


def mark_of(code: CodeType) -> Any:
    """Return a mark of a function that has ``code``; ``None`` if that is no patched code."""
    return next(iter(_OURS.get(code) or ()), None)


def mark_over(tx: compat.Tracer) -> Any:
    """Return the mark of the innermost frame being traced that is of patched code; else None."""
    found = (_OURS.get(resumed(frame.f_code)) for frame in being_traced(tx))
    return next((marks[0] for marks in found if marks), None)


def keep_with(tx: compat.Tracer, value: object) -> None:
    """Have ``value`` live as long as the code that is compiled for the frame being traced.

    Dynamo calls the cleanups when that code is gone, and holds them until then.
    """
    tx.output.cleanups.append(partial(_drop, value))  # type: ignore[arg-type]


def _drop(*arguments: object) -> None:
    pass


def compile_as(code: CodeType, other: CodeType) -> None:
    """Have Dynamo compile ``code`` without tensors among its arguments, if it does so ``other``."""
    if other in compat.always_optimize_code_objects:
        compat.always_optimize_code_objects[code] = True


#: Code whose traces bcmend stays out of, since one of them has failed through bcmend's fault.
_LEFT_ALONE: Final[ByIdentity[CodeType, None]] = ByIdentity()


def leave_alone(code: CodeType) -> None:
    """Have traces that begin in ``code`` be made as without bcmend."""
    _LEFT_ALONE.put(resumed(code), None)


def leave_all_alone() -> None:
    """Have all traces be made as without bcmend, in a process that only finds out what they do."""
    _ALL_ARE_ALONE.append(True)


_ALL_ARE_ALONE: Final[list[bool]] = []


def take_up_again() -> None:
    """Forget what was left alone."""
    _LEFT_ALONE.clear()


def is_left_alone(code: CodeType) -> bool:
    """Return whether a trace that begins in ``code`` is made as without bcmend."""
    return bool(_ALL_ARE_ALONE) or (bool(_LEFT_ALONE) and resumed(code) in _LEFT_ALONE)


#: Whether a frame is one of patched code, or was called by one.
_COVERED: Final[Slot[bool | None]] = Slot(lambda: None, rolls_back=False)


def covers(tx: compat.Tracer) -> bool:
    """Return whether a frame being traced is of patched code, or inside of such."""
    return _COVERED.of(tx) or is_covered(tx) or any(map(is_covered, tx.output._current_tx))


def is_covered(frame: Any) -> bool:
    """Return whether a frame itself is of patched code, or was called by one."""
    found = _COVERED.of(frame)
    if found is None:
        parent = getattr(frame, "parent", None)
        is_inside = parent is not None and is_covered(parent)
        found = is_inside or resumed(frame.f_code) in _OURS
        if found and _LEFT_ALONE:
            found = not any(is_left_alone(each.f_code) for each in outwards(frame))
        _COVERED.put(frame, found)
    return found


def resumed(code: CodeType) -> CodeType:
    """Return the code that Dynamo resumes behind a graph break; other code is its own."""
    known = compat.ContinueExecutionCache.generated_code_metadata.get(code)
    return code if known is None else known.code


#: Code that Dynamo resumes, with the lines of its origin.
_WITH_LINES: Final[ByIdentity[CodeType, CodeType]] = ByIdentity()


def with_lines(code: CodeType) -> CodeType:
    """Return code that Dynamo resumes behind a graph break, with the lines of its origin.

    Dynamo gives it the lines of all that stands before the break, to which a loop comes back.
    """
    origin = resumed(code)
    if origin is code:
        return code
    return _WITH_LINES.setdefault(code, lambda: _with_lines_of(code, origin))


def _with_lines_of(code: CodeType, origin: CodeType) -> CodeType:
    try:
        here, there = decode(code).instructions, decode(origin).instructions
    except UnknownOpcode:
        return code
    one, other = ([(each.op, repr(each.arg)) for each in those] for those in (here, there))
    locations = [Location(*each) for each in code.co_positions()]
    starts = [*(each.offset // 2 for each in here), len(locations)]
    for first, second, count in SequenceMatcher(None, one, other, False).get_matching_blocks():
        for index, known in enumerate(there[second : second + count], first):
            units = range(starts[index], starts[index + 1])
            locations[units.start : units.stop] = [known.location or Location()] * len(units)
    runs = ((checked(each), len(list(same))) for each, same in groupby(locations))
    return code.replace(co_linetable=encode(runs, code.co_firstlineno))


#: The file with the methods of what traces.
_OF_TRACERS: Final = compat.Tracer.run.__code__.co_filename


def traced_in(error: BaseException | None) -> Iterator[compat.Tracer]:
    """Yield the frames being traced when an error was raised, then those of its causes.

    Each error has them outermost first; some come twice.
    """
    while error is not None:
        for entry in entries(error.__traceback__):
            frame = entry.tb_frame
            # A frame that is asked for its variables keeps them, and with them the error if it has
            # caught it: such a circle keeps the whole trace, and weak references to its tensors.
            if frame.f_code.co_filename == _OF_TRACERS:
                owner = frame.f_locals.get("self")
                if isinstance(owner, compat.Tracer):
                    yield owner
        error = error.__cause__


def of_the_program_in(error: BaseException) -> list[compat.Tracer]:
    """Return those of ``traced_in`` that are frames of the program's own code."""
    return [each for each in traced_in(error) if is_of_the_program(each.f_code)]


def line_of(tx: compat.Tracer) -> int:
    """Return the line at which a frame being traced is; its first if its trace has not begun."""
    return max(tx.lineno, tx.f_code.co_firstlineno)


def position_of(tx: Any) -> tuple[int, int, int, int] | None:
    """Return where the expression stands, as `co_positions` has it, at which a traced frame is.

    A jump has that of its condition: the instruction in front of it computes it, and has a position
    of its own (of some jumps Python 3.11 has that of the statement).
    """
    current = tx.current_instruction
    found = current.positions
    if current.opcode in JUMPING:
        before = list(takewhile(lambda each: each is not current, tx.instructions))
        computing = (
            each.positions for each in reversed(before) if each.opname not in IN_FRONT_OF_JUMPS
        )
        found = next(computing, found)
    if found is None or None in found:
        return None
    return found.lineno, found.end_lineno, found.col_offset, found.end_col_offset


def forget(code: CodeType, reason: str, *, only_pieces: bool = False) -> None:
    """Have Dynamo compile code anew, or look anew at what it skips.

    Nothing is freed: another thread may be at these guards or be running what was compiled (torch
    lets other threads in before it checks guards). What is forgotten is no recompilation.

    Args:
        code: what Dynamo may have compiled.
        reason: what torch says of what is forgotten, if it says anything.
        only_pieces: whether what was captured whole stays.
    """
    default = compat._FrameAction.DEFAULT
    compat.set_code_exec_strategy(code, compat._FrameExecStrategy(default, default))
    for entry in compat._debug_get_cache_entry_list(code):
        state, compiled = entry.guard_manager.extra_state, entry.code
        if state is None or not isinstance(compiled, CodeType):
            continue  # it is void already
        if only_pieces and not any(name.startswith("__resume_at") for name in compiled.co_names):
            continue
        _FORGOTTEN.append((entry.guard_manager, compiled))
        state.invalidate(entry, uncounted_guards(reason))


def is_at_the_limit(code: CodeType) -> bool:
    """Return whether Dynamo compiles no further variant of code."""
    limit: int = compat.dynamo_config.recompile_limit
    return len(compat._debug_get_cache_entry_list(code)) >= limit


def uncounted_guards(reason: str) -> Any:
    """Return guards of what is no recompilation, whatever is compiled after it.

    ``reason`` is what torch says where it looks for a reason to compile again.
    """
    guards = compat.DeletedGuardManagerWrapper(reason)
    # What was compiled for one object is not counted for others.
    guards.id_matched_objs = {"": weakref.ref(_no_frame)}
    return guards


def _no_frame() -> None:
    """Be an object that is a local of no frame."""


#: What torch has forgotten. A thread reaches the end of its guards long before this is full.
_FORGOTTEN: Final[deque[object]] = deque(maxlen=256)

#: What the files of torch begin with.
TORCH: Final = str(Path(torch.__file__).parent) + os.sep
_PYTHON: Final = sysconfig.get_path("stdlib") + os.sep
_INSTALLED: Final = (sysconfig.get_path("purelib"), sysconfig.get_path("platlib"))


def is_of_the_program(code: CodeType) -> bool:
    """Return whether code is neither of torch nor of Python's own library."""
    file = code.co_filename
    is_of_python = file.startswith(_PYTHON) and not file.startswith(_INSTALLED)
    return not (is_of_python or file.startswith((TORCH, "<frozen ")))


def count_as_compiled() -> None:
    """Have a call that was to be one graph count as one.

    Else torch raises an error where the call has run nothing that was compiled (``compile_wrapper``
    in torch/_dynamo/eval_frame.py).
    """
    # What is counted already has to be switched off before another number is taken.
    if compat.set_fullgraph_compiled_frame_count(-1) >= 0:
        compat.set_fullgraph_compiled_frame_count(1)


def is_captured_whole(tx: compat.Tracer) -> bool:
    """Return whether nothing runs between what is traced and the end of the call."""
    return bool(tx.one_graph or tx.error_on_graph_break)


def captured_whole(callback: Any, *given: Any, convert: Any = None) -> Any:
    """Have a callback of Dynamo's compile a frame, every graph break of which is an error.

    Dynamo remembers the mode of the last frame that it compiled, and goes by it for a frame that it
    does not compile because the limit of recompilations is reached (``ConvertFrameBox`` in
    torch/_dynamo/convert_frame.py).

    Args:
        callback: compiles frames.
        given: the frame and what else it is given.
        convert: is called with ``callback`` before these; ``None`` has ``callback`` itself called.
    """
    backend = getattr(callback, "_torchdynamo_orig_backend", None)
    remembered = getattr(getattr(backend, "_inner_convert", None), "_box", None)
    before = getattr(remembered, "error_on_graph_break", None)
    mode = compat._get_error_on_graph_break()
    compat._set_error_on_graph_break(True)
    try:
        return callback(*given) if convert is None else convert(callback, *given)
    finally:
        compat._set_error_on_graph_break(mode)
        if remembered is not None:
            remembered.error_on_graph_break = before


def ends_at_a_boundary(tx: compat.Tracer) -> bool:
    """Return whether what the root frame returns goes straight to a boundary."""
    return BUFFER in tx.output.root_tx.f_code.co_varnames and is_captured_whole(tx)


def arguments_of(code: CodeType) -> tuple[str, ...]:
    """Return the names of all arguments of a function, in the order of its variables."""
    stars = bool(code.co_flags & inspect.CO_VARARGS) + bool(code.co_flags & inspect.CO_VARKEYWORDS)
    return code.co_varnames[: code.co_argcount + code.co_kwonlyargcount + stars]


def outwards(tx: compat.Tracer) -> Iterator[Any]:
    """Yield ``tx`` and the frames around it, by ``parent``."""
    frame: Any = tx
    while frame is not None:
        yield frame
        frame = getattr(frame, "parent", None)


def being_traced(tx: compat.Tracer) -> Iterator[Any]:
    """Yield ``tx`` and every frame that waits for it, each once, innermost first."""
    seen: set[int] = set()
    for innermost in (tx, *reversed(tx.output._current_tx)):
        for frame in outwards(innermost):
            if id(frame) in seen:
                break
            seen.add(id(frame))
            yield frame


def is_in_a_block(tx: compat.Tracer) -> bool:
    """Return whether a ``try`` or ``with`` is around what is traced, here or in a caller."""
    return any(exceptions.handler_of(each.current_instruction) for each in outwards(tx))


def drains_for_the_caller(tx: compat.Tracer) -> bool:
    """Return whether Dynamo runs a generator to its end only because the call returns it.

    In eager execution it has not run by then.
    """
    returns = operation(tx.output.root_tx.current_instruction) in OPERAND_RETURNS
    return returns or bool(tx.output.current_tracer.is_reconstructing_generator)
