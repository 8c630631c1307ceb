"""Items of containers at data-dependent places: one graph, and the errors of eager execution."""

from __future__ import annotations

from collections import defaultdict, namedtuple
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.tracing.indexing import open_places
from tests.equivalence import Call, assert_equivalent, call
from tests.samples import in_turn, name_of


def _at(*places: int) -> Callable[[], Sequence[Call]]:
    """Return calls with one vector, and with each of ``places`` in a tensor."""
    return lambda: [call(torch.arange(1.0, 5.0), torch.tensor(each)) for each in places]


def _tensors(x: Tensor, at: Tensor) -> Tensor:
    return [x * 2, x - 1][int(at)] + 1


def _by_a_truth(x: Tensor, at: Tensor) -> Tensor:
    return (x.sin(), x.cos())[bool(at > 0)] + 1


def _of_one_by_a_truth(x: Tensor, at: Tensor) -> Tensor:
    return [x.sin()][bool(at > 0)] + 1


def _numbers(x: Tensor, at: Tensor) -> Tensor:
    return x * (1.0, 2.0, 5.0)[at.item()]


def _by_a_tensor(x: Tensor, at: Tensor) -> Tensor:
    at = at.clone()
    table = [x.sin(), x.cos(), x.exp()]
    before = table[at]
    at.add_(1)
    return before + table[at] * 2


def _nothing_or_a_tensor(x: Tensor, at: Tensor) -> Tensor:
    found = (None, x * 2)[int(at)]
    return x + 1 if found is None else found * 2


def _texts(x: Tensor, at: Tensor) -> Tensor:
    mode = ["sine", "cosine", "none"][int(at)]
    if mode == "sine":
        return x.sin()
    return x.cos() if mode == "cosine" else x * 1


def _unlike_shapes(x: Tensor, at: Tensor) -> Tensor:
    return [x[:2], x][int(at)].sum()


def _unpacked(x: Tensor, at: Tensor) -> Tensor:
    one, other = ((x, 1), (x * 2, 2))[int(at)]
    return one * other


def _changed_in_place(x: Tensor, at: Tensor) -> tuple[Tensor, Tensor]:
    one, other = x * 2, x * 3
    [one, other][int(at)].add_(1)
    return one, other


def _which_it_is(x: Tensor, at: Tensor) -> tuple[bool, Tensor]:
    one, other = x * 2, x * 3
    found = [one, other][int(at)]
    return found is one, found


def _in_an_arm(x: Tensor, at: Tensor) -> Tensor:
    y = x * 3
    if at >= 0:
        y = [x * 2, x - 1][int(at)] + 1
    return y


def _twice_by_one_number(x: Tensor, at: Tensor) -> Tensor:
    place = int(at)
    return [x.sin(), x.cos(), x.exp()][place] * [1.0, 2.0, 3.0][place] + place


def _from_the_end(x: Tensor, at: Tensor) -> Tensor:
    return [x.sin(), x.cos(), x.exp()][-1 - int(at)] * 1


def _in_a_loop(x: Tensor, at: Tensor) -> Tensor:
    factors = [1.0, 2.0, 3.0]
    for turn in range(3):
        x = x * factors[(int(at) + turn) % 3]
    return x


def _of_a_size(x: Tensor, at: Tensor) -> Tensor:
    return x.reshape(1, 4).size()[int(at)] * x


_Pair = namedtuple("_Pair", "one other")


def _of_a_named_tuple(x: Tensor, at: Tensor) -> Tensor:
    return _Pair(x * 2, x * 3)[int(at)] + 1


def _handled(x: Tensor, at: Tensor) -> Tensor:
    try:
        return [x * 2, x - 1][int(at)] + 1
    except IndexError as error:
        return x * len(str(error))


def _shown(x: Tensor, at: Tensor) -> Tensor:
    print("factor", (1.0, 2.0)[int(at)], x.sum())
    return x + 1


_SEQUENCES = [
    _tensors,
    _by_a_truth,
    _of_one_by_a_truth,
    _numbers,
    _by_a_tensor,
    _nothing_or_a_tensor,
    _texts,
    _unlike_shapes,
    _unpacked,
    _changed_in_place,
    _which_it_is,
    _in_an_arm,
    _twice_by_one_number,
    _from_the_end,
    _in_a_loop,
    _of_a_size,
    _of_a_named_tuple,
    _handled,
    _shown,
]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", _SEQUENCES)
def test_items_of_sequences(program: Callable[..., Any], backend: str) -> None:
    places = _at(0, 1, -1, 2, -3, 7)
    assert_equivalent(lambda: program, places, training=backend != "eager", backend=backend)


_GAPS = {-3: 1.0, 4: 2.0, 7: 3.0, "a": 4.0, None: 5.0}
_TRUTHS = {True: 2.0, False: 3.0}


def _sine(x: Tensor) -> Tensor:
    return x.sin()


def _cosine(x: Tensor) -> Tensor:
    return x.cos() * 2


_FUNCTIONS = {0: _sine, 1: _cosine, -4: torch.tanh}


def _of_a_dictionary(x: Tensor, at: Tensor) -> Tensor:
    return x * _GAPS[at.item()]


def _by_a_truth_as_key(x: Tensor, at: Tensor) -> Tensor:
    return x * _TRUTHS[bool(at > 0)]


def _function_of_a_dictionary(x: Tensor, at: Tensor) -> Tensor:
    return _FUNCTIONS[int(at)](x) + 1


def _missing_key_handled(x: Tensor, at: Tensor) -> Tensor:
    try:
        factor = _GAPS[at.item()]
    except KeyError as error:
        factor = float(error.args[0])
    return x * factor


_DICTIONARIES = [
    _of_a_dictionary,
    _by_a_truth_as_key,
    _function_of_a_dictionary,
    _missing_key_handled,
]


@pytest.mark.parametrize("program", _DICTIONARIES)
def test_items_of_dictionaries(program: Callable[..., Any]) -> None:
    assert_equivalent(lambda: program, _at(0, 1, 4, 7, -3, -4, 5), training=True)


def test_functions_of_a_list() -> None:
    def program(x: Tensor, at: Tensor) -> Tensor:
        def own(y: Tensor) -> Tensor:
            return y * x

        return [own, torch.tanh, lambda y: y + 1, _sine][at.item()](x * 2)

    assert_equivalent(lambda: program, _at(0, 1, 2, 3, -1, 4, -5), training=True)


class _Experts(nn.Module):
    """Layers of which one is called."""

    def __init__(self, count: int = 3) -> None:
        super().__init__()
        self.layers = nn.ModuleList(map(self.made, range(count)))

    def made(self, number: int) -> nn.Module:
        return nn.Linear(4, 4)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return self.layers[at.item()](x) * 2


class _Unlike(_Experts):
    def made(self, number: int) -> nn.Module:
        if number == 1:
            return nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 4))
        return nn.Tanh() if number else nn.Linear(4, 4)


class _OfOtherShapes(_Experts):
    def made(self, number: int) -> nn.Module:
        return nn.Linear(4, 4 + number)


class _Named(_Experts):
    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        layer = self.layers[int(at)]
        return layer(layer(x).relu())


class _ByATensor(_Experts):
    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return self.layers[x.argmax() - 3 + at](x)


class _Router(_Experts):
    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(4, 3)

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        shares, places = (self.gate(x) + at).topk(2)
        y = x * 0
        for share, place in zip(shares, places, strict=True):
            y = y + share * self.layers[place](x)
        return y


class _Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        print("expert", x.sum())
        self.calls += 1
        return self.layer(x) * self.calls


class _WithState(_Experts):
    def made(self, number: int) -> nn.Module:
        return _Counting()


class _Hooked(_Experts):
    def __init__(self) -> None:
        super().__init__()
        self.layers[1].register_forward_hook(lambda module, given, result: result * 2)


class _OfASequential(_Experts):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


class _Parameters(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.factors = nn.ParameterList([torch.ones(4), torch.full((4,), 2.0)])

    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        return x * self.factors[int(at)]


class _Handling(_Experts):
    def forward(self, x: Tensor, at: Tensor) -> Tensor:
        try:
            return self.layers[int(at)](x)
        except IndexError as error:
            return x * len(str(error))


_MODULES = [
    _Experts,
    _Unlike,
    _OfOtherShapes,
    _Named,
    _ByATensor,
    _Router,
    _WithState,
    _Hooked,
    _OfASequential,
    _Parameters,
    _Handling,
]


@pytest.mark.parametrize(("make", "training"), in_turn(_MODULES, [True, False], name_of))
def test_items_of_modules(make: Callable[[], nn.Module], training: bool) -> None:
    """Layers that are not taken get no gradient, and keep their state."""
    backend = "aot_eager" if training else "eager"
    places = _at(0, 1, 0) if make is _Router else _at(0, 1, 2, -1, -3, 3, -4)
    assert_equivalent(make, places, training=training, backend=backend)


@pytest.mark.parametrize("make", [lambda: _function_of_a_dictionary, _Unlike])
def test_items_with_inductor(make: Callable[[], Any]) -> None:
    assert_equivalent(make, _at(0, 1, -4, 0), training=True, backend="inductor")


def test_the_branches_are_as_deep_as_a_logarithm() -> None:
    factors = tuple(map(float, range(open_places.ITEMS_AT_MOST)))

    def program(x: Tensor, at: Tensor) -> Tensor:
        return x * factors[int(at)]

    assert_equivalent(lambda: program, _at(0, 15, -1, -16, 16))


def test_a_container_that_grows_is_compiled_again() -> None:
    table, keys = [1.0, 2.0], {0: 1.0, 1: 2.0}

    def program(x: Tensor, at: Tensor) -> Tensor:
        return x * table[int(at)] + keys[int(at)]

    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    x, last = torch.ones(1), torch.tensor(2)
    try:
        with pytest.raises(IndexError, match="list index out of range"):
            compiled(x, last)
        table.append(3.0)
        with pytest.raises(KeyError, match="2"):
            compiled(x, last)
        keys[2] = 3.0
        assert compiled(x, last).item() == 6
        assert compiled(x, torch.tensor(0)).item() == 2
    finally:
        bcmend.unpatch()


def _refusals(make: Callable[[], Any], places: Callable[[], Sequence[Call]]) -> set[str | None]:
    comparison = assert_equivalent(make, places, graphs=None, recompiles=None)
    assert comparison.report is not None
    return {site.refusal for site in comparison.report.sites if site.status == "refused"}


def test_more_items_are_refused() -> None:
    count = open_places.ITEMS_AT_MOST + 1
    assert _refusals(lambda: _Experts(count), _at(0, 16)) == {"too-deep"}


class _Own(list):  # type: ignore[type-arg]
    def __getitem__(self, place: Any) -> Any:
        return super().__getitem__(place)


def _of_a_class() -> Any:
    own = _Own([2.0, 3.0])
    return lambda x, at: x * own[int(at)]


def _with_a_default() -> Any:
    table = defaultdict(lambda: 5.0, {0: 2.0})
    return lambda x, at: x * table[int(at)]


@pytest.mark.parametrize("make", [_of_a_class, _with_a_default])
def test_containers_that_find_items_in_their_own_way_are_left_to_dynamo(make: Any) -> None:
    found = assert_equivalent(make, _at(0, 1), graphs=2, recompiles=1)
    assert found.report is not None
    assert not any(site.kind == "split" for site in found.report.sites)
