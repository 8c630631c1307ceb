"""What traces leave: no weak reference to a tensor of the program, for which it may ask."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

State = SimpleNamespace


def _state() -> State:
    return State(t=torch.arange(3.0), u=torch.ones(3))


def swaps(p: Tensor, s: State) -> Tensor:
    if p.max() > 0:
        torch.utils.swap_tensors(s.t, s.u)
    return p * 2 + s.t


def _swap(s: State) -> None:
    torch.utils.swap_tensors(s.t, s.u)


def swaps_in_a_helper(p: Tensor, s: State) -> Tensor:
    if p.max() > 0:
        _swap(s)
    return p * 2 + s.t


def swaps_behind_the_first_read(p: Tensor, s: State) -> Tensor:
    y = p * 2 + s.t
    if p.max() > 0:
        torch.utils.swap_tensors(s.t, s.u)
    return y - s.t


def swaps_in_a_loop(p: Tensor, s: State) -> Tensor:
    while p.sum() < 8:
        torch.utils.swap_tensors(s.t, s.u)
        p = p + 1 + s.t
    return p


def swaps_in_a_block(p: Tensor, s: State) -> Tensor:
    try:
        if p.max() > 0:
            torch.utils.swap_tensors(s.t, s.u)
            raise ValueError
    except ValueError:
        p = p + 1
    return p * 2 + s.t


def selects(p: Tensor, s: State) -> Tensor:
    y = p * 2 + s.t
    if p.max() > 0:
        y = y * s.u
    return y


def chooses(p: Tensor, s: State) -> Tensor:
    if p.max() > 0:
        return torch.linalg.inv(p[:, None] * s.t + torch.eye(3) * 9)
    return torch.linalg.svd(p[:, None] * s.t)[0]


def chooses_draws(p: Tensor, s: State) -> Tensor:
    if p.max() > 0:
        return torch.rand_like(s.t) * 0 + p
    return p * s.t


def loops(p: Tensor, s: State) -> Tensor:
    y = p.sum()
    while y < 10:
        y = y + s.t.sum()
    return y


def checks(p: Tensor, s: State) -> Tensor:
    if (p > 100).any():
        raise ValueError(p)
    return p * 2 + s.t


def prints(p: Tensor, s: State) -> Tensor:
    y = p * 2 + s.t
    print(y.sum())
    return y


def stores(p: Tensor, s: State) -> Tensor:
    if p.max() > 0:
        s.v = p + 1
        s.l = [s.t, p]
    return p * s.t


def breaks(p: Tensor, s: State) -> Tensor:
    y = p * s.t
    if p.max() > 0:
        torch._dynamo.graph_break()
        y = y + 1
    return y


def handles(p: Tensor, s: State) -> Tensor:
    try:
        if p.max() > 0:
            raise ValueError
        y = p * s.t
    except ValueError:
        y = p - s.t
    return y


def keeps(p: Tensor, s: State) -> Any:
    if p.sum() > 0:
        s.r = None
    return p + 1


def makes(p: Tensor, s: State) -> Any:
    if p.sum() > 0:
        s.r = weakref.ref(s.u)
    return p + 1


def returns(p: Tensor, s: State) -> Any:
    r = s.r
    if p.sum() > 0:
        r = None
    return [r], p


def exchanges(p: Tensor, s: State) -> Any:
    if p.sum() > 0:
        s.r, s.other = s.other, s.r
    return p + 1


def follows(p: Tensor, s: State) -> Any:
    r = s.r
    if r is not None and p.sum() > 0:
        p = p + r()
    else:
        r = s.other
    return p, r


Program = Callable[[Tensor, State], Any]

SWAPPING: list[Program] = [
    swaps,
    swaps_in_a_helper,
    swaps_behind_the_first_read,
    swaps_in_a_loop,
    swaps_in_a_block,
]
OTHERS: list[Program] = [
    selects,
    chooses,
    chooses_draws,
    loops,
    checks,
    prints,
    stores,
    breaks,
    handles,
]
POLICIES = {"behind": bcmend.Policy(), "ahead": bcmend.Policy(mend="ahead")}


@pytest.fixture
def _nothing_is_collected(dynamo_begun_anew: None) -> Iterator[None]:
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.usefixtures("_nothing_is_collected")
@pytest.mark.parametrize("is_leaf", [False, True], ids=["values", "gradients"])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("program", [*SWAPPING, *OTHERS])
def test_no_weak_reference_is_left(program: Program, policy: str, is_leaf: bool) -> None:
    bcmend.patch(program, policy=POLICIES[policy])
    compiled = torch.compile(program, backend="eager")
    for sign in (1, -1, 1):
        state = _state()
        for each in (state.t, state.u):
            each.requires_grad_(is_leaf)
        compiled(torch.ones(3) * sign, state)
        assert not weakref.getweakrefs(state.t) and not weakref.getweakrefs(state.u)


@pytest.mark.usefixtures("_nothing_is_collected")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", SWAPPING)
def test_what_a_trace_has_looked_at_may_be_swapped(program: Program, backend: str) -> None:
    signs = (1, -1, -1, 1)
    expected, found = _state(), _state()
    results = [program(torch.ones(3) * sign, expected) for sign in signs]
    compiled = torch.compile(bcmend.patch(program), backend=backend)
    for sign, result in zip(signs, results, strict=True):
        torch.testing.assert_close(compiled(torch.ones(3) * sign, found), result)
    torch.testing.assert_close(vars(found), vars(expected))


@pytest.mark.usefixtures("_nothing_is_collected")
def test_what_is_captured_may_be_swapped_afterwards() -> None:
    for program in OTHERS:
        state = _state()
        torch.compile(bcmend.patch(program), backend="eager")(torch.ones(3), state)
        torch.utils.swap_tensors(state.t, state.u)
        assert torch.equal(state.u, torch.arange(3.0))


class Referring:
    """Has weak references to its tensors."""

    def __init__(self) -> None:
        self.t, self.u = torch.arange(3.0), torch.ones(3)
        self.r: Any = weakref.ref(self.t)
        self.other = weakref.ref(self.u)

    def which(self, value: object) -> str:
        """Return what a reference refers to, and that it is one."""
        if value is None:
            return "none"
        assert isinstance(value, weakref.ref)
        return next(name for name in "tu" if value() is getattr(self, name))


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize("program", [keeps, makes, returns, exchanges, follows])
def test_weak_references_of_the_program_stay_weak(program: Any, backend: str) -> None:
    compiled = torch.compile(bcmend.patch(program), backend=backend)
    expected, found = Referring(), Referring()
    for sign in (-1, 1, -1, 1):
        here, there = program(torch.ones(3) * sign, expected), compiled(torch.ones(3) * sign, found)
        assert found.which(found.r) == expected.which(expected.r)
        assert found.which(found.other) == expected.which(expected.other)
        if program is returns:
            assert found.which(there[0][0]) == expected.which(here[0][0])
            here, there = here[1], there[1]
        if program is follows:
            assert found.which(there[1]) == expected.which(here[1])
            here, there = here[0], there[0]
        assert torch.equal(here, there)
