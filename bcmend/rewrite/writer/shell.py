"""Write the shell of a function, which becomes its ``__code__``: the original behind a gate.

Where Dynamo does not ask for this frame, the gate falls through to the original instructions. Where
Dynamo runs the frame as a root, it calls the boundary, which has the body compiled; where Dynamo
traces the frame as part of another, it calls the body itself, as it does where a program is
exported without Dynamo: the body can drop output.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import CodeType
from typing import Final

from bcmend.bytecode import emit
from bcmend.bytecode.assemble import Item
from bcmend.bytecode.decode import decode_shape
from bcmend.bytecode.instructions import Label, Shape, TryRange
from bcmend.names import CALLBACK, COMPILER, EXPORTING, NAMESPACE, TRACING
from bcmend.rewrite.writer.insert import NOWHERE, insert_at_start


def generator_gate(mended: Label) -> Sequence[Item]:
    """Return what a generator begins with: a jump to ``mended`` where Dynamo traces it.

    Dynamo never enters a generator first.
    """
    return [
        *emit.call_global((TRACING,), [], NOWHERE),
        *emit.jump_if_true(mended, NOWHERE),
        *_jump_if_exporting(mended),
    ]


def _jump_if_exporting(target: Label) -> Sequence[Item]:
    """Jump where ``torch.export`` runs the program without Dynamo tracing it."""
    return [
        *emit.load_global(COMPILER, NOWHERE),
        *emit.load_attribute(EXPORTING, NOWHERE),
        *emit.jump_if_true(target, NOWHERE),
    ]


def write_shell(original: CodeType, body: CodeType, *, has_sites: bool) -> CodeType:
    """Return the shell of a function; if ``has_sites``, inlined frames run ``body`` as well.

    Raises:
        AssembleError: nothing can be put in front of the function.
    """
    gate = _gate(decode_shape(original), body, has_sites=has_sites)
    return insert_at_start(original, gate, [_UNTIL_IT_FAILS])


def write_in_place(original: CodeType, body: CodeType) -> CodeType:
    """Return what Dynamo runs in place of a frame of ``original``: a call of the boundary.

    Raises:
        AssembleError: nothing can be put in front of the function.
    """
    gate = _at_the_boundary(decode_shape(original), body, "run_in_place")
    return insert_at_start(original, gate, [_UNTIL_IT_FAILS])


#: Where the boundary is called, and what is done with an exception that comes out of it.
_RUNS, _HAS_RUN, _FAILED = Label("runs"), Label("has run"), Label("failed")
_UNTIL_IT_FAILS: Final = TryRange(_RUNS, _HAS_RUN, _FAILED, 0, False)


def _arguments(shape: Shape) -> list[Sequence[Item]]:
    return [
        emit.load_cell(name) if name in shape.cellvars else emit.load_local(name)
        for name in shape.argnames
    ]


def _at_the_boundary(shape: Shape, body: CodeType, run: str) -> list[Item]:
    """Return what gives the call to the boundary, and returns or raises what comes of it."""
    arguments = _arguments(shape)
    make_body = emit.make_function(body, shape.freevars)
    packed = [*(each for load in arguments for each in load), *emit.build_tuple(len(arguments))]
    return [
        _RUNS,
        *emit.call_global((NAMESPACE, run), [make_body, packed]),
        _HAS_RUN,
        *emit.return_value(),
        _FAILED,
        *emit.call_global((NAMESPACE, "leave_out"), [emit.copy(3)]),
        *emit.pop_top(),
        *emit.raise_again(),
    ]


def _gate(shape: Shape, body: CodeType, *, has_sites: bool) -> list[Item]:
    go_on, traced, not_asked = Label("go on"), Label("traced"), Label("not asked")
    inlined: list[Item] = []
    if has_sites:
        make_body = emit.make_function(body, shape.freevars)
        nothing = emit.load_const(None)  # the root frame has a buffer, and numbers
        inlined = [
            *_jump_if_exporting(traced),
            *emit.jump(go_on, NOWHERE),
            traced,
            *emit.call_value(make_body, [*_arguments(shape), nothing, nothing]),
            *emit.return_value(),
        ]
    return [
        # In eager execution no more than this runs, and no tracing function sees a line of it.
        *emit.call_global((TRACING,), [], NOWHERE),
        *emit.jump_if_true(traced if has_sites else go_on, NOWHERE),
        # The callback is False where only what is compiled already is to be run.
        *emit.call_global((CALLBACK,), [], NOWHERE),
        *emit.jump_if_none(not_asked, NOWHERE),
        *_at_the_boundary(shape, body, "run"),
        not_asked,
        *inlined,
        go_on,
    ]
