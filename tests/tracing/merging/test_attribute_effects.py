"""Attributes and variables that differ after a branch: stored when the graph has run, or read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.merging.attribute_effects import (
    attribute_changes,
    require_creatable,
)
from bcmend.tracing.merging.lazy_phi import CellPhi, MissingAttribute, StoredPhi
from bcmend.tracing.merging.location_phi import BothSides, OneValue, apply
from bcmend.tracing.output import record_builder
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import weaken
from bcmend.tracing.sites.locations import Location, LocationKind
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.session import SESSION
from bcmend.tracing.speculation.arms import ArmTrace, Effects
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.merging.joins import join_of
from tests.tracing.plain_trace import traced

VECTORS = ([1.0, 2.0, 3.0], [-1.0, -2.0, -3.0], [1.0, -4.0, 0.5])


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _vectors() -> list[Call]:
    return [call(torch.tensor(each)) for each in VECTORS]


class Flagged(nn.Module):
    """Has a flag that its subclasses set."""

    def __init__(self) -> None:
        super().__init__()
        self.flag: Any = "first"
        self.copy: Any = None


class StoredOver(Flagged):
    def forward(self, x: Tensor) -> Tensor:
        self.flag = "positive" if x.sum() > 0 else None
        self.flag = "last"
        return x * 2


class StoredOverInAnArm(Flagged):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 2:
                self.flag = "large"
            else:
                self.flag = None
            self.flag = "positive"
        else:
            self.flag = "other"
        return x * 2


class StoredInArmsOfArms(Flagged):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            if x.max() > 2:
                self.flag = "large"
            else:
                self.flag = None
        else:
            self.flag = "other"
        return x * 2


class StoredAndReturned(Flagged):
    def forward(self, x: Tensor) -> Any:
        if x.sum() > 0:
            self.flag = "positive"
        else:
            self.flag = None
        return x * 2, self.flag


class StoredAndCopied(Flagged):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.flag = "positive"
        else:
            self.flag = None
        self.copy = self.flag
        return x * 2


class CheckedBefore(Flagged):
    def forward(self, x: Tensor) -> Tensor:
        self.flag = "started"
        if x.max() < 0:
            raise ValueError("before")
        if x.sum() > 0:
            self.flag = "positive"
        else:
            self.flag = 7
        if x.min() < -3.5:
            raise ValueError("after")
        return x * 2


class CountedInALoop(nn.Module):
    def forward(self, x: Tensor) -> Any:
        self.hits = 0
        for number in range(3):
            if x[number] > 0:
                self.hits += 1
        return x * 2, self.hits


class Guarded(nn.Module):
    """Does more than storing where an attribute is assigned."""

    def __init__(self) -> None:
        super().__init__()
        self.log: list[str] = []
        self.flag = "first"

    def __setattr__(self, name: str, value: Any) -> None:
        if name == "flag":
            self.log.append("stored")
        super().__setattr__(name, value)

    def forward(self, x: Tensor) -> Tensor:
        self.flag = "started"
        if x.sum() > 0:
            self.flag = "positive"
        return x * 2


@pytest.mark.parametrize(
    "make",
    [
        StoredOver,
        StoredOverInAnArm,
        StoredInArmsOfArms,
        StoredAndReturned,
        StoredAndCopied,
        CheckedBefore,
        CountedInALoop,
    ],
)
def test_an_attribute_is_as_in_eager_execution(make: Callable[[], nn.Module]) -> None:
    assert_equivalent(make, _vectors, backend="aot_eager", graphs=None, recompiles=None)


def test_a_method_that_stores_runs_as_often_as_in_eager_execution() -> None:
    assert_equivalent(Guarded, _vectors, fullgraph=False, graphs=None, recompiles=None)


@dataclass
class Result:
    """What some programs return."""

    value: Tensor
    note: str | None = None


class Plain:
    """An object whose attributes nothing declares."""


def field_of_a_result() -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Result:
        result = Result(x * 2)
        if x.min() < -3.5:
            result.note = "clipped"
            result.value = x.clamp(min=-3)
        return result

    return program


def attribute_of_one_side() -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Plain:
        result: Any = Plain()
        if x.min() < -3.5:
            result.only_there = "clipped"
        result.value = x * 2
        return result

    return program


def choice_in_a_plain_object() -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Plain:
        note = "positive" if x.sum() > 0 else None
        result: Any = Plain()
        result.note = note
        result.value = x * 2
        return result

    return program


def variable_counted_by_a_nested_function() -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        hits = 0

        def visit(y: Tensor) -> Tensor:
            nonlocal hits
            if y.sum() > 0:
                hits += 1
                return y * 2
            return y + 0

        return visit(x) + visit(-x), hits

    return program


def variable_that_outlives_its_frame() -> Callable[[Tensor], Any]:
    def counter(x: Tensor) -> Any:
        count = 0

        def visit(y: Tensor) -> None:
            nonlocal count
            if y.sum() > 0:
                count = 5

        visit(x)
        return x * 2, lambda: count

    def program(x: Tensor) -> Any:
        value, count = counter(x)
        return value, count()

    return program


class Slot:
    """Gets its attributes when it is first used."""

    def __init__(self) -> None:
        self.is_ready = False

    def update(self, value: Tensor) -> Tensor:
        if not self.is_ready:
            self.dtype, self.kept = value.dtype, value[:1]
            self.is_ready = True
        self.kept = torch.cat([self.kept, value])
        return self.kept


def made_ready_in_an_arm() -> Any:
    def program(x: Tensor) -> Any:
        slots = [Slot() for _ in range(2)]
        for slot in slots:
            if x.sum() > 0:
                x = slot.update(x)[:3] * 1.5
            x = x - 2
        return x, slots, x.dtype  # other objects have attributes of these names, too

    return program


def looked_for_behind_the_branch() -> Any:
    def program(x: Tensor) -> Any:
        slot = Slot()
        if x.sum() > 0:
            slot.update(x)
        return x * 2 if hasattr(slot, "kept") else x - 1

    return program


def read_behind_the_branch() -> Any:
    def program(x: Tensor) -> Any:
        slot = Slot()
        if x.sum() > 0:
            slot.update(x)
        try:
            return x * slot.kept.sum()
        except AttributeError:
            return x - 1

    return program


@pytest.mark.parametrize(
    "make",
    [
        field_of_a_result,
        made_ready_in_an_arm,
        looked_for_behind_the_branch,
        read_behind_the_branch,
        attribute_of_one_side,
        choice_in_a_plain_object,
        variable_counted_by_a_nested_function,
        variable_that_outlives_its_frame,
    ],
)
@pytest.mark.parametrize("training", [False, True])
def test_equal_in_one_graph(make: Callable[[], Any], training: bool) -> None:
    assert_equivalent(make, _vectors, backend="aot_eager", training=training, zero_gradients=True)


class _Tied(nn.Module):
    """Ties one of its two weights to an attribute that is a parameter already."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Parameter(torch.ones(3))
        self.second = nn.Parameter(torch.zeros(3))
        self.used = self.first

    def forward(self, x: Tensor) -> Tensor:
        self.used = self.first if x.sum() > 0 else self.second
        return x * 2


def test_no_merged_tensor_is_stored_as_a_parameter() -> None:
    for row in VECTORS:
        torch._dynamo.reset()
        expected, found = _Tied(), _Tied()
        result = expected(torch.tensor(row))
        bcmend.patch(found)
        assert torch.compile(found, backend="eager")(torch.tensor(row)).equal(result)
        owner = "first" if expected.used is expected.first else "second"
        assert found.used is getattr(found, owner)


class _Namespace:
    """An object of the program's own."""


class _Kept(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner: Any = _Namespace()


class _Created(_Kept):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.extra = 3
        return x + 1


class _CreatedWithATensor(_Kept):
    def forward(self, x: Tensor) -> Tensor:
        if 0 < x.sum() < 5:
            self.extra = x * 2
        return x + 1


class _CreatedInside(_Kept):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            self.inner.extra = 3
        else:
            self.inner.other = 4
        return x + 1


@pytest.mark.parametrize("kind", [_Created, _CreatedWithATensor, _CreatedInside])
def test_an_attribute_that_an_earlier_call_has_created_stays(kind: type[_Kept]) -> None:
    inputs = [call(torch.full((2,), value)) for value in (1.0, -1.0, 2.0, -2.0, 9.0)]
    assert_equivalent(kind, lambda: inputs, graphs=None, recompiles=None, may_copy=True)


def test_an_attribute_that_an_earlier_call_has_deleted_cannot_be_deleted_in_an_arm() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.note = 3

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                del self.note
            return x + 1

    values = (1.0, -1.0, 1.0, -1.0)
    for fullgraph in (True, False):
        assert_equivalent(
            Net,
            lambda: [call(torch.full((2,), each)) for each in values],
            fullgraph=fullgraph,
            graphs=None,
            recompiles=None,
        )


@pytest.mark.parametrize(
    "read",
    [
        lambda module: len(list(module.buffers())),
        lambda module: sorted(module.state_dict()),
        lambda module: list(module._buffers),
    ],
)
def test_a_buffer_that_one_side_creates_is_among_the_buffers(read: Callable[..., Any]) -> None:
    class Net(nn.Module):
        def forward(self, x: Tensor) -> Any:
            if x.sum() > 0:
                self.register_buffer("late", x.detach().clone())
            return x + 1, read(self)

    values = (-1.0, 1.0, -1.0)
    assert_equivalent(
        Net,
        lambda: [call(torch.full((2,), each)) for each in values],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


class Box:
    """An object with an attribute."""

    def __init__(self) -> None:
        self.held = 1


def _arm(*stores: tuple[Any, str, Any]) -> ArmTrace:
    """Return an arm that does nothing but store attributes."""
    attributes = {Location(LocationKind.ATTRIBUTE, *place): value for *place, value in stores}
    return ArmTrace(constant(None), torch.fx.Graph(), {}, Effects(attributes), ())


FLAG = torch.tensor(True)


def test_attributes_with_a_common_form_are_merged() -> None:
    def step(tx: Any, flag: Any, x: Any, y: Any, box: Any) -> Any:
        join = join_of(tx, flag, x, y)
        arms = _arm((box, "held", x)), _arm((box, "held", y))
        (change,) = attribute_changes(join, arms)
        assert isinstance(change, OneValue)
        assert (change.location.owner, change.location.key, change.sides) == (box, "held", (x, y))
        assert [(each.then_value, each.else_value) for each in join.merger.pairs] == [(x, y)]
        assert change.build([flag]) is flag
        return x

    traced(step, FLAG, torch.ones(2), torch.zeros(2), Box())


def test_a_side_that_stores_nothing_has_the_present_value() -> None:
    def step(tx: Any, flag: Any, x: Any, box: Any) -> Any:
        (change,) = attribute_changes(join_of(tx, flag), (_arm(), _arm((box, "held", constant(1)))))
        assert isinstance(change, OneValue)
        assert change.build([]).as_python_constant() == 1
        return x

    traced(step, FLAG, torch.ones(2), Box())


def test_attributes_without_a_common_form_hold_both_sides(monkeypatch: pytest.MonkeyPatch) -> None:
    drafts: list[Any] = []
    monkeypatch.setattr(record_builder, "append", lambda tx, draft: drafts.append(draft))

    def step(tx: Any, flag: Any, x: Any, box: Any) -> Any:
        join = join_of(tx, flag)
        (change,) = attribute_changes(join, (_arm((box, "held", x)), _arm()))
        assert isinstance(change, BothSides)
        apply(join, [change], [])
        stored = tx.output.side_effects.store_attr_mutations[box].pop("held")
        assert type(stored) is StoredPhi and (stored.owner, stored.name) == (box, "held")
        assert stored.sides[0] is x and stored.sides[1].as_python_constant() == 1
        assert [draft.action.fn.__name__ for draft in drafts] == ["store_choice"]
        weaken(Finding(Claim.READ_APART, join.site, 0))
        with pytest.raises(Refusal, match="the attribute held has no common form"):
            attribute_changes(join, (_arm((box, "held", x)), _arm()))
        return x

    traced(step, FLAG, torch.ones(2), Box())


def test_a_cell_of_the_frame_needs_no_record(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(record_builder, "append", None)

    def step(tx: Any, flag: Any, x: Any) -> Any:
        cell = tx.output.side_effects.track_cell_new()
        join = join_of(tx, flag)
        name = "cell_contents"
        sides = _arm((cell, name, x)), _arm((cell, name, constant(1)))
        (change,) = attribute_changes(join, sides)
        assert isinstance(change, BothSides)
        apply(join, [change], [])
        assert type(tx.output.side_effects.store_attr_mutations[cell][name]) is CellPhi
        return x

    traced(step, FLAG, torch.ones(2))


def test_an_attribute_that_both_sides_delete() -> None:
    def step(tx: Any, flag: Any, x: Any, box: Any) -> Any:
        gone = compat.DeletedVariable()
        arms = _arm((box, "held", gone)), _arm((box, "held", gone))
        (change,) = attribute_changes(join_of(tx, flag), arms)
        assert isinstance(change, OneValue) and change.build([]) is gone
        return x

    traced(step, FLAG, torch.ones(2), Box())


def test_an_attribute_of_one_side_needs_that_no_other_code_names_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Patcher:
        named = False

        def is_named_elsewhere(self, name: str, code: Any) -> bool:
            return self.named

    monkeypatch.setattr(SESSION, "patcher", Patcher())

    def step(tx: Any, flag: Any, x: Any, box: Any) -> Any:
        join = join_of(tx, flag)
        require_creatable(join, box, "fresh")
        (change,) = attribute_changes(join, (_arm((box, "fresh", x)), _arm()))
        assert isinstance(change, BothSides)
        assert isinstance(change.sides[1]([]), MissingAttribute)
        with pytest.raises(Refusal, match="cell_contents is bound on one side only"):
            require_creatable(join, box, "cell_contents")
        with pytest.raises(Refusal, match="is bound on one side only"):
            require_creatable(join, constant(1), "fresh")
        monkeypatch.setattr(Patcher, "named", True)
        with pytest.raises(Refusal, match="is used elsewhere"):
            require_creatable(join, box, "fresh")
        return x

    traced(step, FLAG, torch.ones(2), Box())


def _counting() -> Callable[[Tensor], Any]:
    calls = 1

    def program(x: Tensor) -> Any:
        nonlocal calls
        calls += 1
        if x.sum() > 0:
            calls += 10
            return x * calls, calls
        return x * 2 * calls, calls

    return program


def _counting_in_a_function() -> Callable[[Tensor], Any]:
    calls = 1

    def chosen(x: Tensor, number: int) -> Any:
        return (x * number, number * 2) if x.sum() > 0 else (x - number, number + 7)

    def program(x: Tensor) -> Any:
        nonlocal calls
        calls += 3
        twice = calls * 2
        x, number = chosen(x, twice + 1)
        calls += 1
        return x, number, twice

    return program


@pytest.mark.parametrize("make", [_counting, _counting_in_a_function])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_number_that_each_call_counts_up_is_that_of_the_call(make: Any, backend: str) -> None:
    def calls() -> list[Call]:
        return [call(torch.tensor(each)) for each in (*VECTORS, *VECTORS, *VECTORS[::-1])]

    assert_equivalent(make, calls, backend=backend, fullgraph=False, graphs=None, recompiles=None)


def _behind_an_early_return(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    scale = x * 2
    return (lambda: scale - x)()


def _in_a_helper(x: Tensor) -> Tensor:
    def helper(y: Tensor) -> Tensor:
        if y.sum() > 0:
            return y + 1
        scale = y * 2
        return (lambda: scale - y)()

    return helper(x) + helper(-x)


def _behind_two_returns(x: Tensor) -> Tensor:
    if x.sum() > 0:
        return x + 1
    scale = x * 2
    if (y := (lambda: scale - 1)()).sum() > -8:
        return y
    power = x.abs()
    return (lambda: scale * power)()


@pytest.mark.parametrize("program", [_behind_an_early_return, _in_a_helper, _behind_two_returns])
def test_a_cell_that_one_side_fills_dies_with_its_frame(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: program, _vectors)


def _read_where_it_may_be_unbound(x: Tensor) -> Tensor:
    if x.sum() > 0:
        scale = x * 2
    return (lambda: scale - x)()


def test_a_cell_that_one_side_fills_and_that_is_read_raises_as_in_eager_execution() -> None:
    assert_equivalent(
        lambda: _read_where_it_may_be_unbound,
        _vectors,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


# Attributes that are made by reading them


class Once(nn.Module):
    """Reads a property in an arm that is computed at the first read, of a number that changes."""

    def __init__(self) -> None:
        super().__init__()
        self.number = 2

    @cached_property
    def factor(self) -> int:
        return self.number + 1

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * self.factor
        return x * 2


class OnceAndBehind(Once):
    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * self.factor
        self.number = 7
        return x + self.factor


class OnceAsATensor(Once):
    @cached_property
    def factor(self) -> Any:
        return torch.arange(3.0) * self.number


class OnceInADictionary(Once):
    """Has a helper that keeps the value, as the property does, where a class has the name too."""

    def forward(self, x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x * _kept(self)
        return x * 2


def _kept(module: Any) -> int:
    kept = module.__dict__
    if "factor" not in kept:
        kept["factor"] = module.number + 1
    return int(kept["factor"])


@pytest.mark.parametrize("kind", [Once, OnceAndBehind, OnceAsATensor, OnceInADictionary])
def test_the_side_that_does_not_read_a_property_computes_nothing(kind: Any) -> None:
    eager, mended = kind(), bcmend.patch(kind())
    compiled = torch.compile(mended, backend="eager", fullgraph=True)
    for sign in (-1, -1, 1, -1, 1):
        x = torch.ones(3) * sign
        assert torch.equal(compiled(x), eager(x))
        kept = ("factor" in vars(eager), eager.number)
        assert ("factor" in vars(mended), mended.number) == kept
