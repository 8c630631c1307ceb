"""What branches leave behind in different forms is tested like any other condition."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.merging.lazy_phi import (
    GatedPhi,
    LazyPhi,
    UnreadPhi,
    has_truth_on_each_side,
)
from bcmend.tracing.merging.truth_of_phi import has_truth, truth_of
from bcmend.tracing.search.assumptions import Claim
from bcmend.tracing.search.falsified import Falsified
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.merging.joins import site
from tests.tracing.plain_trace import traced

Program = Callable[[Tensor], Any]
VECTORS = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -4.0, 0.5], [0.0, 5.0, -1.0])


def _inputs() -> list[Call]:
    return [call(torch.tensor(vector)) for vector in VECTORS]


def _is_high(x: Tensor) -> bool:
    if x.sum() > 3:
        return True
    return bool((x == 0).any())


def _is_clean(x: Tensor) -> Any:
    return torch.isfinite(x).all() and not (x < -2).any()


def _verdict(x: Tensor) -> str | None:
    if x.max() > 4:
        return "high"
    if x.min() < -3:
        return ""
    return None


def _bool_or_truth(x: Tensor) -> Tensor:
    return x * 2 if _is_high(x) else x - 1


def _tensor_or_bool(x: Tensor) -> Tensor:
    return x * 2 if _is_clean(x) else x.clamp(min=-2)


def _word_or_none(x: Tensor) -> Tensor:
    if _verdict(x):
        x = x + 1
    return x * 3


def _number_or_number(x: Tensor) -> Tensor:
    count = 2 if x.sum() > 0 else 0
    if count:
        x = x + 1
    return x * 2


def _number_of_one_side(x: Tensor) -> Tensor:
    most = 1.5
    if x.sum() > 0:
        most = x.max().item()
    return x + 1 if most else x - 1


def _tested_twice(x: Tensor) -> Tensor:
    clean = _is_clean(x)
    if clean:
        x = x + 1
    y = x.sin()
    if not clean:
        y = y * 2
    return y


def _among_others(x: Tensor) -> Tensor:
    if _is_clean(x) and _is_high(x) and x.numel() == 3:
        return x + 1
    return x - 1


def _in_an_arm(x: Tensor) -> Tensor:
    if x.max() > 0.75:
        x = x * 2 if _is_high(x) else x.sin()
    return x + 0


def _in_a_check(x: Tensor) -> Tensor:
    if not _is_clean(x):
        raise ValueError("unclean", 3)
    return x * 2


def _of_an_older_tensor(x: Tensor) -> Tensor:
    flag = (x > 0).all()
    if x.sum() > 0:
        flag = True
    x = x + 1
    return x * 2 if flag else x


def _negated_and_returned(x: Tensor) -> tuple[Tensor, bool]:
    low = not (x.sum() > 0)
    return (x + 1 if low else x - 1), low


@pytest.mark.parametrize(
    "program",
    [
        _bool_or_truth,
        _tensor_or_bool,
        _word_or_none,
        _number_or_number,
        _number_of_one_side,
        _tested_twice,
        _among_others,
        _in_an_arm,
        _in_a_check,
        _of_an_older_tensor,
        _negated_and_returned,
    ],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("training", [False, True])
def test_the_side_that_was_taken_is_tested(program: Program, backend: str, training: bool) -> None:
    found = assert_equivalent(lambda: program, _inputs, backend=backend, training=training)
    assert found.graphs == 1


def _require(is_met: Any, message: str) -> bool:
    if is_met:
        return True
    raise ValueError(message)


def _require_not(is_met: Any, message: str) -> None:
    if not is_met:
        raise ValueError(message)


def _numbers_in_a_call(x: Tensor) -> Tensor:
    is_met = (x > -2).all().item() and (x < 4).all().item()
    _require_not(is_met, "out of range")
    return x * 2


def _truths_in_an_argument(x: Tensor) -> Tensor:
    _require(bool((x > -2).all()) and bool((x < 4).all()), "out of range")
    return x * 2


def _integers_of_both_sides(x: Tensor) -> Tensor:
    count = int((x > 1).sum()) if x.sum() > 0 else int((x < -2).sum())
    _require(count, "none")
    return x + 1


def _tensor_or_number(x: Tensor) -> Tensor:
    _require((x > -4).any() if x.sum() > 0 else 0, "low")
    return x - 1


def _two_checks(x: Tensor) -> Tensor:
    _require((x > -3).all().item() and (x < 4).all().item(), "first")
    y = x.cumsum(0)
    _require((y > -3).all().item() or (y < 1).all().item(), "second")
    return y


@pytest.mark.parametrize(
    "program",
    [
        _numbers_in_a_call,
        _truths_in_an_argument,
        _integers_of_both_sides,
        _tensor_or_number,
        _two_checks,
    ],
    ids=lambda program: program.__name__,
)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_a_call_tests_what_arms_have_left(program: Program, fullgraph: bool) -> None:
    assert_equivalent(lambda: program, _inputs, fullgraph=fullgraph)


YES, NO = torch.tensor(True), torch.tensor(False)


def test_the_truths_of_both_sides_are_selected_by_the_condition() -> None:
    def step(tx: Any, flag: Any, other: Any, x: Any) -> Any:
        inner = GatedPhi(site(), 0, tx.output, (constant(""), x), predicate=other)
        phi = GatedPhi(site(), 0, tx.output, (constant("text"), inner), predicate=flag)
        assert has_truth(phi) and has_truth_on_each_side(phi)
        assert truth_of(tx, x) is x
        return compat.TupleVariable([truth_of(tx, phi), flag, other, x])

    found = traced(step, YES, NO, torch.tensor([0.0]))
    for flag, other in ((YES, YES), (YES, NO), (NO, YES), (NO, NO)):
        for number in (0.0, 2.0):
            truth, *_ = found.run(flag, other, torch.tensor([number]))
            assert truth.shape == () and truth.dtype is torch.bool
            assert truth.item() is bool("text" if flag else "" if other else number)


def test_what_has_no_truth_of_tensors() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        one = constant(1)
        assert not has_truth(x), "two elements"
        assert not has_truth(GatedPhi(site(), 0, tx.output, (one, x), predicate=flag))
        assert not has_truth(LazyPhi(site(), 0, tx.output))
        unread = UnreadPhi(site(), 0, tx.output, (one, x))
        assert not has_truth(unread) and unread.site.holds(Claim.DROPPED, 0)
        return x

    traced(step, YES, torch.ones(2))


def test_an_unread_phi_with_a_truth_has_both_sides_stored() -> None:
    def step(tx: Any, flag: Any) -> Any:
        unread = UnreadPhi(site(), 0, tx.output, (constant(1), flag))
        with pytest.raises(Falsified):
            has_truth(unread)
        assert unread.site.all_found(Claim.DROPPED) == [0] and unread.site.holds(
            Claim.READ_APART, 0
        )
        return flag

    traced(step, YES)


def test_constants_and_tensors_of_one_element_have_a_truth() -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        plain = GatedPhi(site(), 0, tx.output, (constant(1), constant(None)), predicate=flag)
        assert has_truth_on_each_side(plain)
        assert has_truth_on_each_side(UnreadPhi(site(), 0, tx.output, (plain, constant(0))))
        assert has_truth_on_each_side(UnreadPhi(site(), 0, tx.output, (plain, flag)))
        assert not has_truth_on_each_side(UnreadPhi(site(), 0, tx.output, (plain, x)))
        assert not has_truth_on_each_side(LazyPhi(site(), 0, tx.output))
        return flag

    traced(step, YES, torch.ones(2))
