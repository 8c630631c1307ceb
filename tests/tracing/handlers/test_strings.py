"""Texts that leave a graph are texts, whatever is in them."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.handlers import Call as HandlerCall
from bcmend.dynamo.models import texts
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers import strings
from bcmend.tracing.numbers import scalars
from bcmend.tracing.sites.site_table import LiveSite
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace, trace


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _returned(x: Tensor, number: int) -> tuple[Tensor, str]:
    if x.sum() > 0:
        x = x + 1
    return x * number, f"{number}"


def _with_a_form(x: Tensor, number: int) -> tuple[Tensor, list[str]]:
    if x.sum() > 0:
        x = x + 1
    return x * number, [f"{number:>4}", f"{number!r:>4}", f"{number!s}:", f"{number!a:<4}|"]


def _level(x: Tensor) -> int:
    if x.sum() > 4:
        return 2
    return 0


def _behind_a_break(x: Tensor, number: int) -> Tensor:
    sys.stderr.write(f"{_level(x * number)}")
    return x


@pytest.mark.parametrize("program", [_returned, _with_a_form, _behind_a_break])
def test_a_number_that_changes_from_call_to_call(program: Callable[..., object]) -> None:
    inputs = [call(torch.ones(3), number) for number in (1, 2, 5, 7)]
    assert_equivalent(
        lambda: program, lambda: inputs, fullgraph=False, graphs=None, recompiles=None
    )


def _tensor(x: Tensor) -> Tensor:
    message = f"as {x}"
    x.add_(1)
    print(message, x)
    return x


def _in_turns(x: Tensor) -> Tensor:
    for turn in range(3):
        message = f"{turn}: {x}"
        x.add_(turn)
        print(message)
    return x


def _list(x: Tensor) -> list[Tensor]:
    items = [x]
    message = f"{items}"
    items.append(x * 2)
    x.mul_(2)
    print(message, len(items))
    return items


def _in_an_arm(x: Tensor) -> Tensor:
    y = x * 1
    message = "none"
    if x.sum() > 0:
        message = f"{y}"
        y.add_(1)
        print(message)
    else:
        print(message, f"{y}")
        y.sub_(1)
    return y


def _raised(x: Tensor) -> Tensor:
    message = f"values {x}"
    x.mul_(2)
    if x.sum() > 5:
        raise ValueError(message)
    return x


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("program", [_tensor, _in_turns, _list, _in_an_arm, _raised])
def test_a_text_shows_values_of_its_moment(program: Callable[..., object], backend: str) -> None:
    def inputs() -> list[object]:
        return [call(torch.full((2,), value)) for value in (1.0, -3.0, 7.0)]

    assert_equivalent(lambda: program, inputs, backend=backend)


class _Owner:
    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"Owner({self.count})"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_text_of_an_object_that_is_changed_later_breaks_the_graph(backend: str) -> None:
    def make() -> Callable[[Tensor], Tensor]:
        owner = _Owner()

        def program(x: Tensor) -> Tensor:
            message = f"{owner}: {x.sum():.1f}"
            owner.count += 1
            print(message, owner)
            return x * 2

        return program

    inputs = [call(torch.ones(3)), call(torch.zeros(3)), call(-torch.ones(3))]
    assert_equivalent(
        make, lambda: inputs, backend=backend, fullgraph=False, graphs=None, recompiles=None
    )


def test_an_exported_program_needs_no_text() -> None:
    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.owner = _Owner()

        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = x * 2
            message = f"{self.owner}: {x.sum():.1f}"
            self.owner.count += 1
            print(message)
            return x + 1

    x = torch.ones(3)
    expected = Program()(x)
    with pytest.warns(bcmend.OutputDropped):
        exported = torch.export.export(bcmend.patch(Program()), (x,), strict=True)
    assert torch.equal(exported.module()(x), expected)


# The handlers, called directly


def _text(tx: Any, number: Any) -> Any:
    return texts.text_of("<{}>", [number], {})


@pytest.mark.parametrize("between", ["", ", ", "{}", "{0}"])
def test_texts_are_joined_with_braces_as_they_are(between: str) -> None:
    def body(tx: Any, x: Any) -> Any:
        number = scalars.take(tx, x)
        return strings._joined([_text(tx, number), constant("{a}"), number], between)

    found = trace(body, torch.tensor(2))
    assert found == between.join(["<2>", "{a}", "2"])


def test_a_text_is_added_to_a_text_alone() -> None:
    def body(tx: Any, x: Any) -> Any:
        text = _text(tx, scalars.take(tx, x))
        pairs = [(text, constant("a")), (constant("a"), text), (text, constant(1))]
        calls = [HandlerCall(tx, "sq_concat_impl", one, (two,), {}) for one, two in pairs]
        *made, other = map(strings._concatenated, calls)
        assert other is PASS
        return compat.TupleVariable(made)

    assert trace(body, torch.tensor(2)) == ("<2>a", "a<2>")


def _join(tx: Any, items: Any, calls: list[Any]) -> Any:
    def inner(variable: Any, tx: Any, name: str, args: Any, kwargs: Any) -> Any:
        calls.append((name, [each.items for each in args]))

    given = [compat.TupleVariable(items)]
    return strings._call_method(inner, constant("-"), tx, "join", given, {})


def test_join_of_texts_is_answered() -> None:
    calls: list[Any] = []
    found = trace(
        lambda tx, x: _join(tx, [constant("a"), _text(tx, scalars.take(tx, x))], calls),
        torch.tensor(2),
    )
    assert found == "a-<2>" and not calls


def test_join_of_something_else_is_left_to_dynamo() -> None:
    def body(tx: Any, x: Any) -> Any:
        calls: list[Any] = []
        items = [constant("a"), x]
        assert _join(tx, items, calls) is None
        return calls == [("join", [items])]

    assert during_trace(body, torch.tensor(2))


def test_a_number_of_the_frame_is_formatted_at_once() -> None:
    """The flags say which conversion, and Dynamo's own way is taken for anything else."""

    class Frame:
        def __init__(self, *stack: Any) -> None:
            self.stack = list(stack)
            self.pop, self.push = self.stack.pop, self.stack.append

    def body(tx: Any, x: Any) -> Any:
        number = scalars.take(tx, x)
        frames, left = [Frame(number), Frame(constant(3))], list[Any]()
        for frame in frames:
            strings._format_value(lambda *given: left.append(given[0]), frame, constant(""), 0)
        return left == frames  # no source: it was not given to the frame

    assert during_trace(body, torch.tensor(2))
    assert [convert("a\u00e9") for convert in strings._CONVERSIONS] == [
        "a\u00e9", "a\u00e9", "'a\u00e9'", "'a\\xe9'",
    ]  # fmt: skip


def test_a_text_shows_a_tensor_as_it_is_now() -> None:
    def body(tx: Any, x: Any) -> Any:
        site = LiveSite("text", "text", body.__code__)
        found = strings._as_of_now(tx, site, constant("a"))
        return found.as_python_constant()

    assert during_trace(body, torch.ones(1)) == "a"


#: Keys of dictionaries and sets that are texts of numbers out of tensors.
KEYS: dict[str, Callable[[int, dict[str, Any]], Any]] = {
    "counted": lambda n, kept: kept.update({f"at {n}": kept.get(f"at {n}", 0) + 1}),
    "looked for": lambda n, kept: f"at {n}" in kept or kept.setdefault("at " + f"{n}", n),
    "a list": lambda n, kept: kept.setdefault(f"at {n // 2}", []).append(n),
    "a set": lambda n, kept: len({f"{n}", f"{n + 1}", f"{n}", "3"}),
    "a tuple": lambda n, kept: {(f"{n}", 1): 1}.get(("3", 1), 2),
}


@pytest.mark.parametrize("keep", KEYS.values(), ids=KEYS)
def test_texts_of_numbers_are_keys(keep: Callable[[int, dict[str, Any]], Any]) -> None:
    def make() -> Callable[..., Any]:
        kept: dict[str, Any] = {}

        def program(x: Tensor) -> Any:
            return x + 1, keep(int(x.sum()), kept), dict(kept)

        return program

    calls = [call(torch.tensor([float(number)])) for number in (3, 3, 2, 3)]
    assert_equivalent(make, lambda: calls, graphs=None, recompiles=None)


def test_a_text_of_a_tensor_as_a_key_breaks_the_graph() -> None:
    def make() -> Callable[..., Any]:
        kept: dict[str, int] = {}

        def program(x: Tensor) -> Any:
            y = x + 1 if x.sum() > 0 else x - 1
            kept[f"{x}"] = kept.get(f"{x}", 0) + 1
            return y, dict(kept)

        return program

    calls = [call(torch.tensor([float(number)])) for number in (3, 3, 2, 3)]
    assert_equivalent(make, lambda: calls, fullgraph=False, graphs=None, recompiles=None)


_PARTS = re.compile(r"(?P<name>[a-z]+)(?P<number>\d+)?")


def _named_groups(x: Tensor) -> tuple[Tensor, dict[str, Any]]:
    found = _PARTS.match("layer12" if x.shape[0] > 1 else "layer")
    assert found is not None
    groups = found.groupdict()
    return (x + int(groups["number"] or 0) if x.sum() > 0 else x - 1), groups


def _default_of_groups(x: Tensor) -> dict[str, Any]:
    found = re.match(_PARTS, "layer")
    assert found is not None
    return found.groupdict("none") if x.sum() > 0 else found.groupdict(default="zero")


def _several_matches(x: Tensor) -> tuple[Tensor, list[str]]:
    x, names, matches = x + 1, [], _PARTS.finditer("a1 b2 c", pos=0)
    first = next(matches)
    for found in matches:
        names.append(found["name"])
        if x.sum() > 0:
            x = x * int(found.group("number") or first["number"])
    return x, names


@pytest.mark.parametrize("program", [_named_groups, _default_of_groups, _several_matches])
def test_what_expressions_find_is_known(program: Callable[..., Any]) -> None:
    inputs = [call(x) for x in (torch.ones(1), torch.ones(3), -torch.ones(3))]
    assert_equivalent(lambda: program, lambda: inputs, graphs=None, recompiles=None)


_LETTERS = "-abcdefghijklmnopé{}🙂"


def _decoded(x: Tensor, number: Tensor) -> tuple[Any, ...]:
    return "".join(_LETTERS[each] for each in x.argmax(-1).tolist()), x * 2


def _collapsed(x: Tensor, number: Tensor) -> tuple[Any, ...]:
    found, last = [], 0
    for each in x.argmax(-1).tolist():
        if each not in (0, last):
            found.append(_LETTERS[each])
        last = each
    return "".join(found), x * 2


def _from_the_end(x: Tensor, number: Tensor) -> tuple[Any, ...]:
    return _LETTERS[x.argmax(-1)[0].item() - 21], _LETTERS[number], x * 2


def _shown(x: Tensor, number: Tensor) -> Tensor:
    print(_LETTERS[number.item()], "behind", _LETTERS[0])
    return x * 2


def _of_an_array(x: Tensor, number: Tensor) -> tuple[Any, ...]:
    return [_LETTERS[each] for each in x.argmax(-1).numpy()], x * 2


def _may_fail(x: Tensor, number: Tensor) -> tuple[Any, ...]:
    try:
        return _LETTERS[(x.argmax(-1)[0] * 2).item()], x * 2
    except IndexError:
        return "", x * 3


def _scores() -> list[Any]:
    generator = torch.Generator().manual_seed(0)
    return [call(torch.randn(4, 21, generator=generator), torch.tensor(each)) for each in range(21)]


@pytest.mark.parametrize(
    "program", [_decoded, _collapsed, _from_the_end, _shown, _of_an_array, _may_fail]
)
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_character_at_a_place_out_of_a_tensor(program: Callable[..., Any], backend: str) -> None:
    found = assert_equivalent(lambda: program, _scores, fullgraph=True, backend=backend)
    assert (found.graphs, found.recompiles) == (1, 0)


def test_a_place_behind_the_end_raises_the_error_of_eager_execution() -> None:
    def program(x: Tensor, number: Tensor) -> tuple[Any, ...]:
        return _LETTERS[number.item() * 2], x * 2

    assert_equivalent(lambda: program, _scores, fullgraph=True, graphs=None, recompiles=None)


class _Rate:
    """Holds a number that calls change, of which Dynamo makes an input."""

    def __init__(self) -> None:
        self.rate = 0.5


def _with_a_computed_float() -> Callable[[Tensor], Any]:
    state = _Rate()

    def program(x: Tensor) -> Any:
        state.rate = state.rate * 1.5
        text = f"{state.rate:.2f} {state.rate / 3:8.3e}"
        if x.sum() > 2:
            x = x + 1
        return x * state.rate, text

    return program


def _with_a_float_in_an_arm() -> Callable[[Tensor], Any]:
    state = _Rate()

    def program(x: Tensor) -> Any:
        if x.sum() > 2:
            x = x * state.rate
        state.rate = state.rate + 0.25
        print(f"rate {state.rate:.1%}", f"{-state.rate:+.2f}", f"{int(state.rate * 4):03d}")
        return x * 2, f"{x.shape[0] * state.rate:6.2f}"

    return program


@pytest.mark.parametrize("make", [_with_a_computed_float, _with_a_float_in_an_arm])
@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_float_that_is_computed_of_one_that_changes(
    make: Callable[[], Any], fullgraph: bool, backend: str
) -> None:
    inputs = [call(torch.full((3,), side)) for side in (1.0, 0.5, 2.0, -1.0)]
    assert_equivalent(
        make, lambda: inputs, backend=backend, fullgraph=fullgraph, graphs=None, recompiles=None
    )
