"""What a join leaves is on each side what that side has left."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.tracing.heap import match
from bcmend.tracing.heap.heap import Heap, Object
from bcmend.tracing.heap.match import torn
from bcmend.tracing.lowering import branch_lowering
from bcmend.tracing.merging.merge import Merger
from bcmend.tracing.search import strict
from bcmend.tracing.two_forms import holders

OLD, NEW = False, True


class _Model:
    """Stands for the model of a list."""

    source = None

    def is_realized(self) -> bool:
        return False


def _heap(held: dict[str, Any], **objects: tuple[Any, bool, dict[Any, Any]]) -> Heap:
    heap = Heap(dict(held))
    for model, is_new, fields in objects.values():
        heap.objects[id(model)] = Object(model, True, is_new, fields)
        heap.counts.update(map(id, fields.values()))
    heap.counts.update(map(id, held.values()))
    return heap


class _Opaque(_Model):
    """Stands for a model of a kind that has no row."""

    mutation_type: Any = object()

    def is_realized(self) -> bool:
        return True

    def realize(self) -> Any:
        return self


opaque: Any = _Opaque()
one: Any = compat.ConstantVariable.create(1)
true: Any = compat.ConstantVariable.create(True)
a: Any = _Model()
b: Any = _Model()
c: Any = _Model()
d: Any = _Model()


@pytest.mark.parametrize(
    ("joined", "side", "how"),
    [
        pytest.param(
            _heap({"x": a, "y": b}, a=(a, NEW, {}), b=(b, NEW, {})),
            _heap({"x": c, "y": d}, c=(c, NEW, {}), d=(d, NEW, {})),
            None,
            id="two of two",
        ),
        pytest.param(
            _heap({"x": a, "y": a}, a=(a, NEW, {})),
            _heap({"x": c, "y": d}, c=(c, NEW, {}), d=(d, NEW, {})),
            "one object in place of two",
            id="one of two",
        ),
        pytest.param(
            _heap({"x": a, "y": b}, a=(a, NEW, {}), b=(b, NEW, {})),
            _heap({"x": c, "y": c}, c=(c, NEW, {})),
            "two objects in place of one",
            id="two of one",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {0: b, 1: b}), b=(b, NEW, {})),
            _heap({"x": a}, a=(a, NEW, {0: b, 1: c}), b=(b, NEW, {}), c=(c, NEW, {})),
            "one object in place of two",
            id="in another",
        ),
        pytest.param(
            _heap({"x": a, "y": c}, a=(a, OLD, {}), c=(c, OLD, {})),
            _heap({"x": c, "y": c}, c=(c, OLD, {})),
            "another object than that from before",
            id="another from before",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {})),
            _heap({"x": c}, c=(c, OLD, {})),
            None,
            id="one from before that nothing else holds",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {"self": a})),
            _heap({"x": c}, c=(c, NEW, {"self": c})),
            None,
            id="a circle",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {"self": a})),
            _heap({"x": c}, c=(c, NEW, {"self": d}), d=(d, NEW, {})),
            "one object in place of two",
            id="a circle of one in place of two",
        ),
        pytest.param(
            _heap({"x": a, "z": b}, a=(a, NEW, {}), b=(b, NEW, {})),
            _heap({"x": c}, c=(c, NEW, {})),
            None,
            id="what one side alone has",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {0: b})),
            _heap({"x": c}, c=(c, NEW, {0: b, 1: b})),
            match.KEYS,
            id="an item more",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {"k": b, "l": b})),
            _heap({"x": c}, c=(c, NEW, {"l": b, "k": b})),
            match.KEYS,
            id="another order",
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {(".", "k"): b, (".", "l"): b})),
            _heap({"x": c}, c=(c, NEW, {(".", "l"): b})),
            None,
            id="another attribute",
        ),
        pytest.param(_heap({"x": one}), _heap({"x": one}), None, id="a constant"),
        pytest.param(_heap({"x": one}), _heap({"x": true}), match.CONSTANT, id="another constant"),
        pytest.param(_heap({"x": opaque}), _heap({"x": opaque}), None, id="opaque, and itself"),
        pytest.param(
            _heap({"x": opaque}), _heap({"x": _Opaque()}), match.UNKNOWN, id="another opaque one"
        ),
        pytest.param(
            _heap({"x": a}, a=(a, NEW, {})), _heap({"x": _Opaque()}), None, id="of another kind"
        ),
    ],
)
def test_two_heaps_are_one_or_torn(joined: Heap, side: Heap, how: str | None) -> None:
    found = torn(joined, side, [side])
    assert (None if found is None else found.how) == how


def _sets(x: Tensor) -> Any:
    if x.sum() > 0:
        a = b = {1}
    else:
        a, b = {1}, {1}
    a.add(2)
    return x * len(b)


def _deques(x: Tensor) -> Any:
    if x.sum() > 0:
        a = b = deque([1])
    else:
        a, b = deque([1]), deque([1])
    a.append(2)
    return x * len(b)


def _lists(x: Tensor) -> Any:
    if x.sum() > 0:
        a = b = [x]
    else:
        a, b = [x + 1], [x + 1]
    a.append(2)
    return x * len(b)


def _dictionaries(x: Tensor) -> Any:
    if x.sum() > 0:
        a = {"k": x}
        both = [a, a]
    else:
        both = [{"k": x + 1}, {"k": x - 1}]
    both[0]["l"] = 1
    return x * len(both[1])


class _State:
    a: Any
    b: Any
    count: int


def _attributes(x: Tensor) -> Any:
    state = _State()
    if x.sum() > 0:
        state.a = state.b = [1]
    else:
        state.a, state.b = [1], [1]
    state.a.append(2)
    return x * len(state.b)


def _cells(x: Tensor) -> Any:
    if x.sum() > 0:
        a = b = {1}
    else:
        a, b = {1}, {1}

    def add() -> None:
        a.add(2)

    add()
    return x * len(b)


def _functions(x: Tensor) -> Any:
    def adding(held: set[int]) -> Callable[[], int]:
        def add() -> int:
            held.add(2)
            return len(held)

        return add

    if x.sum() > 0:
        a = {1}
        first, second = adding(a), adding(a)
    else:
        first, second = adding({1}), adding({1})
    return x * (first() + second())


_SHARED: Any = None
_OTHER: Any = None


def _globals(x: Tensor) -> Any:
    global _SHARED, _OTHER
    if x.sum() > 0:
        _SHARED = _OTHER = {1}
    else:
        _SHARED, _OTHER = {1}, {1}
    _SHARED.add(2)
    return x * len(_OTHER)


def _views(x: Tensor) -> Any:
    one, other = {"a": 1}, {"a": 1}
    held = [one.keys(), other.keys()]
    view = held[0] if x.sum() > 0 else held[1]
    other["b"] = 2
    return x * len(view)


BRANCHES: list[Callable[[Tensor], Any]] = [
    _sets,
    _deques,
    _lists,
    _dictionaries,
    _attributes,
    _cells,
    _functions,
    _globals,
    _views,
]


def _calls(program: Callable[[Tensor], Any], backend: str | None) -> list[Any]:
    called = program
    if backend is not None:
        called = torch.compile(bcmend.patch(program), backend=backend)
    return [called(torch.ones(2) * sign) for sign in (1, -1, 1)]


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("program", BRANCHES)
def test_objects_that_are_one_on_one_side_are_kept_apart(
    program: Callable[[Tensor], Any],
) -> None:
    torch.testing.assert_close(_calls(program, "eager"), _calls(program, None))


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("program", [_sets, _cells, _lists, _globals])
def test_a_join_that_does_not_keep_them_apart_is_found(
    program: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Merger, "torn", lambda merger: frozenset())
    with pytest.raises(strict.InternalError, match="in place of"):
        _calls(program, "eager")


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("program", BRANCHES)
def test_a_plan_that_does_not_keep_them_apart_gives_no_wrong_result(
    program: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strict, "IS_ON", False)
    monkeypatch.setattr(Merger, "torn", lambda merger: frozenset())
    torch.testing.assert_close(_calls(program, "eager"), _calls(program, None))


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_a_join_that_is_refused_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", False)
    monkeypatch.setattr(match, "torn", lambda *_: match.Torn(match.ONE_FOR_TWO, ()))
    torch.testing.assert_close(_calls(_lists, "eager"), _calls(_lists, None))
    (site,) = bcmend.report(_lists).sites
    assert (site.refusal, site.detail) == ("arms-differ", match.ONE_FOR_TWO)


def _key(x: Tensor) -> Any:
    d = {1: x}
    if x.sum() > 0:
        d[2] = x
    for each in d:
        x = x + each
    return x, len(d)


def _member(x: Tensor) -> Any:
    s = {1}
    if x.sum() > 0:
        s.add(2)
    else:
        s.add(3)
    for each in sorted(s):
        x = x + each
    return x, sorted(s)


def _item(x: Tensor) -> Any:
    items = [x, 1]
    if x.sum() > 0:
        items[1] = 2
        items[0] = x + 1
    else:
        items[1] = 2
    for each in items:
        x = x + each
    return x, items[1]


def _count(x: Tensor) -> Any:
    state = _State()
    state.count = 0
    if x.sum() > 0:
        state.count = 2
        x = x + 1
    else:
        state.count = 2
    for each in range(state.count):
        x = x + each
    return x * state.count


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("program", [_key, _member, _item, _count])
def test_a_change_that_a_plan_loses_gives_no_wrong_result(
    program: Callable[[Tensor], Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(branch_lowering, "plan_changes", lambda join, arms: [])
    with pytest.raises(strict.InternalError, match=f"{match.KEYS}|{match.CONSTANT}|{match.TENSOR}"):
        _calls(program, "eager")
    torch.compiler.reset()
    monkeypatch.setattr(strict, "IS_ON", False)
    torch.testing.assert_close(_calls(program, "eager"), _calls(program, None))


def _loop(x: Tensor) -> Any:
    state, turns = {"h": x}, 0
    first = state
    while state["h"].max() > 0.3 and turns < 30:
        state = {"h": torch.tanh(state["h"])}
        turns += 1
    first["h"] = x + 7
    return state["h"], turns


@pytest.mark.usefixtures("dynamo_begun_anew")
def test_a_loop_that_makes_another_of_what_is_held_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    torch.testing.assert_close(_calls(_loop, "eager"), _calls(_loop, None))
    torch.compiler.reset()
    monkeypatch.setattr(holders, "require_held_once", lambda *_: None)
    with pytest.raises(strict.InternalError, match="another object than that from before"):
        _calls(_loop, "eager")
    torch.compiler.reset()
    monkeypatch.setattr(strict, "IS_ON", False)
    torch.testing.assert_close(_calls(_loop, "eager"), _calls(_loop, None))


def test_values_of_dynamo_are_looked_at_behind_what_is_lazy() -> None:
    held = compat.ListVariable([compat.ConstantVariable.create(1)])
    heap = _heap({"x": held}, x=(held, NEW, {}))
    assert heap.object_of(held) is heap.objects[id(held)]
    assert heap.object_of(compat.ConstantVariable.create(1)) is None
