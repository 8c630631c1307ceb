"""What torch asserts of sizes that only the data tell, while an arm is traced.

An operation such as ``x[1]`` says that there are two rows at least, and torch notes that for the
whole graph: it asserts it, and relies on it from there on. Of an operation in an arm that holds
only where the arm is taken. So what follows from the condition of the arm is not asserted at all,
and the rest is taken back when the arm has been traced: ``taken_back`` gives it to the arm, and
``again`` asserts it for the whole graph if the arm is run whatever its condition. Where it is not,
the operation fails by itself, as in eager execution.

Extends ``ShapeEnv.guard_or_defer_runtime_assert`` (torch/fx/experimental/symbolic_shapes.py).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final

import sympy
from torch.fx.experimental.symbolic_shapes import ShapeEnv, free_unbacked_symbols

from bcmend.runtime import sizes

__all__ = ["again", "install", "taken_back"]

_TORCHS: Final = ShapeEnv.guard_or_defer_runtime_assert
#: What torch keeps the answers of whatever it comes to know.
_REMEMBERED: Final[tuple[Any, ...]] = (
    ShapeEnv.guard_or_defer_runtime_assert,
    ShapeEnv._inner_evaluate_expr,
    ShapeEnv._maybe_guard_rel,
)


def _assert(self: Any, orig_expr: Any, *more: Any, **named: Any) -> bool:
    is_known = sizes.follows(self, orig_expr) is sympy.true
    return True if is_known else bool(_TORCHS(self, orig_expr, *more, **named))


@contextmanager
def taken_back(environment: Any) -> Iterator[list[Any]]:
    """Undo at the end of a block what was asserted in it of older numbers; yield a list of that."""
    found: list[Any] = []
    ranges, replacements = dict(environment.var_to_range), dict(environment.replacements)
    asserted = {key: len(each) for key, each in environment.deferred_runtime_asserts.items()}
    axioms = dict(environment.axioms)
    try:
        yield found
    finally:
        older: list[Any] = []
        fresh: list[Any] = []
        for key, every in environment.deferred_runtime_asserts.items():
            at = asserted.get(key, 0)
            is_older = key in ranges
            (older if is_older else fresh).extend(every[at:])
            if is_older:
                del every[at:]
        if older:
            found.extend(older)
            _restore(environment, ranges, replacements)
            for each in fresh:
                axioms.update(environment.get_implications(environment.simplify(each.expr)))
            environment.axioms.clear()
            environment.axioms.update(axioms)
            environment.num_deferred_runtime_asserts -= len(older)
            _forget_answers(environment)


def _restore(environment: Any, ranges: dict[Any, Any], replacements: dict[Any, Any]) -> None:
    """Forget what was found out of numbers since."""
    for symbol, known in ranges.items():
        if free_unbacked_symbols(symbol):
            environment.var_to_range[symbol] = known
    for symbol in environment.replacements.keys() - replacements.keys():
        if symbol in ranges and free_unbacked_symbols(symbol):
            del environment.replacements[symbol]


def _forget_answers(environment: Any) -> None:
    """Have torch look again at questions that it has answered by what it was told in an arm."""
    environment._version_counter += 1
    for function in _REMEMBERED:
        function.cache_clear()


def again(tx: Any, asserted: Iterable[Any]) -> None:
    """Assert where the trace is what was asserted in an arm."""
    for each in asserted:
        tx.output.shape_env.guard_or_defer_runtime_assert(each.expr, each.msg)


def install() -> None:
    """Let torch ask here first."""
    ShapeEnv.guard_or_defer_runtime_assert = _assert  # type: ignore[assignment, method-assign]
