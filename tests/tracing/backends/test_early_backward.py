"""Gradients of data-dependent sizes are captured where the back end can compile their backward."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import sympy
import torch
from torch import Tensor
from torch.nn.functional import pad

import bcmend
from bcmend.dynamo import compat
from bcmend.tracing.backends.early_backward import is_renaming, renumbered, which_follow
from corpus.models.measure import CountingBackend

Program = Callable[[Tensor, Tensor], Tensor]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def stored(x: Tensor, w: Tensor) -> Tensor:
    found = (x > 0).nonzero().squeeze(-1)
    result = torch.zeros_like(x)
    result[found] = (x[found] * w[found]).exp()
    return result @ w


def outer(x: Tensor, w: Tensor) -> Tensor:
    """Of which the backward asks whether a size is one."""
    found = (x > 0).nonzero().squeeze(-1)
    y = torch.softmax(x[found] * w[found], 0)
    return (y[:, None] @ y[None]).sum() * w


def multiplied(x: Tensor, w: Tensor) -> Tensor:
    """Of which the backward asks how many are zero."""
    found = (x > 0).nonzero().squeeze(-1)
    return torch.softmax(x[found] * w[found], 0).cumprod(0).sum() * w


CALLS = [[1.0, 2, -3, 4], [-1.0, -2, -3, -4], [1.0, -1, -1, -1], [1.0, 2, 3, 4]]


def _outcome(called: Program, values: list[float]) -> list[Tensor]:
    x = torch.tensor(values, requires_grad=True)
    w = torch.linspace(-1, 2, 4).requires_grad_()
    result = called(x, w)
    return [result, *torch.autograd.grad(result.sum(), (x, w))]


def _graphs(program: Program, backend: Any) -> int:
    """Check that all is as in eager execution; return how many graphs a first call has."""
    expected = [_outcome(program, each) for each in CALLS]
    compiled = torch.compile(bcmend.patch(program), backend=backend)
    found = [_outcome(compiled, CALLS[0])]
    count: int = backend.graphs
    found += [_outcome(compiled, each) for each in CALLS[1:]]
    torch.testing.assert_close(found, expected)
    return count


@pytest.mark.parametrize(
    ("program", "backend"), [(stored, "aot_eager"), (stored, "inductor"), (outer, "aot_eager")]
)
def test_a_backward_that_compiles_is_of_one_graph(program: Program, backend: str) -> None:
    assert _graphs(program, CountingBackend(backend)) == 1


def test_a_backward_that_does_not_compile_leaves_the_numbers() -> None:
    assert _graphs(multiplied, CountingBackend("aot_eager")) > 1


def _in_parts(x: Tensor, masks: Tensor, lengths: Tensor) -> Tensor:
    """Of which the backward asks whether there are so many rows as the first parts have."""
    rows = x[torch.cat([each.nonzero().squeeze(1) for each in masks])]
    parts = torch.split(rows, lengths[lengths > 0].tolist())
    return (rows + torch.cat([each.softmax(0) for each in parts])).sin()


def test_what_follows_from_what_the_trace_asserts_is_no_assumption() -> None:
    masks = torch.tensor([[True, False, True, True], [False, True, True, False]])
    backend = CountingBackend("aot_eager")
    compiled = torch.compile(bcmend.patch(_in_parts), backend=backend)
    for number, lengths in enumerate([[2, 2, 1], [1, 0, 4], [3, 1, 1]]):
        results = []
        for run in (_in_parts, compiled):
            x = torch.linspace(-1, 2, 12).view(4, 3).requires_grad_()
            result = run(x, masks, torch.tensor(lengths))
            results += [result, *torch.autograd.grad(result.sum(), x)]
        torch.testing.assert_close(results[2:], results[:2])
        assert backend.graphs <= number + 1


class _Assuming(CountingBackend):
    """A back end that asserts something of each data-dependent size."""

    def __init__(self, check: Callable[[Any], None]) -> None:
        super().__init__("aot_eager")
        self.check = check

    def __call__(self, module: torch.fx.GraphModule, inputs: Any) -> Any:
        for node in module.graph.nodes:
            example = node.meta.get("example_value")
            if isinstance(example, Tensor):
                for each in example.shape:
                    if isinstance(each, torch.SymInt):
                        self.check(each)
        return super().__call__(module, inputs)


@pytest.mark.parametrize(
    ("check", "is_one"),
    [(lambda size: torch._check(size <= 4), True), (lambda size: torch._check(size != 3), False)],
)
def test_a_back_end_that_assumes_more_leaves_the_numbers(
    check: Callable[[Any], None], is_one: bool
) -> None:
    assert (_graphs(stored, _Assuming(check)) == 1) is is_one


A, B = sympy.symbols("u7 u12", integer=True)


@pytest.mark.parametrize(
    ("assumption", "renames"),
    [
        (sympy.Le(A, 4), True),
        (sympy.Ge(A, 0), True),
        (sympy.Eq(A, B), True),
        (sympy.Eq(A, 4), False),
        (sympy.Ne(A, 4), False),
        (sympy.Ne(A, B), False),
        (sympy.Le(A, B), False),
        (sympy.Le(2 * A, 9), False),
        (sympy.Eq(A, 2 * B), False),
    ],
)
def test_what_only_names_a_number_anew(assumption: Any, renames: bool) -> None:
    assert is_renaming(assumption) is renames


def test_the_form_of_an_assumption_has_no_names() -> None:
    later = sympy.symbols("u90 u101", integer=True)
    first = sympy.Eq(3 * A, B)
    assert renumbered(first) == renumbered(first.xreplace(dict(zip((A, B), later, strict=True))))
    assert renumbered(first) != renumbered(sympy.Eq(A, 3 * B))


C, D = sympy.symbols("u13 u14", integer=True)
RANGES = {each: compat.ValueRanges(0, 40) for each in (A, B)}


@pytest.mark.parametrize(
    ("assertion", "follows"),
    [
        (sympy.Le(12, A + B), True),
        (sympy.Le(B, 28 + D), False),
        (sympy.Le(C + D, 28 + D), True),
        (sympy.Ge(12, A + B), False),
        (sympy.Eq(A + B, D + C), False),
        (sympy.Eq(A + B, C + B), True),
        (sympy.Le(A, D), False),
        (sympy.Le(2 * A, 50), False),
        (sympy.Le(2 * A, 80), True),
        (sympy.Ne(A + B, 3), True),
        (sympy.Ne(A, 3), False),
    ],
)
def test_what_follows_from_assertions_of_known_forms(assertion: Any, follows: bool) -> None:
    together, renamed = sympy.Eq(A + B, 28), sympy.Eq(A, C)
    assert (
        all(which_follow([together, renamed, assertion], {renumbered(together)}, RANGES)) is follows
    )


def test_an_assertion_does_not_follow_from_itself() -> None:
    assert not all(which_follow([sympy.Eq(A, 4), sympy.Le(2 * A, 9)], set(), RANGES))


def test_what_follows_from_a_guard_on_a_size() -> None:
    size = sympy.Symbol("s3", integer=True, positive=True)
    together, follows = sympy.Eq(A + B, size + D), sympy.Le(D, A + B)
    assertions, known = (
        [together, sympy.Eq(A + B, D + 1), follows],
        {renumbered(together)},
    )
    assert not all(which_follow(assertions, known, RANGES))
    assert all(which_follow(assertions, known, RANGES, [(size, sympy.Integer(1))]))


def test_what_follows_from_two_ways_to_count_together() -> None:
    sizes = sympy.symbols("s3 s4", integer=True, positive=True)
    given = [sympy.Eq(A + B, 60), sympy.Eq(sum(sizes) + 40, A + B)]
    known, ranges = (
        set(map(renumbered, given)),
        RANGES | dict.fromkeys(sizes, compat.ValueRanges(2, 90)),
    )
    assert all(which_follow([*given, sympy.Le(sizes[0] + 40, A + B)], known, ranges))
    assert not all(which_follow([*given, sympy.Le(sizes[0] + 60, A + B)], known, ranges))


def lengthened(rows: Tensor, lengths: Tensor) -> Tensor:
    """Rows that are repeated as fractions say, as regulators of lengths do."""
    found = [
        row.expand(max(int(each.item()), 0), -1) for row, each in zip(rows, lengths, strict=True)
    ]
    longest = max(each.shape[0] for each in found)
    padded = [pad(each, (0, 0, 0, longest - each.size(0))) for each in found]
    return torch.stack(padded).sin()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_a_backward_is_given_the_fractions_that_sizes_are_made_of(backend: str) -> None:
    compiled = torch.compile(bcmend.patch(lengthened), backend=backend, fullgraph=True)
    for counts in ([1.0, 2.5], [3.0, 0.0], [2.0, -1.0]):
        lengths = torch.tensor(counts)
        rows = torch.ones(2, 1, 3, requires_grad=True)
        found, expected = compiled(rows, lengths), lengthened(rows, lengths)
        assert torch.allclose(found, expected)
        for one, other in zip(
            *(torch.autograd.grad(each.pow(2).sum(), rows) for each in (found, expected)),
            strict=True,
        ):
            assert torch.allclose(one, other)
