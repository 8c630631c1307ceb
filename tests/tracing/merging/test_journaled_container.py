"""Containers that one side of a branch changes: equal to eager execution in one graph, or left."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.merging.effect_plan import plan_journal
from bcmend.tracing.merging.journaled_container import JournaledContainer, untouched
from bcmend.tracing.merging.location_phi import apply
from bcmend.tracing.output import record_builder
from bcmend.tracing.output.record_builder import Draft
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import Falsified, weaken
from bcmend.tracing.sites.refusal import Refusal
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.merging.joins import join_of
from tests.tracing.plain_trace import traced

Program = Callable[..., Any]

VECTORS = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -4.0, 0.5])


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _vectors() -> list[Call]:
    return [call(torch.tensor(each)) for each in VECTORS]


def _with(*made: Callable[[], Any]) -> Callable[[], Sequence[Call]]:
    """Calls with a vector and containers of the caller's."""
    return lambda: [call(torch.tensor(each), *(make() for make in made)) for each in VECTORS]


def collected_in_a_loop() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        found = []
        for shift in range(8):
            if (x + shift).sum() > 6:
                found.append(x + shift)
        return found

    return program


def collected_and_stacked() -> Program:
    def program(x: Tensor) -> Tensor:
        found = []
        for shift in range(3):
            if (x - shift).sum() > 0:
                found.append(x - shift)
        return torch.stack(found) if found else x * 0

    return program


def counted() -> Program:
    def program(x: Tensor) -> Tensor:
        found = []
        for number in range(3):
            if x[number] > 0:
                found.append(number)
        return x * len(found)

    return program


def held_twice() -> Program:
    def program(x: Tensor) -> Any:
        items = [x * 1]
        both = {"items": items}, (items, 3)
        if x.sum() > 0:
            items.append(x * 2)
        return both, items

    return program


def holding_itself() -> Program:
    def program(x: Tensor) -> Any:
        items: list[Any] = [x * 1]
        items.append(items)
        if x.sum() > 0:
            items.append(x * 2)
        return [items]

    return program


def optional_entries() -> Program:
    def program(x: Tensor) -> dict[str, Tensor]:
        result = {"x": x * 1}
        if x.sum() > 0:
            result["positive"] = x * 2
        if x.min() < -3:
            del result["x"]
        result["last"] = x + 1
        return result

    return program


def ordered_entries() -> Program:
    def program(x: Tensor) -> OrderedDict[str, Tensor]:
        result = OrderedDict(first=x + 1)
        if x.sum() > 0:
            result["positive"] = x * 2
        result["last"] = x + 1
        return result

    return program


def lists_in_a_table() -> Program:
    def program(x: Tensor) -> dict[str, list[Tensor]]:
        groups = defaultdict(list)
        for number in range(2):
            if x[number] > 0:
                groups["positive"].append(x[number] * 1)
            else:
                groups["other"].append(x[number] * 1)
        return groups

    return program


def members() -> Program:
    def program(x: Tensor) -> tuple[Tensor, set[str]]:
        seen = {"all"}
        if x.sum() > 0:
            seen.add("positive")
        if x.min() < -3:
            seen.discard("all")
        seen.add("last")
        return x * 2, seen

    return program


def window() -> Program:
    def program(x: Tensor) -> deque[Tensor]:
        last = deque([x * 1], maxlen=2)
        if x.sum() > 0:
            last.append(x * 2)
        if x.min() < 0:
            last.appendleft(x * 3)
        last.append(x * 4)
        return last

    return program


def branches_in_branches() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        found = []
        if x.sum() > 0:
            found.append(x + 1)
            if x.max() > 2.5:
                found.append(x + 2)
            found.append(x + 3)
        else:
            found.append(x - 1)
            if x.min() < -3.5:
                found.clear()
        found.append(x * 1)
        return found

    return program


def extended_by_each_other() -> Program:
    def program(x: Tensor) -> Any:
        one, other = [], [x * 1]
        if x.sum() > 0:
            one.append(x * 2)
        one.extend(other)
        other.append(x * 5)
        if x.min() < 0:
            other.extend(one)
        one += other
        return one, other

    return program


def one_of_two_lists() -> Program:
    def program(x: Tensor) -> Any:
        positive, other = [], []
        for number in range(2):
            (positive if x[number] > 0 else other).append(x[number] * 2)
        return positive, other

    return program


def either_of_two_lists() -> Program:
    def program(x: Tensor) -> Any:
        one, other = [x * 1], [x * 2]
        return one, other, one if x.sum() > 0 else other

    return program


def one_list_in_two_places() -> Program:
    def program(x: Tensor) -> Any:
        rows, named = [], {}
        if x.sum() > 0:
            row = [x * 1]
            rows.append(row)
            named["row"] = row
        return rows, named

    return program


def appended_by_a_nested_function() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        found = []

        def note(y: Tensor) -> None:
            if y.sum() > 0:
                found.append(y * 2)

        note(x)
        note(-x)
        return found

    return program


def made_in_an_arm() -> Program:
    def program(x: Tensor) -> list[Tensor]:
        if x.max() > 0.7:
            kept = [each * 2 for each in (x, x - 2) if each.sum() > 0]
        else:
            kept = [x * 3]
        return kept

    return program


def printed() -> Program:
    def program(x: Tensor) -> Tensor:
        hits = []
        if x.sum() > 0:
            hits.append(1)
        print("hits", hits)
        hits.append(2)
        print("hits", hits)
        return x * 2

    return program


def told_by_a_check() -> Program:
    def program(x: Tensor) -> Any:
        hits = []
        if x.sum() > 0:
            hits.append(1)
        if x.min() < -3.5:
            raise ValueError(f"after {hits}")
        hits.append(4)
        return hits, x * 2

    return program


class Hit:
    """What a search finds."""

    def __init__(self, value: Any) -> None:
        self.value = value


@dataclass(frozen=True)
class Frozen:
    """The same, unchangeable."""

    value: Any
    number: int = 3


def objects_made_in_an_arm() -> Program:
    def program(x: Tensor) -> Any:
        hits: list[Any] = []
        for number in range(2):
            if x[number] > 0:
                hits.append(Hit(x[number] * 2))
        if x.sum() > 0:
            hit = Hit(x * 2)
            hit.itself = hit
            hits += [Frozen(hit), hit]
        return hits, [x * 1]

    return program


def table_made_in_an_arm() -> Program:
    def program(x: Tensor) -> Any:
        table = None
        if x.sum() > 0:
            table = OrderedDict(value=x * 2, all=[x + 1])
        return table, x * 3

    return program


def untouched_keys() -> Program:
    def program(x: Tensor) -> Any:
        table: dict[Any, Any] = dict.fromkeys(range(3), False)
        if x.sum() > 0:
            table[0] = True
            del table[2]
        if not table[1]:
            x = x * 2
        if x[0] > 0:
            table[1] = x
            table["new"] = 3
        missing = "other" in table, table.get("none"), table.get(7, 4)
        try:
            table["lost"]
        except KeyError:
            x = x + 1
        return x, table, missing

    return program


def a_key_of_each_iteration() -> Program:
    def program(x: Tensor) -> Any:
        x, used = x * 1, dict.fromkeys(range(3), 0)
        for number in range(3):
            if x[number] > 0:
                used[number] = used.get(number, 5) + 1
                x = x + used[number]
        return x, used

    return program


@pytest.mark.parametrize(
    "make",
    [
        objects_made_in_an_arm,
        untouched_keys,
        a_key_of_each_iteration,
        table_made_in_an_arm,
        collected_in_a_loop,
        collected_and_stacked,
        counted,
        held_twice,
        holding_itself,
        optional_entries,
        ordered_entries,
        lists_in_a_table,
        members,
        window,
        branches_in_branches,
        extended_by_each_other,
        one_of_two_lists,
        either_of_two_lists,
        one_list_in_two_places,
        appended_by_a_nested_function,
        made_in_an_arm,
        printed,
        told_by_a_check,
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_equal_in_one_graph(make: Callable[[], Program], training: bool) -> None:
    assert_equivalent(make, _vectors, backend="aot_eager", training=training, zero_gradients=True)


def appended_to_a_history() -> Program:
    def program(x: Tensor, history: list[Any]) -> Tensor:
        if x.sum() > 0:
            history.append(x.detach() * 1)
        history.append("seen")
        if x.min() < -3.5:
            history.append("low")
        return x * 2

    return program


def changed_at_the_front() -> Program:
    def program(x: Tensor, history: list[Any]) -> Tensor:
        history.append(0)
        if x.sum() > 0:
            history.pop(0)
        else:
            history.insert(1, "middle")
        return x * 2

    return program


def checked_before_and_after() -> Program:
    def program(x: Tensor, history: list[Any]) -> Tensor:
        if x.max() < 0:
            raise ValueError("before")
        if x.sum() > 0:
            history.append(1)
        else:
            history.append(2)
            history.append(3)
        if x.min() < -3.5:
            raise ValueError("after")
        if x.sum() > 0:
            history.append(4)
        return x * 2

    return program


def chosen_and_appended() -> Program:
    def program(x: Tensor, history: list[Any]) -> Tensor:
        name = "positive" if x.sum() > 0 else None
        if x.min() < 0:
            history.append(name)
        history.append(name)
        return x * 2

    return program


@pytest.mark.parametrize(
    "make",
    [appended_to_a_history, changed_at_the_front, checked_before_and_after, chosen_and_appended],
)
def test_a_list_of_the_caller_is_as_in_eager_execution(make: Callable[[], Program]) -> None:
    assert_equivalent(make, _with(lambda: ["first", torch.ones(2)]), backend="aot_eager")


def changed_before(change: Callable[[deque[Any]], object]) -> Callable[[], Program]:
    def make() -> Program:
        def program(x: Tensor, queue: deque[Any], held: list[Any]) -> Tensor:
            queue.append(1)
            if x.sum() > 0:
                change(queue)
            held.append(queue)
            queue.append(x * 2)
            return x + 1

        return program

    return make


@pytest.mark.parametrize("backend", ["eager", "inductor"])
@pytest.mark.parametrize(
    "change",
    [
        lambda queue: queue.append(2),
        lambda queue: queue.appendleft(2),
        lambda queue: queue.popleft(),
        lambda queue: queue.extend([2, 3]),
        lambda queue: queue.clear(),
    ],
    ids=["append", "appendleft", "popleft", "extend", "clear"],
)
def test_a_queue_that_was_changed_before_is_changed_itself(
    change: Callable[[deque[Any]], object], backend: str
) -> None:
    calls = _with(lambda: deque([5, 6]), list)
    assert_equivalent(changed_before(change), calls, backend=backend, fullgraph=False, graphs=None)


@pytest.mark.parametrize("kind", [list, dict, OrderedDict, deque])
def test_what_holds_itself_is_changed_itself(kind: Callable[[], Any]) -> None:
    def program(x: Tensor, held: Any) -> Tensor:
        if isinstance(held, dict):
            held["self"] = held
            if x.sum() > 0:
                held["more"] = 2
        else:
            held.append(held)
            if x.sum() > 0:
                held.append(2)
        return x + 1

    compiled = bcmend.compile(program, backend="eager")
    for sign in (1, -1, 1):
        held = kind()
        compiled(torch.ones(2) * sign, held)
        items = list(held.values() if isinstance(held, dict) else held)
        assert items[0] is held
        assert items[1:] == [2] * (sign > 0)


def counted_in_a_table() -> Program:
    def program(x: Tensor, counts: dict[str, Any]) -> Tensor:
        if x.sum() > 0:
            counts["positive"] = counts.get("positive", 0) + 1
            counts.pop("best", None)
        else:
            counts["other"] = x * 1
        counts["last"] = 3
        return x * 2

    return program


def test_a_table_of_the_caller_is_as_in_eager_execution() -> None:
    assert_equivalent(counted_in_a_table, _with(lambda: {"best": torch.ones(1), "all": 1}))


def _lowering_of(program: Program, *arguments: Any) -> str:
    """Compile a program in as many graphs as it takes; return what became of its first branch."""
    expected = repr(program(*arguments))
    mended = bcmend.compile(program, backend="eager")
    assert repr(mended(*arguments)) == expected
    site = bcmend.report(program).sites[0]
    return site.lowering or f"{site.refusal}: {site.detail}"


def test_a_list_that_a_loop_goes_over_becomes_part_of_the_arms() -> None:
    def program(x: Tensor) -> int:
        items = [x, x + 1]
        for each in items:
            if each.sum() > 5 and len(items) < 4:
                items.append(each * 2)
        return len(items)

    assert "split" in _lowering_of(program, torch.ones(3))


def test_a_loop_makes_one_arm_for_each_iteration() -> None:
    """Twelve iterations, which would be four thousand arms if each were part of those before it."""

    def program(x: Tensor) -> list[Tensor]:
        found = []
        for shift in range(12):
            if (x - shift).sum() > 0:
                found.append(x - shift)
        return found

    assert _lowering_of(program, torch.arange(12.0)).endswith("with effects")


def _list_of(*items: Any) -> Any:
    return compat.ListVariable(list(items), mutation_type=compat.ValueMutationNew())


def _journaled(tx: Any, flag: Any, variable: Any, one: Any, other: Any, **more: Any) -> Any:
    """Journal a container that is left with the items `one` or `other`; return the join."""
    join = join_of(tx, flag, **more)
    apply(join, plan_journal(join, variable, variable.items, [one, other]), [])
    return join


@pytest.fixture
def drafts(monkeypatch: pytest.MonkeyPatch) -> list[Draft]:
    """Collect the records of a trace instead of delivering them."""
    found: list[Draft] = []
    monkeypatch.setattr(record_builder, "append", lambda tx, draft: found.append(draft))
    return found


def _written(drafts: list[Draft]) -> list[tuple[str, Any]]:
    """Return the functions that records call, and their arguments behind the container."""
    return [(draft.action.fn.__name__, draft.inputs.items[1:]) for draft in drafts]  # type: ignore[attr-defined]


def test_records_give_a_list_the_items_of_the_side_taken(drafts: list[Draft]) -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any) -> Any:
        items = _list_of(x, y)
        _journaled(tx, flag, items, [x, y, x], [x])
        assert isinstance(items, JournaledContainer)
        (one, (removed, added)), (other, (cut, nothing)) = _written(drafts)
        assert (one, other) == ("refill", "refill")
        assert (removed.as_python_constant(), added.items) == (2, [x]), "one item added at the end"
        assert (cut.as_python_constant(), nothing.items) == (1, []), "all but one removed"
        assert drafts[0].predicate is flag and drafts[1].predicate is not flag
        return x

    traced(step, torch.tensor(True), torch.ones(2), torch.zeros(2))


def test_a_side_that_changes_nothing_needs_no_record(drafts: list[Draft]) -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items = _list_of(x)
        _journaled(tx, flag, items, [x, x], list(items.items))
        assert [draft.predicate for draft in drafts] == [flag]
        return x

    traced(step, torch.tensor(True), torch.ones(2))


def test_what_is_done_to_a_journaled_list_becomes_a_record(drafts: list[Draft]) -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any) -> Any:
        items = _list_of(x)
        _journaled(tx, flag, items, [x, x], [x])
        drafts.clear()
        items.call_method(tx, "append", [y], {})
        items.call_method(tx, "extend", [compat.TupleVariable([x, y])], {})
        (one, (method, value)), (other, (second, more)) = _written(drafts)
        assert (one, method.as_python_constant(), value) == ("alter", "append", y)
        assert (other, second.as_python_constant(), more.items) == ("alter", "extend", [x, y])
        assert all(draft.predicate is None for draft in drafts)
        return x

    traced(step, torch.tensor(True), torch.ones(2), torch.zeros(2))


@pytest.mark.parametrize(
    "look",
    [
        lambda tx, items: items.items,
        lambda tx, items: items.call_method(tx, "pop", [], {}),
        lambda tx, items: items.call_method(tx, "append", [], {}),
        lambda tx, items: items.mp_ass_subscript_impl(tx, None, None),
    ],
)
def test_looking_at_a_journaled_list_has_the_frame_traced_again(
    drafts: list[Draft], look: Callable[[Any, Any], Any]
) -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items = _list_of(x)
        join = _journaled(tx, flag, items, [x, x], [x])
        assert not items.is_python_constant() and str(items) == items.debug_repr()
        with pytest.raises(Falsified):
            look(tx, items)
        assert join.site.all_found(Claim.READ_APART) == [0]
        return x

    traced(step, torch.tensor(True), torch.ones(2))


def test_a_journaled_container_is_recorded_and_adopted_as_itself(drafts: list[Draft]) -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items = _list_of(x)
        join = _journaled(tx, flag, items, [x, x], [x])
        assert items.as_recorded(join.site, lambda side: None) is items
        assert items.adopt_into(join.merger, True)([]) is items, "of the main trace"
        with compat.enter_new_scope():
            made = _list_of(x)
        _journaled(tx, flag, made, [x, x], [x])
        adopted: Any = made.adopt_into(join.merger, True)([])
        assert adopted is not made and isinstance(adopted, JournaledContainer)
        assert vars(adopted)["items"] == [x] and adopted.journal is made.journal
        return x

    traced(step, torch.tensor(True), torch.ones(2))


def test_where_no_container_is_journaled(drafts: list[Draft]) -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        items, more = _list_of(x), [[x, x], [x]]
        join = join_of(tx, flag)
        with pytest.raises(Refusal, match="an arm changes a TupleVariable"):
            plan_journal(join, compat.TupleVariable([x]), [x], more)
        tx.stack.append(
            compat.ListIteratorVariable(items.items, mutation_type=compat.ValueMutationNew())
        )
        with pytest.raises(Refusal, match="while a loop goes over it"):
            plan_journal(join, items, items.items, more)
        tx.stack.pop()
        plan_journal(join, items, items.items, more)
        weaken(Finding(Claim.READ_APART, join.site, 0))
        with pytest.raises(Refusal, match="differs and is read later"):
            plan_journal(join, items, items.items, more)
        return x

    traced(step, torch.tensor(True), torch.ones(2))
    assert not drafts, "planning writes nothing"


def test_a_key_that_is_deleted_and_added_again_gets_its_new_place(drafts: list[Draft]) -> None:
    def step(tx: Any, flag: Any, x: Any) -> Any:
        def entries(*names: str) -> Any:
            given: Any = {constant(name): x for name in names}
            return compat.ConstDictVariable(given, mutation_type=compat.ValueMutationNew())

        before = entries("a", "b")
        _journaled(tx, flag, before, entries("b", "c").items, before.items)
        ((_, (removed, added)),) = _written(drafts)
        assert [each.as_python_constant() for each in removed.items] == ["a"]
        assert [pair.items[0].as_python_constant() for pair in added.items] == ["c"]
        again, swapped = entries("a", "b", "c"), entries("a", "c", "b")
        drafts.clear()
        _journaled(tx, flag, again, swapped.items, again.items)
        ((_, (removed, added)),) = _written(drafts)
        assert [each.as_python_constant() for each in removed.items] == ["b", "c"]
        assert [pair.items[0].as_python_constant() for pair in added.items] == ["c", "b"]
        return x

    traced(step, torch.tensor(True), torch.ones(2))


def _tuple(*items: Any) -> Any:
    return compat.TupleVariable(list(items))


def _known(monkeypatch: pytest.MonkeyPatch, key: str, *records: Any) -> list[str] | None:
    """Return what is known of `key` in ``{"a": x}`` after records, written as functions of it."""
    found: list[list[str] | None] = []

    def step(tx: Any, x: Any) -> Any:
        owner = compat.ConstDictVariable(
            {constant("a"): x}, mutation_type=compat.ValueMutationNew()
        )
        inputs = [make(owner) for make in records]
        monkeypatch.setattr(record_builder, "records_until_now", lambda tx: inputs)
        known = untouched(tx, owner, owner, constant(key))
        names = known and [each.vt.as_python_constant() for each in known.items]
        found.append(names if known is None else list(names or []))
        return x

    traced(step, torch.ones(2))
    return found[0]


def test_a_key_that_no_record_names_is_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    def sets_b(owner: Any) -> Any:
        return _tuple(owner, constant("__setitem__"), constant("b"), constant(1))

    assert _known(monkeypatch, "a") == ["a"]
    assert _known(monkeypatch, "b") == []
    assert _known(monkeypatch, "a", sets_b) == ["a"]
    assert _known(monkeypatch, "b", sets_b) is None


def test_a_refill_names_the_keys_that_it_removes_and_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    def refills(owner: Any) -> Any:
        return _tuple(owner, _tuple(constant("b")), _tuple(_tuple(constant("c"), constant(1))))

    assert _known(monkeypatch, "a", refills) == ["a"]
    assert _known(monkeypatch, "b", refills) is None
    assert _known(monkeypatch, "c", refills) is None


@pytest.mark.parametrize(
    "record",
    [
        lambda owner: _tuple(owner, constant("update"), _tuple()),
        lambda owner: _tuple(owner, constant("clear")),
        lambda owner: _tuple(constant(0), owner),
        lambda owner: _tuple(constant(0), constant("__setitem__"), constant("b"), owner),
    ],
)
def test_another_record_of_the_dictionary_may_touch_any_key(
    monkeypatch: pytest.MonkeyPatch, record: Any
) -> None:
    assert _known(monkeypatch, "a", record) is None


def test_records_of_others_touch_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    assert _known(monkeypatch, "a", lambda owner: _tuple(constant("clear"))) == ["a"]
    assert _known(monkeypatch, "a", lambda owner: constant("clear")) == ["a"]
