"""Every reason in the table is given to a program that deserves it, and its hint helps.

Beside each program stands the same program changed as the hint says, which has that refusal no
more.
"""

from __future__ import annotations

import copy
import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

import bcmend
from bcmend.reasons import REASONS
from bcmend.tracing.search import budget
from tests.equivalence import fresh
from tests.registrations import registrations_undone

Program = Callable[..., Any]


@dataclass(frozen=True)
class Provocation:
    """A program that gets a refusal, and one that follows the hint.

    ``run`` makes one call; ``None`` where the refusal shows without.
    """

    slug: str
    program: Program
    better: Program
    policy: bcmend.Policy = field(default_factory=bcmend.Policy)
    better_policy: bcmend.Policy = field(default_factory=bcmend.Policy)
    run: Callable[[Program], object] | None = None


def _compiled(*arguments: Tensor, grad: bool = False) -> Callable[[Program], object]:
    def run(program: Program) -> object:
        inputs = [each.clone().requires_grad_(grad) for each in arguments]
        with torch.set_grad_enabled(grad):
            return torch.compile(program, backend="eager")(*inputs)

    return run


X = torch.tensor([1.0, 2.0, 3.0])
ON_X = _compiled(X)
LARGE = torch.ones(1000, 1000)


def _simple(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return x - 1


def _printing(x: Tensor) -> Tensor:
    print("shape", x.shape)
    return x + 1


def _generator(x: Tensor) -> Iterator[Tensor]:
    if x.sum() > 0:
        yield x


async def _coroutine(x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    return x


def _handing_out(x: Tensor) -> Iterator[Tensor]:
    return _generator(x)


def _starting(x: Tensor) -> object:
    return _coroutine


def _introspecting(x: Tensor) -> int:
    if x.sum() > 0:
        return len(locals())
    return 0


def _returning_in_a_handler(x: Tensor) -> Tensor:
    try:
        y = {"a": x}["b"]
    except KeyError:
        if x.sum() > 0:
            return x + 1
        return x - 1
    return y


def _returning_after_the_handler(x: Tensor) -> Tensor:
    try:
        y = {"a": x}["b"]
    except KeyError:
        y = None
    if y is None:
        if x.sum() > 0:
            return x + 1
        return x - 1
    return y


def _exits(x: Tensor, steps: tuple[float, ...]) -> Tensor:
    for step in steps:
        x = x * step
        if x.sum() > 1e6:
            break
    return x


def _thirty_exits(x: Tensor) -> Tensor:
    return _exits(x, (1.5,) * 30)


def _five_exits(x: Tensor) -> Tensor:
    return _exits(x, (1.5,) * 5)


def _twelve_exits(x: Tensor) -> Tensor:
    return _exits(x, (1.5,) * 12)


def _one_exit(x: Tensor) -> Tensor:
    return _exits(x, (1.5,))


def _run_with_long_steps(program: Program) -> object:
    """Make a call while each look at the meter takes half of the steps that there are."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(budget, "now", itertools.count(step=budget.BRANCHES // 2).__next__)
        return ON_X(program)


def _leaf_or_new(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x if x.sum() > 0 else x * 2


def _new_on_both_sides(x: Tensor) -> Tensor:
    with torch.no_grad():
        return x * 1 if x.sum() > 0 else x * 2


def _setting_in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        torch.set_default_dtype(torch.float64)
        torch.set_default_dtype(torch.float16)
    torch.set_default_dtype(torch.float32)
    return x


def _setting_before(x: Tensor) -> Tensor:
    torch.set_default_dtype(torch.float32)
    if x.sum() > 0:
        x = x + 1
    return x


def _hooked_in_an_arm(x: Tensor) -> Tensor:
    y = x * 1
    if x.sum() > 0:
        y.register_hook(lambda gradient: gradient * 2)
    return y


def _hooked_before(x: Tensor) -> Tensor:
    y = x * 1
    scale = torch.where(x.sum() > 0, 2, 1)
    y.register_hook(lambda gradient: gradient * scale)
    return y


def _forgetting_a_gradient(x: Tensor, weight: Tensor) -> Tensor:
    weight.grad = torch.ones(3)
    if x.sum() > 0:
        weight.grad = None
    return x * weight


def _zeroing_a_gradient(x: Tensor, weight: Tensor) -> Tensor:
    weight.grad = torch.ones(3)
    if x.sum() > 0:
        weight.grad = torch.zeros(3)
    return x * weight


def _writing_in_an_arm(x: Tensor, total: Tensor) -> Tensor:
    y = x * 1
    z = y * total
    if x.sum() > 0:
        y.add_(total)
    return y + z


def _writing_after_the_arms(x: Tensor, total: Tensor) -> Tensor:
    y = x * 1
    z = y * total
    if x.sum() > 0:
        y = y + total
    return y + z


def _leaving_the_graph(x: Tensor) -> Tensor:
    if x.sum() > 0:
        torch._dynamo.graph_break()
        x = x + 1
    return x


@torch.library.custom_op("bcmend_test_provoked::own", mutates_args=())
def _own(x: Tensor) -> Tensor:
    return x * 1


_own.register_fake(torch.empty_like)
_own.register_autograd(lambda ctx, gradient: gradient)


def _own_in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return _own(x)
    return x * 2


def _own_before(x: Tensor) -> Tensor:
    y = _own(x)
    if x.sum() > 0:
        return y * 1
    return x * 2


def _dropping_in_an_arm(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x * torch.bernoulli((x * 0.1).detach())
    return x + 1


def _dropping_before(x: Tensor) -> Tensor:
    dropped = functional.dropout(x, 0.5, training=True)
    if x.sum() > 0:
        return dropped * 1
    return x + 1


def _testing_many(x: Tensor) -> Tensor:
    if x > 0:
        return x + 1
    return x - 1


def _testing_any(x: Tensor) -> Tensor:
    if (x > 0).any():
        return x + 1
    return x - 1


def _run_with_a_failing_back_end(program: Program) -> object:
    calls = []

    def back_end(module: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        calls.append(module)
        if len(calls) == 1 and any(node.target is torch.where for node in module.graph.nodes):
            raise RuntimeError("cannot compile")
        return module

    return torch.compile(program, backend=back_end)(X)


def _run_with_a_sound_back_end(program: Program) -> object:
    return torch.compile(program, backend="eager")(X)


def _checking(x: Tensor) -> Tensor:
    if x.sum() < 0:
        raise ValueError("negative")
    return x + 1


def _reshaping(x: Tensor) -> Tensor:
    if x.sum() < 0:
        x = x.reshape(7)
    return x + 1


def _checking_in_try(x: Tensor) -> Tensor:
    x.add_(1)  # too large to be kept, so that the call could be made a second time
    try:
        if x.sum() < 0:
            raise ValueError("negative")
        y = x + 1
    finally:
        x.size()
    return y


def _checking_before_try(x: Tensor) -> Tensor:
    if x.sum() < 0:
        raise ValueError("negative")
    try:
        y = x + 1
    finally:
        x.size()
    return y


def _maker(x: Tensor) -> Callable[[Tensor], Tensor]:
    return x.add


def _generator_in_a_block(x: Tensor) -> Tensor:
    def numbers() -> Iterator[int]:
        with torch.no_grad():
            yield 1
            yield 2

    given = numbers()
    y = x + next(given)
    if x.sum() > 0:
        y = x + next(given)
    return y


def _list_of_its_items(x: Tensor) -> Tensor:
    given = [1, 2]
    y = x + given[0]
    if x.sum() > 0:
        y = x + given[1]
    return y


def _chosen(x: Tensor, y: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return y


def _alias_written_later(x: Tensor) -> Tensor:
    y = x * 1
    z = _chosen(x, y)
    y.add_(1)
    return z


def _copied_or_new(x: Tensor, y: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    return y.clone()


def _copy_made_in_the_branch(x: Tensor) -> Tensor:
    y = x * 1
    z = _copied_or_new(x, y)
    y.add_(1)
    return z


def _indexing(x: Tensor, index: Tensor) -> Tensor:
    if x.sum() > 0:
        return x[index]
    return x - 1


def _copying_deeply(x: Tensor) -> Tensor:
    return copy.deepcopy(x) + x


def _cloning(x: Tensor) -> Tensor:
    return x.detach().clone().requires_grad_() + x


def _binding_in_one_case(x: Tensor) -> Tensor:
    print(f"{(total := x.sum()).item():.1f}" if x.dim() else "no sum")
    return total


def _binding_before(x: Tensor) -> Tensor:
    total = x.sum()
    print(f"{total.item():.1f}" if x.dim() else "no sum")
    return total


def _printing_an_iterator(x: Tensor) -> Tensor:
    shown = map(str, [1, 2])
    print(shown)
    return x + 1


def _printing_a_list(x: Tensor) -> Tensor:
    print([x])
    return x + 1


def _export(program: Program) -> object:
    return torch._dynamo.export(program)(X)


FIRST = bcmend.Policy(verify="first")
#: No condition of a refused branch is computed in front of the graph.
IN_THE_GRAPH = bcmend.Policy(numbers="graph")


@torch._dynamo.disable  # type: ignore[untyped-decorator]
def _doubled(x: Tensor) -> Tensor:
    return x * 2


def _substituted(x: Tensor) -> Tensor:
    x = x if x.sum() > 100 else x + 1
    return _doubled(x) - 1


def _doubling_itself(x: Tensor) -> Tensor:
    x = x if x.sum() > 100 else x + 1
    return x * 2 - 1


def _with_a_wrong_substitute(program: Program) -> object:
    # What stands for a call has to be equal; the report of this one is the author's own.
    with registrations_undone():
        bcmend.register_capture(_doubled, lambda x: x * 3)
        for _ in range(2):
            found = ON_X(program)
    return found


ON_NUMBERS = _compiled(X, torch.tensor([0, 1, 2]))

PROVOCATIONS = (
    Provocation("switched-off", _simple, _simple, policy=bcmend.Policy(off=("*",))),
    Provocation("policy-keep", _checking, _checking, policy=bcmend.Policy(guards="keep")),
    Provocation("generator", _handing_out, _simple, run=ON_X),
    Provocation("coroutine", _starting, _simple),
    Provocation("frame-introspection", _introspecting, _simple),
    Provocation("return-in-try", _returning_in_a_handler, _returning_after_the_handler),
    Provocation("consumes-iterator", _generator_in_a_block, _list_of_its_items, run=ON_X),
    Provocation("too-deep", _thirty_exits, _five_exits, run=ON_X),
    Provocation("search-too-long", _twelve_exits, _one_exit, run=_run_with_long_steps),
    Provocation("arms-differ", _leaf_or_new, _new_on_both_sides, run=_compiled(X, grad=True)),
    Provocation(
        "arm-effects", _writing_in_an_arm, _writing_after_the_arms, run=_compiled(X, X, grad=True)
    ),
    Provocation("arm-setting", _setting_in_an_arm, _setting_before, policy=IN_THE_GRAPH, run=ON_X),
    Provocation("arm-hook", _hooked_in_an_arm, _hooked_before, run=_compiled(X, grad=True)),
    Provocation(
        "arm-gradient", _forgetting_a_gradient, _zeroing_a_gradient, run=_compiled(X, X, grad=True)
    ),
    Provocation("arm-untraceable", _leaving_the_graph, _simple, run=ON_X),
    Provocation(
        "random-under-gradients",
        _dropping_in_an_arm,
        _dropping_before,
        run=_compiled(X, grad=True),
    ),
    Provocation("hidden-state", _own_in_an_arm, _own_before, run=_compiled(X, grad=True)),
    Provocation("multi-element-condition", _testing_many, _testing_any, run=ON_X),
    Provocation("not-captured", _simple, _simple, run=_run_with_a_failing_back_end),
    Provocation("handler-in-caller", _checking_in_try, _checking_before_try, run=_compiled(LARGE)),
    Provocation("alias-changed", _alias_written_later, _copy_made_in_the_branch, run=ON_X),
    Provocation(
        "where-would-speculate",
        _indexing,
        _indexing,
        policy=replace(IN_THE_GRAPH, branch="where"),
        run=ON_NUMBERS,
    ),
    Provocation("no-equal-substitute", _copying_deeply, _cloning, run=_compiled(X, grad=True)),
    Provocation(
        "differs", _substituted, _doubling_itself, FIRST, FIRST, run=_with_a_wrong_substitute
    ),
    Provocation("output-shape", _binding_in_one_case, _binding_before),
    Provocation("cannot-snapshot", _printing_an_iterator, _printing_a_list, run=ON_X),
    Provocation(
        "export",
        _reshaping,
        _checking,
        run=_export,
    ),
)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _refusals(
    program: Program, policy: bcmend.Policy, run: Callable[[Program], object] | None
) -> set[str | None]:
    torch._dynamo.reset()
    program = fresh(program)  # a site that was withdrawn stays so, for the same code
    bcmend.patch(program, policy=policy)
    try:
        if run is not None:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                try:
                    run(program)
                except (RuntimeError, torch._dynamo.exc.TorchDynamoException):
                    pass  # as it would without bcmend
        return {site.refusal for site in bcmend.report(program, policy=policy, ahead=True).sites}
    finally:
        bcmend.unpatch()


@pytest.mark.parametrize("case", PROVOCATIONS, ids=lambda case: case.slug)
def test_a_program_gets_the_refusal_and_following_its_hint_removes_it(case: Provocation) -> None:
    assert case.slug in _refusals(case.program, case.policy, case.run)
    run = _run_with_a_sound_back_end if case.slug == "not-captured" else case.run
    assert case.slug not in _refusals(case.better, case.better_policy, run)


def test_every_reason_is_provoked() -> None:
    # Another torch alone provokes the first: ``tests/dynamo/contract/test_changed_torch.py``; code
    # that no compiler writes the other.
    unknown_here = {"torch-differs", "stack-shape"}
    assert {case.slug for case in PROVOCATIONS} == set(REASONS) - unknown_here
