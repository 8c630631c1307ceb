"""Global variables, and variables of enclosing functions, to which arms store."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any, ClassVar, NamedTuple

import pytest
import torch
from torch import Tensor

import bcmend
from tests.equivalence import CountingBackend
from tests.integration import outer_counter
from tests.observation import captured

SIDES = (1.0, -1.0, 1.0, 1.0, -1.0, 1.0)


class Program(NamedTuple):
    """What is called, and what tells the state of its outer variables."""

    call: Callable[[Tensor], Any]
    look: Callable[[], Any]


Make = Callable[[], Program]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _plain(value: Any) -> Any:
    """Return a value that compares by contents."""
    if isinstance(value, Tensor):
        return value.dtype, value.requires_grad, value.tolist()
    if isinstance(value, (list, tuple)):
        return type(value), [_plain(each) for each in value]
    return (type(value), value())[:1] if callable(value) else (type(value), value)


def _outcomes(program: Program, call: Callable[[Tensor], Any], training: bool) -> list[Any]:
    found = []
    for side in SIDES:
        x = (torch.tensor([1.0, 2.0, 3.0]) * side).requires_grad_(training)
        gradient: Any = None
        with captured() as events:
            try:
                result: Any = call(x)
                if training:
                    result.sum().backward()
                    gradient = _plain(x.grad)
            except ValueError as error:
                result = repr(error)
        found.append((_plain(result), gradient, list(events), _plain(program.look())))
    return found


def _assert_equal(
    make: Make,
    *,
    backend: str = "aot_eager",
    fullgraph: bool = True,
    training: bool = False,
    graphs: int | None = None,
) -> Any:
    """Compare all calls, and the variables after each; return the report of the sites."""
    eager = make()
    expected = _outcomes(eager, eager.call, training)
    torch._dynamo.reset()
    program, counting = make(), CountingBackend(backend)
    bcmend.patch(program.call)
    compiled = torch.compile(program.call, backend=counting, fullgraph=fullgraph)
    assert _outcomes(program, compiled, training) == expected
    if graphs is not None:
        assert counting.graphs == graphs
    return bcmend.report(program.call)


# --- global variables ----------------------------------------------------------------------------

_state: Any = None
_other: Any = None


def _with(value: Any, call: Callable[[Tensor], Any], other: Any = None) -> Program:
    global _state, _other
    _state, _other = value, other
    return Program(call, lambda: (_state, _other))


def _counted(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state += 1
        x = x * 2
    return x + 1


def _counted_both_ways(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state += 1
    else:
        _state -= 1
    return x * 2


def _counted_and_read(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state += 1
    return x * _state


def _count() -> None:
    global _state
    _state += 1


def _counted_elsewhere(x: Tensor) -> Tensor:
    if x.sum() > 0:
        _count()
    return x * _current()


def _current() -> Any:
    return _state


def _labelled(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = "positive"
    else:
        _state = None
    return x * 2


def _labelled_on_one_side(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = "positive"
    return x * 2


def _labelled_and_compared(x: Tensor) -> Tensor:
    global _state
    _labelled(x)
    if _state == "positive":
        return x * 2
    return x - 1


def _stored_over(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = "positive"
    else:
        _state = None
    _state = "last"
    return x * 2


def _a_tensor_or_not(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = x.detach() * 2
    else:
        _state = None
    return x + 1


def _scaled(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = _state * 1.5
    return x + 1


def _in_arms_of_arms(x: Tensor) -> Tensor:
    global _state, _other
    if x.sum() > 0:
        if x.max() > 2.5:
            _state = "large"
        else:
            _state = 3
        _other = _state
    elif x.min() < -2.5:
        _state, _other = None, 4
    return x * 2


def _in_a_loop(x: Tensor) -> Tensor:
    global _state, _other
    for number in range(3):
        if x[number] > 1.5:
            _state += 1
            _other = None
        else:
            _other = "small"
    return x * 2


def _two_variables(x: Tensor) -> Tensor:
    global _state, _other
    if x.sum() > 0:
        _state, _other = _other, _state
    return x * 2


def _checked(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = "positive"
    if x.min() < -2.5:
        raise ValueError("too small")
    if x.max() > 2.5:
        _state = None
    return x * 2


def _printed(x: Tensor) -> Tensor:
    global _state
    print("before", _state)
    if x.sum() > 0:
        _state = "positive"
    else:
        _state = 5
    print("after", _state)
    return x * 2


@pytest.mark.parametrize("fullgraph", [True, False])
@pytest.mark.parametrize(
    ("value", "call"),
    [
        (0, _counted),
        (0, _counted_both_ways),
        (0, _counted_and_read),
        (0, _counted_elsewhere),
        ("first", _labelled),
        ("first", _labelled_on_one_side),
        ("first", _labelled_and_compared),
        ("first", _stored_over),
        (None, _a_tensor_or_not),
        (0.5, _scaled),
        ("first", _in_arms_of_arms),
        (0, _in_a_loop),
        (0, _two_variables),
        ("first", _checked),
        ("first", _printed),
    ],
)
def test_a_global_variable(value: Any, call: Callable[..., Any], fullgraph: bool) -> None:
    _assert_equal(lambda: _with(value, call, other="other"), fullgraph=fullgraph)


@pytest.mark.parametrize(("value", "call"), [(0, _counted), ("first", _labelled)])
def test_a_global_variable_with_inductor(value: Any, call: Callable[..., Any]) -> None:
    _assert_equal(lambda: _with(value, call), backend="inductor")


def test_gradients_beside_a_global_variable() -> None:
    _assert_equal(lambda: _with(0, _counted), training=True)


class _Held:
    seen = 0
    totals: ClassVar[dict[str, int]] = {}
    numbers: ClassVar[list[int]] = []

    def __init__(self) -> None:
        self.count = 0


_HELD = _Held()


def _counted_in_an_attribute(x: Tensor) -> Tensor:
    if x.sum() > 0:
        _HELD.count += 1
        x = x * 2
    return x + 1


def _counted_in_a_class(x: Tensor) -> Tensor:
    if x.sum() > 0:
        _Held.seen += 1
        x = x * 2
    return x + 1


def _counted_in_a_dictionary(x: Tensor) -> Tensor:
    if x.sum() > 0:
        _HELD.totals["calls"] += 1
        x = x * 2
    return x + 1


def _counted_in_a_list(x: Tensor) -> Tensor:
    if x.sum() > 0:
        _HELD.numbers[0] += 1
        x = x * 2
    return x + 1


def _counted_in_another_module(x: Tensor) -> Tensor:
    if x.sum() > 0:
        outer_counter.count()
        x = x * 2
    return x + 1


@pytest.mark.parametrize(
    "call",
    [
        _counted,
        _counted_in_an_attribute,
        _counted_in_a_class,
        _counted_in_a_dictionary,
        _counted_in_a_list,
        _counted_in_another_module,
    ],
)
def test_a_counter_is_an_input_once_it_has_changed(call: FunctionType) -> None:
    fresh = FunctionType(call.__code__.replace(), call.__globals__)  # nothing is known of it

    def make() -> Program:
        _Held.seen, _Held.totals, _Held.numbers = 0, {"calls": 0}, [0]
        _HELD.count = 0
        outer_counter.calls = 0
        outer = _with(0, fresh)
        return Program(
            fresh,
            lambda: (
                *outer.look(),
                (_HELD.count, _Held.seen),
                list(_Held.totals.items()),
                list(_Held.numbers),
                outer_counter.calls,
            ),
        )

    _assert_equal(make, graphs=2)


class _Tagged:
    """Has a text that shows a global variable."""

    def __str__(self) -> str:
        return f"tagged {_state}"


_TAGGED = _Tagged()


def _shown(x: Tensor) -> Tensor:
    global _state
    print(_TAGGED)
    if x.sum() > 0:
        _state = "positive"
    else:
        _state = None
    print(_TAGGED)
    return x * 2


def test_output_shows_a_global_variable_as_it_was() -> None:
    _assert_equal(lambda: _with("first", _shown), fullgraph=False)


ZEROS, ONES = torch.zeros(3), torch.ones(3)


def _one_of_two(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        _state = ZEROS
    else:
        _state = ONES
    return x * 2


def test_a_global_variable_is_the_very_tensor() -> None:
    def make() -> Program:
        program = _with(None, _one_of_two)
        return Program(program.call, lambda: (_state is ZEROS, _state is ONES))

    _assert_equal(make, graphs=1)


def _bound_on_one_side(x: Tensor) -> Tensor:
    global _new
    if x.sum() > 0:
        _new = 3
    return x + 1


def _bound_on_both_sides(x: Tensor) -> Tensor:
    global _new
    if x.sum() > 0:
        _new = 3
    else:
        _new = None
    return x + 1


def _bound_in_an_arm_of_an_arm(x: Tensor) -> Tensor:
    global _new
    if x.sum() > 50:
        x = x - 1
    elif x.sum() > 0:
        _new = 3
    else:
        x = x * 2
    return x + 1


@pytest.mark.parametrize(
    "call", [_bound_on_one_side, _bound_on_both_sides, _bound_in_an_arm_of_an_arm]
)
@pytest.mark.parametrize("backwards", [False, True])
def test_a_global_variable_that_was_not_bound(call: Any, backwards: bool) -> None:
    def make() -> Program:
        globals().pop("_new", None)

        def program(x: Tensor) -> Tensor:
            return call(-x if backwards else x)  # type: ignore[no-any-return]

        return Program(program, lambda: globals().get("_new", "unbound"))

    _assert_equal(make, graphs=1)


def test_a_variable_of_another_module() -> None:
    source = """
state = 0
def count(x):
    global state
    if x.sum() > 0:
        state += 1
    else:
        state = None if state is None else state - 1
"""
    module = ModuleType("counting_module")
    sys.modules[module.__name__] = module
    try:
        exec(builtins.compile(source, "counting_module.py", "exec"), vars(module))

        def make() -> Program:
            module.state = 0  # type: ignore[attr-defined]

            def program(x: Tensor) -> Tensor:
                module.count(x)
                module.count(x - 1.5)
                return x * 2

            return Program(program, lambda: module.state)

        _assert_equal(make)
    finally:
        del sys.modules[module.__name__]


def _deleted(x: Tensor) -> Tensor:
    global _state
    if x.sum() > 0:
        del _state
        _state = 4
    return x + 1


def test_a_global_variable_is_not_deleted_in_an_arm() -> None:
    report = _assert_equal(lambda: _with(0, _deleted), fullgraph=False)
    assert [site.refusal for site in report.sites] == ["arm-untraceable"]


# --- variables of enclosing functions ------------------------------------------------------------


def counter_from_outside() -> Program:
    count, label = 0, "first"

    def program(x: Tensor) -> Tensor:
        nonlocal count, label
        if x.sum() > 0:
            count += 1
            label = "positive"
        else:
            label = None  # type: ignore[assignment]
        return x * 2

    return Program(program, lambda: (count, label))


def counter_of_two_functions() -> Program:
    count = 0

    def add() -> None:
        nonlocal count
        count += 1

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            add()
        else:
            add()
            add()
        return x * count

    return Program(program, lambda: count)


def tensor_from_outside() -> Program:
    kept: Any = None

    def program(x: Tensor) -> Tensor:
        nonlocal kept
        if x.sum() > 0:
            kept = x.detach() * 2
        else:
            kept = "none"
        return x + 1

    return Program(program, lambda: kept)


def float_from_outside() -> Program:
    scale = 0.5

    def program(x: Tensor) -> Tensor:
        nonlocal scale
        if x.sum() > 0:
            scale = scale * 1.5
        return x * scale

    return Program(program, lambda: scale)


def read_behind_a_break() -> Program:
    label: Any = "first"

    def program(x: Tensor) -> Any:
        nonlocal label
        if x.sum() > 0:
            label = "positive"
        else:
            label = None
        torch._dynamo.graph_break()
        return x * 2, label

    return Program(program, lambda: label)


def checked_in_between() -> Program:
    label: Any = "first"

    def program(x: Tensor) -> Tensor:
        nonlocal label
        if x.sum() > 0:
            label = "positive"
        if x.min() < -2.5:
            raise ValueError("too small")
        if x.max() > 2.5:
            label = None
        return x * 2

    return Program(program, lambda: label)


def one_of_two_tensors() -> Program:
    kept: Any = None

    def program(x: Tensor) -> Tensor:
        nonlocal kept
        if x.sum() > 0:
            kept = ZEROS
        else:
            kept = ONES
        return x * 2

    return Program(program, lambda: (kept is ZEROS, kept is ONES))


@pytest.mark.parametrize(
    "make",
    [
        counter_from_outside,
        counter_of_two_functions,
        tensor_from_outside,
        float_from_outside,
        checked_in_between,
        one_of_two_tensors,
    ],
)
def test_a_variable_of_an_enclosing_function(make: Make) -> None:
    _assert_equal(make)


def test_a_variable_of_an_enclosing_function_with_inductor() -> None:
    _assert_equal(counter_from_outside, backend="inductor")


def test_a_variable_that_is_read_behind_a_break() -> None:
    _assert_equal(read_behind_a_break, fullgraph=False)


@pytest.mark.parametrize("is_read", [False, True])
def test_a_variable_that_was_not_bound(is_read: bool) -> None:
    def make() -> Program:
        def program(x: Tensor) -> Tensor:
            nonlocal late
            if x.sum() > 0:
                late = 1
            if is_read:
                try:
                    return x + late
                except NameError:
                    return x - 5
            return x + 1

        def look() -> Any:
            try:
                return late
            except NameError:
                return "unbound"

        if is_read is None:
            late = 0
        return Program(program, look)

    _assert_equal(make, fullgraph=not is_read)


class _Returned(NamedTuple):
    result: Any
    look: Callable[[], Any]


def _outliving(x: Tensor) -> _Returned:
    count: Any = 0
    label: Any = "first"

    def visit(y: Tensor) -> Tensor:
        nonlocal count, label
        if y.sum() > 0:
            count += 1
            label = y * 2
        else:
            label = None
        return y * 3

    return _Returned(visit(x) + visit(x - 1.5), lambda: (count, label))


def test_a_variable_that_outlives_its_frame() -> None:
    looks: list[Callable[[], Any]] = []

    def make() -> Program:
        looks.clear()

        def program(x: Tensor) -> Any:
            return _outliving(x)

        return Program(program, lambda: [each() for each in looks])

    def outcomes(call: Callable[[Tensor], Any]) -> list[Any]:
        results = [call(torch.tensor([1.0, 2.0, 3.0]) * side) for side in SIDES]
        return [(_plain(each.result), _plain(each.look())) for each in results]

    expected = outcomes(make().call)
    program, counting = make(), CountingBackend("aot_eager")
    bcmend.patch(program.call)
    compiled = torch.compile(program.call, backend=counting, fullgraph=True)
    assert outcomes(compiled) == expected
    assert counting.graphs == 1


def shown_by_a_text() -> Program:
    label: Any = "first"

    class Shown:
        def __str__(self) -> str:
            return f"shown {label}"

    shown = Shown()

    def program(x: Tensor) -> Tensor:
        nonlocal label
        print(shown)
        if x.sum() > 0:
            label = "positive"
        else:
            label = None
        print(shown)
        return x * 2

    return Program(program, lambda: label)


def shown_by_a_text_behind_a_store() -> Program:
    label: Any = "first"

    class Shown:
        def __str__(self) -> str:
            return f"shown {label}"

    shown = Shown()

    def program(x: Tensor) -> Tensor:
        nonlocal label
        print(shown)
        label = "later"
        return x * 2

    return Program(program, lambda: label)


@pytest.mark.parametrize("make", [shown_by_a_text, shown_by_a_text_behind_a_store])
def test_output_shows_a_variable_as_it_was(make: Make) -> None:
    report = _assert_equal(make, fullgraph=False)
    assert "cannot-snapshot" in [site.refusal for site in report.sites]
