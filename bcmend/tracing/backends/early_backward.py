"""Backwards of graphs that may fail to compile: compiled with their forward.

Torch compiles a backward when it is first called. A failure would reach the user then, and it is
too late to trace otherwise. Where gradients flow into tensors whose sizes only the data tell, the
back end is asked for the backward at once, and what it assumes of those sizes is looked at: a
forward of which an assumption fails is run again in Python, a backward is not.

Works round AOTAutograd, which compiles such a backward late, or early and keeps the failure to
itself. Reproduced on torch 2.13.0; no issue is known. What has the backward compiled early can go
when ``test_a_backward_that_does_not_compile_fails_when_it_is_called`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails; what looks at assumptions stays.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import sympy

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot

#: What is called where a compiled graph assumes more than what was traced.
_INSTEAD: Final[Slot[Callable[[], None] | None]] = Slot(lambda: None, rolls_back=False)


def compile_with_forward(output: compat.OutputGraph, instead: Callable[[], None]) -> None:
    """Have the back end compile the backward of a graph together with its forward.

    ``instead`` is called, and raises, where the graph cannot be used since it assumes too much.
    """
    _INSTEAD.put(output, instead)


@hooks.around(
    compat.OutputGraph, methods.CALL_BACK_END, "backwards that may fail", gate=None, place=2
)
def _compile(inner: Any, output: compat.OutputGraph, *more: Any) -> Any:
    instead = _INSTEAD.of(output)
    if instead is None:
        return inner(output, *more)
    known = set(_assumptions(output.shape_env))
    with compat.functorch_config.patch(force_non_lazy_backward_lowering=True):
        compiled = inner(output, *more)
    if not known.issuperset(_assumptions(output.shape_env)):
        instead()
    return compiled


def _assumptions(environment: Any) -> Iterator[str]:
    """Yield what is asserted of data-dependent numbers, whatever they are called.

    Each stage names them anew, asserts again what it knows of their range, and that a number which
    it has named anew is the same.
    """
    for asserts in environment.deferred_runtime_asserts.values():
        for each in asserts:
            if not is_renaming(each.expr):
                yield form(each.expr)


def is_renaming(assumption: Any) -> bool:
    """Return whether something says of one number where it lies, or that two are the same."""
    sides = assumption.args
    if isinstance(assumption, sympy.Eq):
        return all(each.is_Symbol for each in sides)
    is_order = isinstance(assumption, sympy.core.relational._Inequality)
    return is_order and any(each.is_Symbol for each in sides) and any(map(_is_number, sides))


def _is_number(side: Any) -> bool:
    return bool(side.is_number)


def form(assumption: Any) -> str:
    """Return an assumption with the numbers called by their order in it."""
    names = sorted(assumption.free_symbols, key=lambda each: (len(each.name), each.name))
    new = {each: sympy.Symbol(f"n{place}") for place, each in enumerate(names)}
    return str(assumption.xreplace(new))
