"""``bcmend.verify(..., sides="all")``: calls that take each side of what is mended."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend import cli
from bcmend.reports.verdict import SideRecord, Verdict
from bcmend.trials import sides, verifying
from bcmend.trials.apart import makes_copies

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


@pytest.fixture
def is_copied(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    made: bool = request.param
    monkeypatch.setattr(verifying, "makes_copies", lambda *, goes_back: made)
    return made


def _statuses(found: Verdict) -> dict[str, list[tuple[str, str]]]:
    """Return side and status by the line of the site, counted from that of the first."""
    assert found.sides is not None
    lines = {each.name: each.line for each in found.sites}
    listed: dict[str, list[tuple[str, str]]] = {}
    for each in found.sides.records:
        listed.setdefault(str(lines[each.site]), []).append((each.side, each.status))
    return listed


def _only(found: Verdict) -> list[tuple[str, str]]:
    (sides_of_one,) = _statuses(found).values()
    return sorted(sides_of_one)


class Chooses(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear, self.calls, self.kept = nn.Linear(4, 4), 0, []

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if y.sum() > 0:
            y = y.relu()
            self.calls += 1
            print("positive", y.sum())
        else:
            self.kept.append(y.mean())
        if torch.isnan(y).any():
            raise ValueError(f"nan in {tuple(y.shape)}")
        return y if x.mean() > 0 else (y - 1).tanh()


@pytest.mark.parametrize("is_copied", [True, False], indirect=True)
@pytest.mark.parametrize("train", [False, True])
def test_both_sides_of_branches_and_checks_are_taken(train: bool, is_copied: bool) -> None:
    torch.manual_seed(0)
    if is_copied and not makes_copies(goes_back=train):
        pytest.skip("no copies")
    found = bcmend.verify(Chooses(), torch.randn(2, 4), train=train, sides="all")
    assert found.equal and found.sides is not None
    assert found.is_copied is is_copied
    assert (found.sides.sites, len(found.sides.records)) == (3, 6)
    assert all({each for _, each in one} == {"seen", "forced"} for one in _statuses(found).values())
    assert "3 sites, 6 sides: 3 seen by your inputs, 3 forced, all equal" in str(found)


def test_sides_are_not_taken_unless_that_is_asked_for() -> None:
    assert bcmend.verify(Chooses(), torch.ones(2, 4)).sides is None


def wrong(x: Tensor) -> Tensor:
    return x + 1


def _with_a_wrong_side(*, nested: bool) -> Callable[[Tensor], Tensor]:
    """A program of which the side that positive numbers do not take is mended wrongly."""

    def host(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x

    bcmend.register_capture(host, wrong)

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2
        if nested and x.mean() < 0:
            return x - 7
        return host(x) * 3

    return program


@pytest.mark.parametrize("is_copied", [True, False], indirect=True)
@pytest.mark.parametrize("nested", [False, True])
def test_a_side_that_inputs_do_not_take_and_that_is_wrong_is_found(
    nested: bool, is_copied: bool
) -> None:
    program, x = _with_a_wrong_side(nested=nested), torch.ones(3)
    assert bcmend.verify(program, x).equal
    found = bcmend.verify(program, x, sides="all")
    assert not found.equal and found.difference is not None and found.sides is not None
    assert (found.difference.aspect, found.difference.where) == ("result", "result")
    assert found.difference.forced[0][1] == "false"
    assert not found.difference.stock
    assert "differs" in str(found) and "forced  " in str(found)
    assert {each.side for each in found.sides.having("differs")} == {"false"}
    assert json.loads(found.to_json())["sides"]["differences"]


def tripled(x: Tensor) -> Tensor:
    return x * 3


@pytest.fixture
def fault() -> Callable[[Tensor], Tensor]:
    """A function that mended code calls another one in the place of."""

    def host(x: Tensor) -> Tensor:
        return x * 3

    bcmend.register_capture(host, lambda x: x * 3 + 1)
    return host


def test_functions_of_one_name_in_one_line_are_told_apart(
    fault: Callable[[Tensor], Tensor],
) -> None:
    # fmt: off
    acts = [lambda v: v * 2 if v.sum() > 0 else fault(v), lambda v: v / 2 if v.max() > 9 else v - 1]
    # fmt: on

    def program(x: Tensor) -> Tensor:
        return acts[0](x) + acts[1](x)

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.sides is not None and not found.equal
    sides_of: dict[str, set[tuple[str, str]]] = {}
    for each in found.sides.records:
        sides_of.setdefault(each.site, set()).add((each.side, each.status))
    assert sorted(map(sorted, sides_of.values())) == [
        [("false", "differs"), ("true", "seen")],
        [("false", "seen"), ("true", "forced")],
    ]


def test_only_the_side_at_fault_differs(fault: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1 if x.sum() > 0 else x - 1
        if x.max() > 5:
            y = y * 2
        if x.min() < -5:
            y = fault(y)
        return y

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.sides is not None
    (differing,) = found.sides.having("differs")
    assert differing.side == "true"
    assert len(found.sides.having("seen")) == 3 and len(found.sides.having("forced")) == 2


def test_a_loop_in_a_loop_makes_the_turns_that_it_is_told() -> None:
    def program(x: Tensor) -> Tensor:
        while x.sum() > 0:
            x = x - 1
            while x.max() > 0.5:
                x = x - 0.25
        return x

    found = bcmend.verify(program, torch.ones(3) * 1.5, sides="all")
    assert found.equal and found.sides is not None
    assert not found.sides.having("not forced")
    assert all("turn" in each.side for each in found.sides.records)


@pytest.mark.parametrize("is_copied", [True, False], indirect=True)
def test_a_flag_that_is_never_set_ends_a_loop_after_some_turns(is_copied: bool) -> None:
    def program(x: Tensor) -> Tensor:
        done = False
        while not done:
            x = x + 1
            if x.max() > 100:
                x = x / 2
            if x.sum() > 10:
                done = True
        return x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    assert found.sides.having("forced")


def check(is_right: Any, text: str) -> None:
    if not is_right:
        raise ValueError(text)


def test_a_check_is_told_where_tensors_are_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        check(x.dim() == 2, "dimensions")
        if x.sum() < 100:
            x = x + 1
        try:
            check(x.isfinite().all(), "not finite")
        except ValueError as error:
            assert str(error) == "not finite"
            x = x.nan_to_num() - 7
        return x

    runs: dict[sides.Plan, sides.Run] = {}

    def noted(*given: Any) -> Any:
        runs.update(given[1].runs)
        return sides.sides_of(*given)

    monkeypatch.setattr(verifying, "sides_of", noted)
    found = bcmend.verify(program, torch.ones(2, 3), sides="all")
    assert found.equal and found.sides is not None
    assert not found.sides.having("not forced")
    assert {run.raised for run in runs.values()} == {""}


def test_what_decides_is_on_the_cpu_whatever_the_default_is() -> None:
    def program(x: Tensor) -> Tensor:
        while x.sum() < 10:
            x = x + 1
        return x * 2 if x.mean() > 0 else x

    with torch.device("meta"):
        found = bcmend.verify(program, torch.ones(3, device="cpu"), sides="all")
    assert found.equal and found.sides is not None
    assert not found.sides.having("not forced")


def test_a_program_that_does_something_else_where_it_asks_is_not_compared(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def turned_over(key: str, value: Any, turns: Any = None) -> Any:
        return ~value

    monkeypatch.setattr(sides.forced, "forced", turned_over)
    found = bcmend.verify(chosen, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    (record,) = found.sides.records
    assert record.status == "not forced"
    assert "it does something else" in record.detail


def test_what_is_no_number_decides_for_itself() -> None:
    class Holds:
        def __init__(self, x: Tensor) -> None:
            self.x = x

        def __bool__(self) -> bool:
            return bool(self.x.sum() > 0)

    def program(x: Tensor) -> Tensor:
        return x * 2 if Holds(x) else x - 1

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    for each in found.sides.having("not forced"):
        assert "condition is" in each.detail


def test_what_calls_differ_in_already_takes_no_sides(fault: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        return fault(x) if x.sum() > 0 else x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert not found.equal and found.sides is not None
    assert {each.detail for each in found.sides.records} == {"the calls differ without that"}


def test_sides_are_taken_where_each_call_raises() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            raise ValueError("positive")
        return x * 2 if x.min() < -1 else x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.each_call_raised
    first, second = (sorted(each) for each in _statuses(found).values())
    assert first == [("false", "forced"), ("true", "seen")]
    assert second == [("false", "forced"), ("true", "forced")]


def test_what_has_no_mended_site_says_so() -> None:
    assert "no mended site has sides" in str(bcmend.verify(tripled, torch.ones(3), sides="all"))


def test_a_branch_that_only_a_forced_side_comes_to_is_taken_both_ways() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 100:
            x = x * 2
            if x.mean() > 5:
                x = x - 1
            else:
                x = x + 1
        return x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal
    first, second = (sorted(each) for each in _statuses(found).values())
    assert first == [("false", "seen"), ("true", "forced")]
    assert second == [("false", "forced"), ("true", "forced")]


@pytest.mark.parametrize("start, seen", [(0.0, 0), (4.0, 1), (20.0, 3)])
def test_a_loop_makes_no_turn_one_and_one_more(start: float, seen: int) -> None:
    def program(x: Tensor) -> tuple[Tensor, int]:
        count = 0
        while x.sum() > 3:
            x = x / 2
            count += 1
        return x, count

    found = bcmend.verify(program, torch.tensor([start]), sides="all")
    assert found.equal
    names = {0: "no turn", 1: "1 turn"}
    turns = {0, 1, seen, seen + 1}
    assert _only(found) == sorted(
        (names.get(each, f"{each} turns"), "seen" if each == seen else "forced") for each in turns
    )


def test_a_loop_that_a_forced_side_keeps_going_ends() -> None:
    def program(x: Tensor) -> Tensor:
        while x.sum() < 10:
            if x.mean() < 100:
                x = x + 1
            else:
                x = x - 1
        return x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    assert not found.sides.having("not forced")


def test_a_check_that_raises_after_each_side_of_what_is_before_it() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            print("positive")
        else:
            print("negative")
        if x.max() > 100:
            raise ValueError("too large")
        return x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    assert found.sides.pairs == (4, 4)


@pytest.mark.parametrize(
    "condition",
    [
        lambda x: x.sum().item() > 3,
        lambda x: bool(x.sum() > 3),
        lambda x: int((x > 3).sum()),
        lambda x: (x > 3).sum().item(),
        lambda x: x.sum().item() - 3,
        lambda x: float(x.sum() - 3),
    ],
)
def test_numbers_out_of_tensors_are_told_as_well(condition: Callable[[Tensor], Any]) -> None:
    def program(x: Tensor) -> Tensor:
        n = x.sum()
        if condition(x):
            return x * n
        return x - n

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal
    assert _only(found) == [("false", "seen"), ("true", "forced")]


def test_what_both_sides_raise_alike_is_equal() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 100:
            return x.view(7, 7)
        return x

    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal


def test_the_policy_that_something_is_patched_with_is_used() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + 1
        if x.mean() > 0:
            x = x * 2
        return x

    (first, _) = bcmend.verify(program, torch.ones(3), sides="all").sites
    with bcmend.patched(program, policy=bcmend.Policy(off=(first.name,))):
        found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    assert first.name not in {each.site for each in found.sides.records}
    assert found.sides.sites == 1


def test_sides_are_taken_of_what_was_compiled_before() -> None:
    def program(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    torch.compile(bcmend.patch(program), backend="eager")(torch.ones(2))
    verdict = bcmend.verify(program, torch.ones(2), sides="all")
    assert verdict.equal and verdict.sides is not None
    assert {each.status for each in verdict.sides.records} == {"seen", "forced"}


def test_nothing_is_left_behind() -> None:
    model = Chooses()
    code, names = Chooses.forward.__code__, set(Chooses.forward.__globals__)
    bcmend.verify(model, torch.ones(2, 4), sides="all")
    assert Chooses.forward.__code__ is code
    assert set(Chooses.forward.__globals__) == names
    assert (model.calls, model.kept) == (0, [])


def test_when_the_time_is_over_it_is_said_what_was_not_forced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    found = bcmend.verify(Chooses(), torch.ones(2, 4), sides="all", seconds=1e-9)
    assert found.equal and found.sides is not None
    left = found.sides.having("not forced")
    assert left and {each.detail for each in left} == {"the time was over"}
    assert "not forced" in str(found)


def test_a_call_that_does_not_end_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    if not makes_copies():
        pytest.skip("no copies")

    def program(x: Tensor) -> Tensor:
        steps = [1]
        if x.sum() > 100:
            steps.append(2)
        while len(steps) > 1 and not torch.compiler.is_compiling():
            pass
        return x * 2

    monkeypatch.setattr(sides, "_SECONDS", 1.0)
    found = bcmend.verify(program, torch.ones(3), sides="all")
    assert found.equal and found.sides is not None
    (left,) = found.sides.having("not forced")
    assert left.side == "true"
    assert left.detail.startswith("in eager execution: a copy of the process has not ended")


@pytest.mark.parametrize(
    "wrong_value", [{"sides": "both"}, {"sides": True}, {"seconds": 0}, {"seconds": "1"}]
)
def test_wrong_values_are_refused(wrong_value: dict[str, Any]) -> None:
    with pytest.raises(bcmend.CallError, match=f"{next(iter(wrong_value))}=...*takes"):
        bcmend.verify(Chooses(), torch.ones(2, 4), **wrong_value)


def chosen(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def test_the_command_takes_all_sides(capsys: pytest.CaptureFixture[str]) -> None:
    target = f"{__name__}:chosen"
    call = ["verify", target, "--call", "torch.ones(3)", "--sides", "all", "--seconds", "60"]
    assert cli.main(call) == 0
    assert "1 site, 2 sides: 1 seen by your inputs, 1 forced, all equal" in capsys.readouterr().out
    assert cli.main([*call, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["sides"]
    assert [SideRecord(**each).status for each in found["records"]] == ["seen", "forced"]
