"""Which two values become one, which tensors have to be merged for that, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

import bcmend
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import constant
from bcmend.tracing.effects.memory_form import difference
from bcmend.tracing.merging import merge
from bcmend.tracing.merging.merge import Merger, Pair, is_made_inside
from bcmend.tracing.search import strict
from bcmend.tracing.sites.refusal import Refusal
from tests import own_faults
from tests.tracing.plain_trace import traced


def _merger(*belonging: Any) -> Merger:
    """Return a merger of arms that have made just `belonging`."""
    return Merger(lambda value: any(value is each for each in belonging))


def _list(*items: Any, inside: bool = True) -> Any:
    if not inside:
        return compat.ListVariable(list(items), mutation_type=compat.ValueMutationNew())
    with compat.enter_new_scope():
        return compat.ListVariable(list(items), mutation_type=compat.ValueMutationNew())


def _dict(**items: Any) -> Any:
    keys: Any = {constant(key): value for key, value in items.items()}
    with compat.enter_new_scope():
        return compat.ConstDictVariable(keys, mutation_type=compat.ValueMutationNew())


def _tuple(*items: Any) -> Any:
    return compat.TupleVariable(list(items))


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (1, True), (0.0, -0.0), ("a", "b"), (None, False)]
)
def test_constants_that_can_be_told_apart_have_no_common_form(one: Any, other: Any) -> None:
    with pytest.raises(Refusal) as refused:
        _merger().merge(constant(one), constant(other))
    assert refused.value.slug == "arms-differ"
    assert refused.value.detail == f"{one!r} on one side, {other!r} on the other"


def test_equal_constants_need_no_merge() -> None:
    merger = _merger()
    assert merger.merge(constant("a"), constant("a"))([]).as_python_constant() == "a"
    assert not merger.pairs


def test_the_items_of_sequences_are_merged_one_by_one() -> None:
    def step(tx: Any, x: Any, y: Any) -> Any:
        merger = _merger(x, y)
        build = merger.merge(_tuple(x, constant(3)), _tuple(y, constant(3)))
        assert [(pair.then_value, pair.else_value) for pair in merger.pairs] == [(x, y)]
        merged = build([x])
        assert type(merged) is compat.TupleVariable
        assert merged.items[0] is x and merged.items[1].as_python_constant() == 3
        return x

    traced(step, torch.ones(2), torch.ones(2))


def test_containers_of_another_length_or_kind_are_refused() -> None:
    one, two = constant(1), constant(2)
    with pytest.raises(Refusal, match="2 items on one side, 1 on the other"):
        _merger().merge(_tuple(one, two), _tuple(one))
    with pytest.raises(Refusal, match=r"\(1,\) on one side, \[1\] on the other"):
        _merger().merge(_tuple(one), _list(one))
    with pytest.raises(Refusal, match="int on one side, list on the other"):
        _merger().merge(one, _list(inside=False))


def test_lists_become_one_only_where_the_arms_have_made_both() -> None:
    merged = _merger().merge(_list(constant(1)), _list(constant(1)))([])
    assert type(merged) is compat.ListVariable
    assert [each.as_python_constant() for each in merged.items] == [1]  # type: ignore[attr-defined]
    assert not is_made_inside(merged)
    with pytest.raises(Refusal, match="two different lists"):
        _merger().merge(_list(constant(1), inside=False), _list(constant(1)))


def test_dictionaries_need_the_same_keys_in_the_same_order() -> None:
    def step(tx: Any, x: Any, y: Any) -> Any:
        merged: Any = _merger().merge(_dict(a=x, b=y), _dict(a=x, b=y))([])
        keys = [key.vt.as_python_constant() for key in merged.items]
        assert keys == ["a", "b"] and list(merged.items.values()) == [x, y]
        assert not is_made_inside(merged)
        with pytest.raises(Refusal, match="different keys"):
            _merger().merge(_dict(a=x, b=y), _dict(b=y, a=x))
        return x

    traced(step, torch.ones(2), torch.ones(2))


def test_the_same_pair_of_tensors_is_merged_once() -> None:
    def step(tx: Any, x: Any, y: Any) -> Any:
        merger = _merger(x, y)
        first, again, other = merger.merge(x, y), merger.merge(x, y), merger.merge(y, x)
        assert len(merger.pairs) == 2
        merged: Sequence[Any] = [constant("x or y"), constant("y or x")]
        assert first(merged) is again(merged) is merged[0]
        assert other(merged) is merged[1]
        return x

    traced(step, torch.ones(2), torch.ones(2))


def test_what_is_adopted_after_a_refusal_reads_its_own_pair() -> None:
    def step(tx: Any, x: Any, y: Any) -> Any:
        merger = _merger(x, y)
        made = _list(y)
        one, other = _tuple(x, made, constant(1)), _tuple(x, made, constant(2))
        assert isinstance(merger.attempt(lambda: merger.merge(one, other)), Refusal)
        assert not merger.pairs and not merger.plans
        build = merger.adopt(made, then_side=True)
        assert [pair.then_value for pair in merger.pairs] == [y]
        merged: Any = build([constant("y")])
        assert merged.items[0].as_python_constant() == "y"
        return x

    traced(step, torch.ones(2), torch.ones(2))


def test_a_tensor_from_outside_on_both_sides_is_itself() -> None:
    def step(tx: Any, x: Any) -> Any:
        merger = _merger()
        assert merger.merge(x, x)([]) is x and not merger.pairs
        return x

    traced(step, torch.ones(2))


def test_parameters_and_tensors_of_other_forms_are_refused() -> None:
    def step(tx: Any, x: Any, y: Any, weight: Any) -> Any:
        with pytest.raises(Refusal, match=r"shape \(2,\) on one side, \(3,\) on the other"):
            _merger(x, y).merge(x, y)
        with pytest.raises(Refusal, match="a parameter"):
            _merger(x).merge(x, weight)
        return x

    traced(step, torch.ones(2), torch.ones(3), torch.nn.Parameter(torch.ones(2)))


def test_what_one_side_has_is_adopted_for_that_side() -> None:
    def step(tx: Any, x: Any, y: Any) -> Any:
        merger = _merger(x)
        then, other = (merger.adopt(x, then_side=side) for side in (True, False))
        assert merger.pairs == [Pair(x, None), Pair(None, x)]
        assert [pair.present for pair in merger.pairs] == [x, x]
        assert not merger.pairs[0].is_number
        assert then([x, y]) is x and other([x, y]) is y
        assert merger.adopt(y)([]) is y, "made outside"
        return x

    traced(step, torch.ones(2), torch.ones(2))


def test_a_made_object_stays_one_object_wherever_it_is_adopted() -> None:
    merger, made = _merger(), _list(constant(1))
    first, again = merger.adopt(_tuple(made, made))([]), merger.adopt(made)([])
    assert first.items[0] is first.items[1] is again  # type: ignore[attr-defined]
    assert again is not made and not is_made_inside(again)


def test_an_older_list_stays_the_same_object() -> None:
    older = _list(constant(1), inside=False)
    assert _merger().adopt(older)([]) is older


def test_a_number_of_an_arm_is_taken_once_more_out_of_the_tensor_behind_it() -> None:
    def step(tx: Any, x: Any, flag: Any) -> Any:
        x = fx_graph.function(tx, torch.add, x, 1)
        number = x.call_method(tx, "item", [], {})
        assert isinstance(number, compat.SymNodeVariable)
        merger = _merger(number, x)
        with pytest.raises(Refusal, match="a number taken out of a tensor inside an arm"):
            merger.adopt(number, then_side=True)
        merger.tensor_behind = lambda value: x
        merger.take = lambda tensor: _tuple(tensor)
        build = merger.adopt(number, then_side=True)
        assert merger.pairs == [Pair(x, None)]
        assert build([flag]).items == [flag]  # type: ignore[attr-defined]
        return x

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        traced(step, torch.tensor(3), torch.tensor(True))


@pytest.mark.parametrize(
    ("one", "other", "what"),
    [
        (torch.ones(2), torch.ones(2, dtype=torch.int32), "dtype torch.float32 on one side"),
        (torch.ones(2), torch.ones(2, device="meta"), "device cpu on one side"),
        (torch.ones(2), torch.ones(2).to_sparse(), "layout torch.strided on one side"),
        (torch.ones(2).to_sparse(), torch.ones(2).to_sparse(), "layout torch.sparse_coo"),
        (torch.ones(2), torch.ones(2, 1), r"shape (2,) on one side, (2, 1) on the other"),
        (torch.ones(2, 3), torch.ones(3, 2).t(), "strides (3, 1) on one side, (1, 2)"),
        (torch.ones(1, 3), torch.ones(3, 1).t(), ""),
        (torch.ones(2), -torch.ones(2), ""),
    ],
)
def test_in_which_respect_tensors_differ(one: torch.Tensor, other: torch.Tensor, what: str) -> None:
    assert difference(one, other).startswith(what) if what else difference(one, other) == ""


def test_the_text_of_a_refusal_hides_no_fault_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_type(value: Any) -> str:
        raise NotImplementedError

    monkeypatch.setattr(strict, "IS_ON", True)
    monkeypatch.setattr(compat.TupleVariable, "python_type_name", without_type)
    assert merge._describe(_tuple()) == "TupleVariable"
    monkeypatch.setattr(compat.TupleVariable, "python_type_name", own_faults.fault)
    with pytest.raises(strict.InternalError, match="a fault"):
        merge._describe(_tuple())


def test_a_list_that_holds_itself_is_chosen() -> None:
    own: list[Any] = [1]
    own.append((None, own))
    other: list[Any] = []

    def program(x: torch.Tensor) -> Any:
        return own if x.sum() > 0 else other

    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert compiled(torch.ones(2)) is own
    assert compiled(-torch.ones(2)) is other


def test_a_tuple_that_a_branch_puts_into_a_list_is_that_which_is_stored() -> None:
    table: dict[str, Any] = {"rows": [], "last": None, "inner": {}}

    def program(x: torch.Tensor) -> Any:
        pair = (1, table["inner"])
        if x.sum() > 0:
            table["rows"].append(pair)
            table["last"] = pair
        return x + 1, pair

    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    _, pair = compiled(torch.ones(2))
    assert pair is table["rows"][0] is table["last"]
    assert pair[1] is table["inner"]
