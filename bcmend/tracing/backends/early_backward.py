"""Backwards of graphs that may fail to compile: compiled with their forward.

Torch compiles a backward when it is first called. A failure would reach the user then, and it is
too late to trace otherwise. Where gradients flow into tensors whose sizes only the data tell, the
back end is asked for the backward at once, and what it assumes of those sizes is looked at: a
forward of which an assumption fails is run again in Python, a backward is not. Nothing is assumed
by what follows from the trace, as ``4 <= u0 + u1`` does where the two lengths are 28 together.

Works round AOTAutograd, which compiles such a backward late, or early and keeps the failure to
itself. Reproduced on torch 2.13.0; no issue is known. What has the backward compiled early can go
when ``test_a_backward_that_does_not_compile_fails_when_it_is_called`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails; what looks at assumptions stays.

A backward is also given the fractions that sizes are computed of, as in ``int(length.item())``:
AOTAutograd gives it the integers alone, and Inductor does not find the others. That can go when
``test_a_backward_is_not_given_fractions_that_sizes_are_made_of`` in the same file fails.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import sympy
import torch
from torch.fx import Graph, Node

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot


class _Asked(NamedTuple):
    """What is called where a compiled graph cannot be used, and whether it is used all the same."""

    instead: Callable[[], None]
    is_used: bool


_ASKED: Final[Slot[_Asked | None]] = Slot(lambda: None, rolls_back=False)


def compile_with_forward(
    output: compat.OutputGraph, instead: Callable[[], None], *, is_used: bool
) -> None:
    """Have the back end compile the backward of a graph together with its forward.

    ``instead`` is called, and raises, where the graph cannot be used since it assumes too much.
    Where ``is_used``, it is called if the back end fails, and may return: then the backward is
    compiled, or fails, when it is called.
    """
    _ASKED.put(output, _Asked(instead, is_used))


@hooks.around(
    compat.OutputGraph, methods.CALL_BACK_END, "backwards that may fail", gate=None, place=2
)
def _compile(inner: Any, output: compat.OutputGraph, *more: Any) -> Any:
    asked = _ASKED.of(output)
    if asked is None:
        return inner(output, *more)
    environment = output.shape_env
    known, ranges = set(map(renumbered, _assertions(environment))), dict(environment.var_to_range)
    try:
        with compat.functorch_config.patch(force_non_lazy_backward_lowering=True):
            compiled = inner(output, *more)
    except Exception:
        if not asked.is_used:
            raise
        asked.instead()
        return inner(output, *more)
    assertions = _assertions(environment)
    if not asked.is_used and not all(
        which_follow(assertions, known, ranges, _guarded(environment))
    ):
        asked.instead()
    return compiled


_FRACTIONS: Final = "fractions that a backward needs"


@hooks.around(compat.partitioners, methods.BINDS_SYMBOL, _FRACTIONS, gate=None)
def _binds(inner: Any, node: Node) -> Any:
    found = inner(node)
    return _fraction_of(node) if found is None else found


@hooks.around(compat.partitioners, methods.BINDERS_OF_SYMBOLS, _FRACTIONS, gate=None)
def _binders(inner: Any, graph: Graph) -> dict[Any, Node]:
    binders: dict[Any, Node] = inner(graph)
    for node in graph.nodes:
        if (symbol := _fraction_of(node)) is not None:
            binders.setdefault(symbol, node)
    return binders


def _fraction_of(node: Node) -> Any:
    """Return the symbol of a fraction that a node takes out of a tensor; ``None`` for others."""
    value = node.meta.get("val")
    expression = value.node.expr if isinstance(value, torch.SymFloat) else None
    is_taken = isinstance(expression, sympy.Symbol) and bool(
        compat.free_unbacked_symbols(expression)
    )
    return expression if is_taken else None


def _guarded(environment: Any) -> list[tuple[Any, Any]]:
    """Return sizes of arguments with what guards have them be."""
    known: list[tuple[Any, Any]] = list(environment.replacements.items())
    return [pair for pair in known if not any(map(compat.free_unbacked_symbols, pair))]


def _assertions(environment: Any) -> Iterator[Any]:
    """Yield what is asserted of data-dependent numbers."""
    for asserts in environment.deferred_runtime_asserts.values():
        yield from (each.expr for each in asserts)


def which_follow(
    assertions: Iterable[Any],
    known: Collection[str],
    ranges: Mapping[Any, Any],
    guarded: Iterable[tuple[Any, Any]] = (),
) -> Iterator[bool]:
    """Yield of each assertion whether it is of a known form, or follows from those that are.

    Each stage names numbers anew, asserts again what it knows of their range, and that a number
    which it has named anew is the same. ``ranges`` are those of numbers of the trace, ``guarded``
    sizes of arguments with what guards say that they are.
    """
    given, others = list[Any](), list[Any]()
    for each in assertions:
        (given if is_renaming(each) or renumbered(each) in known else others).append(each)
    equal = _solved((each for each in given if isinstance(each, sympy.Eq)), guarded)
    return (_holds(_put_in(each, equal), ranges) for each in others)


def _solved(equations: Iterable[Any], guarded: Iterable[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    """Return numbers with what they are, to be put in one by one: a number of each equation.

    Numbers that are named anew come first: the ranges of the first names are known.
    """
    found = list(guarded)
    for each in sorted(equations, key=is_renaming, reverse=True):
        equation = _put_in(each, found)
        unbacked = compat.free_unbacked_symbols(equation)
        symbols = [*_in_order(unbacked), *_in_order(equation.free_symbols - unbacked)]
        in_turn = reversed(symbols) if is_renaming(each) else symbols
        solved = ((symbol, compat.try_solve(equation, symbol)) for symbol in in_turn)
        found += [(symbol, one[1]) for symbol, one in solved if one is not None][:1]
    return found


def _put_in(expression: Any, known: Iterable[tuple[Any, Any]]) -> Any:
    for symbol, value in known:
        expression = expression.subs(symbol, value)
    return expression


def _holds(assertion: Any, ranges: Mapping[Any, Any]) -> bool:
    """Return whether an assertion holds for all numbers in some ranges."""
    if isinstance(assertion, sympy.core.relational.Relational):
        assertion = assertion.func(sympy.expand(assertion.lhs - assertion.rhs), 0)
    return bool(compat.bound_sympy(assertion, dict(ranges)).lower == sympy.true)


def is_renaming(assumption: Any) -> bool:
    """Return whether something says of one number where it lies, or that two are the same."""
    sides = assumption.args
    if isinstance(assumption, sympy.Eq):
        return all(each.is_Symbol for each in sides)
    is_order = isinstance(assumption, sympy.core.relational._Inequality)
    return is_order and any(each.is_Symbol for each in sides) and any(map(_is_number, sides))


def _is_number(side: Any) -> bool:
    return bool(side.is_number)


def renumbered(assumption: Any) -> str:
    """Return an assumption with the numbers called by their order in it."""
    names = enumerate(_in_order(assumption.free_symbols))
    return str(assumption.xreplace({each: sympy.Symbol(f"n{place}") for place, each in names}))


def _in_order(symbols: Iterable[Any]) -> list[Any]:
    """Return numbers, those first that were made first."""
    return sorted(symbols, key=lambda each: (len(each.name), each.name))
