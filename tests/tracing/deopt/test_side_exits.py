"""Side exits: what they leave undone, when there are none, and when there are none any more."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo.utils import counters

import bcmend
from bcmend.reports.outcomes import SiteRecord
from bcmend.tracing.deopt import side_exits, undo_log
from bcmend.tracing.deopt.side_exits import SideExit, take_first
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.site_table import LiveSite
from tests.equivalence import assert_equivalent, call, fresh

POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])

Program = Callable[[Tensor], Tensor]


def _reshaping() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            x = x.view(2, 2)
        return x * 2

    return program


def _handling() -> Program:
    def check(x: Tensor) -> None:
        if x.sum() < 0:
            raise ValueError("negative")

    def program(x: Tensor) -> Tensor:
        try:
            check(x)
            x = x * 2
        except ValueError:
            x = x - 1
        return x

    return program


def _site(program: Program) -> SiteRecord:
    (site,) = bcmend.report(program).sites
    return site


def _both() -> list[Any]:
    return [call(POSITIVE.clone()), call(NEGATIVE.clone()), call(POSITIVE.clone())]


@pytest.mark.parametrize("make", [_reshaping, _handling])
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_the_call_is_made_in_plain_python(
    make: Callable[[], Program], backend: str, training: bool
) -> None:
    assert_equivalent(make, _both, backend=backend, training=training)


def test_nothing_that_the_graph_would_have_changed_has_changed() -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.last: Tensor | None = None
            self.seen: list[Tensor] = []

        def forward(self, x: Tensor, into: dict[str, Tensor]) -> Tensor:
            self.seen.append(x)
            into["x"] = x
            print("first")
            if x.sum() < 0:
                x = x.view(2, 2)
            self.last = x
            into["later"] = x
            print("second")
            return x * 2

    calls = [call(POSITIVE.clone(), {}), call(NEGATIVE.clone(), {})]
    assert_equivalent(Net, lambda: calls, recompiles=None, graphs=None)


def test_the_first_of_several_failures_is_the_one() -> None:
    def make() -> Program:
        def program(x: Tensor) -> Tensor:
            if x.max() < -5:
                raise KeyError("first")
            if x.sum() < 0:
                x = x.view(2, 2)
            if x.min() < -3:
                raise ValueError("third")
            return x * 2

        return program

    values = [POSITIVE, NEGATIVE, NEGATIVE * 2, NEGATIVE * 9, torch.tensor([9.0, 9.0, -4.0])]
    assert_equivalent(make, lambda: [call(each.clone()) for each in values])


def test_an_exit_in_an_arm_needs_both_conditions() -> None:
    def make() -> Program:
        def program(x: Tensor) -> Tensor:
            if x.sum() > 0:
                y = x * 2
                if x.min() < -3:
                    y = y.view(2, 2)
            else:
                y = x - 1
            return y

        return program

    values = [POSITIVE, NEGATIVE, NEGATIVE * 9, torch.tensor([9.0, 9.0, -4.0])]
    assert_equivalent(make, lambda: [call(each.clone()) for each in values])


def _fails(x: Tensor) -> Tensor:
    _TOTAL.add_(1)
    if x.sum() < -100:
        x = x.view(2, 2)
    return x


def _check(x: Tensor) -> None:
    if x.sum() < -100:
        raise ValueError("small")


def _is_not_handled(x: Tensor) -> Tensor:
    _TOTAL.add_(1)
    _check(x)
    return x * 2


#: Too large to be kept in case that a check fails.
_TOTAL = torch.zeros(undo_log.FREE)


def test_a_graph_that_cannot_be_thrown_away_has_none() -> None:
    calls = [call(POSITIVE.clone())]
    found = assert_equivalent(
        lambda: fresh(_fails), lambda: calls, fullgraph=False, graphs=None, recompiles=None
    )
    assert found.report is not None
    assert [site.refusal for site in found.report.sites] == ["arm-untraceable"]


def test_a_check_is_made_by_a_record_where_there_can_be_no_exit() -> None:
    calls = [call(POSITIVE.clone()), call(NEGATIVE * 50), call(POSITIVE.clone())]
    assert_equivalent(lambda: fresh(_is_not_handled), lambda: calls)


def _compiled(program: Program, *, fullgraph: bool) -> Program:
    torch._dynamo.reset()
    bcmend.patch(program)
    return torch.compile(program, backend="eager", fullgraph=fullgraph)


@pytest.mark.parametrize("fullgraph", [True, False])
def test_an_arm_that_does_not_fail_after_all_is_compiled_if_the_graph_may_break(
    fullgraph: bool,
) -> None:
    program = fresh(_handling)()
    compiled = _compiled(program, fullgraph=fullgraph)
    counters.clear()
    for x in (POSITIVE, NEGATIVE, NEGATIVE, POSITIVE):
        expected = x * 2 if x.sum() > 0 else x - 1
        assert torch.equal(compiled(x), expected)
    assert counters["stats"]["unique_graphs"] == (1 if fullgraph else 2)
    bcmend.unpatch()


def test_an_arm_that_does_fail_keeps_its_exit() -> None:
    program = fresh(_reshaping)()
    compiled = _compiled(program, fullgraph=False)
    for x in (POSITIVE, NEGATIVE, POSITIVE, NEGATIVE):
        if x is NEGATIVE:
            with pytest.raises(RuntimeError, match="is invalid for input of size 3"):
                compiled(x)
        else:
            assert torch.equal(compiled(x), x * 2)
    assert _site(program).status == "mended"
    bcmend.unpatch()


def test_a_call_without_a_boundary_is_made_again_in_its_frame() -> None:
    inner = bcmend.patch(fresh(_reshaping)())

    def caller(x: Tensor) -> Tensor:
        return inner(x) + 1

    torch._dynamo.reset()
    compiled = torch.compile(caller, backend="eager", fullgraph=True)
    assert torch.equal(compiled(POSITIVE), POSITIVE * 2 + 1)
    with pytest.raises(RuntimeError, match="is invalid for input of size 3"):
        compiled(NEGATIVE)
    bcmend.unpatch()


def _going_on_behind_a_break() -> Callable[[Tensor, int], Tensor]:
    def program(x: Tensor, n: int) -> Tensor:
        x.add_(1)
        torch._dynamo.graph_break()
        if x.sum() < 0:
            x = x.view(2, 2)
        return x * n

    return program


def test_what_went_before_a_break_is_not_done_again_when_the_rest_is_compiled_anew() -> None:
    """The second number has the function behind the break compiled a second time."""
    assert_equivalent(
        _going_on_behind_a_break,
        lambda: [
            call(each.clone(), n) for n in (0, 2, 3) for each in (NEGATIVE, POSITIVE, NEGATIVE - 5)
        ],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("is_piece", [True, False])
@pytest.mark.parametrize("counts", [True, False])
@pytest.mark.parametrize("is_checked", [True, False])
def test_a_call_whose_graph_fails_has_written_and_checked_what_comes_before(
    is_checked: bool, counts: bool, is_piece: bool, backend: str
) -> None:
    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = torch.nn.Embedding(4, 2)
            self.register_buffer("total", torch.zeros(()))
            self.count = 0

        def forward(self, ids: Tensor) -> Tensor:
            x = ids + torch.rand(2)
            if is_piece:
                torch._dynamo.graph_break()
            if counts:
                self.total.add_(1)
            if is_checked and ids.max() > 5:
                raise ValueError("too large")
            self.count += 1
            print("seen", ids.sum().item(), self.total.item())
            rows: Tensor = self.table(ids)
            if counts:
                self.total.mul_(2)
            print("behind")
            return rows + x[:, None] + torch.rand(())

    forward = Net.forward
    forward.__code__ = forward.__code__.replace(co_name=f"forward_{is_piece}_{is_checked}_{counts}")
    values = [[1, 2], [4, 5], [5, 6], [2, 3]]
    assert_equivalent(
        Net,
        lambda: [call(torch.tensor(each)) for each in values],
        fullgraph=not is_piece,
        graphs=None,
        recompiles=None,
        backend=backend,
    )


YES, NO = torch.tensor(True), torch.tensor(False)
UNCHANGED = ((), False)
NOTHING = None, ()


def _divides_by_zero(*arguments: object) -> None:
    raise ZeroDivisionError


def _succeeds(*arguments: object) -> None:
    pass


def test_no_exit_is_taken_where_no_condition_holds_and_no_trial_fails() -> None:
    trials = (("c", None, _succeeds, ()), ("d", NO, _divides_by_zero, ()))
    assert take_first(("a", "b"), True, False, UNCHANGED, trials, NOTHING, NO, NO) is False


def test_the_first_condition_that_holds_is_the_exit() -> None:
    with pytest.raises(SideExit) as caught:
        take_first(("a", "b"), True, False, UNCHANGED, (), NOTHING, NO, YES)
    assert (caught.value.key, caught.value.lasting) == ("b", False)


def test_a_condition_comes_before_trials_and_a_trial_lasts() -> None:
    trials = (("c", YES, _divides_by_zero, ()),)
    with pytest.raises(SideExit) as caught:
        take_first(("a",), True, False, UNCHANGED, trials, NOTHING, YES)
    assert (caught.value.key, caught.value.lasting) == ("a", False)
    with pytest.raises(SideExit) as caught:
        take_first(("a",), True, False, UNCHANGED, trials, NOTHING, NO)
    assert (caught.value.key, caught.value.lasting) == ("c", True)


def test_a_trial_is_given_its_arguments() -> None:
    def divides(one: int, other: int) -> float:
        return one / other

    assert take_first((), True, False, UNCHANGED, (("c", None, divides, (1, 2)),), NOTHING) is False
    with pytest.raises(SideExit):
        take_first((), True, False, UNCHANGED, (("c", None, divides, (1, 0)),), NOTHING)


def test_an_exit_restores_what_the_graph_has_changed() -> None:
    changed, before = torch.ones(2), torch.zeros(2)
    state = (((changed, before),), False)
    assert take_first(("a",), False, False, state, (), NOTHING, NO) is False
    assert torch.equal(changed, torch.ones(2))
    assert take_first(("a",), False, False, state, (), NOTHING, YES) is True
    assert torch.equal(changed, before)


def test_a_frame_whose_graph_has_failed_is_left_once_whatever_its_conditions() -> None:
    results = side_exits._leave_after_failure()
    assert results[3] is None
    assert take_first(("a",), False, False, UNCHANGED, (), NOTHING, results[0]) is True
    assert take_first(("a",), False, False, UNCHANGED, (), NOTHING, NO) is False


@pytest.mark.parametrize(("lasting", "stays"), [(False, False), (True, True)])
def test_an_exit_that_came_back_is_given_up_unless_it_lasts(
    monkeypatch: pytest.MonkeyPatch, lasting: bool, stays: bool
) -> None:
    reset: list[object] = []
    monkeypatch.setattr(side_exits.frames, "forget", lambda code, reason: reset.append(code))
    site = LiveSite("module.f:exit", "guard", _divides_by_zero.__code__)
    site_table.register(site)
    side_exits.came_back(SideExit(site.key, lasting), _divides_by_zero.__code__)
    assert site.holds(Claim.FAILS) is stays
    assert reset == ([] if stays else [_divides_by_zero.__code__])


def test_a_frame_without_a_boundary_has_exits_if_it_can_return() -> None:
    def tracer(function: Any, *, export: bool = False) -> Any:
        root = type("Root", (), {"f_code": function.__code__})
        return type("Tracer", (), {"export": export, "output": type("O", (), {"root_tx": root})})

    def generates() -> Any:
        yield 1

    assert side_exits.are_possible(tracer(_divides_by_zero), at_boundary=False)
    assert not side_exits.are_possible(tracer(generates), at_boundary=False)
    assert side_exits.are_possible(tracer(generates), at_boundary=True)
    assert not side_exits.are_possible(tracer(_divides_by_zero, export=True), at_boundary=True)
