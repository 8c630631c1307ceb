"""Whether an exception could be caught in the code being traced, by the handlers around it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from torch._dynamo.bytecode_transformation import cleaned_instructions

from bcmend.bytecode import behavior
from bcmend.bytecode.names_used import code_objects
from bcmend.dynamo import compat
from bcmend.tracing.output import deferred_exceptions
from bcmend.tracing.substitutes import elided_contexts


def _here() -> None:
    """Mark a place in the functions below."""


def _bare() -> None:
    _here()


def _in_a_try() -> None:
    try:
        _here()
    except ValueError:
        print("handled")


def _behind_a_try() -> None:
    try:
        print("tried")
    except ValueError:
        print("handled")
    _here()


def _in_a_finally() -> None:
    try:
        _here()
    finally:
        print("finally")


def _in_a_with() -> None:
    with nullcontext():
        _here()


def _in_a_with_in_a_try() -> None:
    try:
        with nullcontext():
            _here()
    except ValueError:
        print("handled")


def _in_two_blocks() -> None:
    with nullcontext(), nullcontext():
        _here()


def _in_a_comprehension() -> None:
    [_here() for _ in range(2)]


def _in_a_comprehension_in_a_try() -> None:
    try:
        [_here() for _ in range(2)]
    except ValueError:
        print("handled")


def _in_a_generator() -> Iterator[None]:
    _here()
    yield


def _frame(
    function: Callable[[], object], *contexts: object, parent: Any = None, waiting: Any = ()
) -> Any:
    """Return a frame of ``function`` as Dynamo traces it, where it calls ``_here``."""
    codes = code_objects(
        function.__code__
    )  # an older Python has comprehensions in one of their own
    instructions = cleaned_instructions(next(each for each in codes if "_here" in each.co_names))
    at = next(one for one, each in enumerate(instructions) if each.argval == "_here")
    call = next(each for each in instructions[at:] if each.opname == "CALL")
    return SimpleNamespace(
        instructions=instructions,
        indexof={each: one for one, each in enumerate(instructions)},
        current_instruction=call,
        block_stack=[SimpleNamespace(with_context=each) for each in contexts],
        parent=parent,
        output=SimpleNamespace(_current_tx=list(waiting)),
    )


@pytest.mark.parametrize(
    ("function", "expected"),
    [
        (_bare, False),
        (_in_a_try, True),
        (_behind_a_try, False),
        (_in_a_finally, True),
        (_in_a_with, False),
        (_in_a_with_in_a_try, True),
        (_in_two_blocks, False),
        (_in_a_comprehension, False),
        (_in_a_comprehension_in_a_try, behavior.COMPREHENSIONS_ARE_INLINED),
        (_in_a_generator, False),
    ],
)
def test_only_handlers_of_the_program_keep_exceptions(
    function: Callable[[], object], expected: bool
) -> None:
    assert deferred_exceptions.handled_by_a_caller(_frame(function)) is expected


def test_a_caller_may_handle_what_its_callee_raises() -> None:
    outer = _frame(_in_a_try)
    assert deferred_exceptions.handled_by_a_caller(_frame(_bare, parent=outer))
    assert not deferred_exceptions.handled_by_a_caller(_frame(_bare, parent=_frame(_in_a_with)))


def test_who_resumes_a_generator_may_handle_what_it_raises() -> None:
    resuming = _frame(_in_a_try)
    assert deferred_exceptions.handled_by_a_caller(_frame(_in_a_generator, waiting=[resuming]))


def test_the_exit_of_a_block_of_the_program_may_swallow_an_exception() -> None:
    model = compat.GenericContextWrappingVariable
    of_the_program = [object.__new__(each) for each in (model, elided_contexts._Held)]
    of_torch = [object.__new__(compat.ContextWrappingVariable), *map(object.__new__, _of_torch())]
    for each in of_the_program:
        assert deferred_exceptions.handled_by_a_caller(_frame(_in_a_with, of_torch[0], each))
    assert len(of_torch) > 1
    assert not deferred_exceptions.handled_by_a_caller(_frame(_in_a_with, *of_torch))


def _of_torch() -> list[Any]:
    """Return the models of managers of torch's that Dynamo derives from those of programs."""
    derived = compat.GenericContextWrappingVariable.__subclasses__()
    return [each for each in derived if each.__module__.startswith("torch.")]
