"""Side exits of frames that end at no boundary: of callers, and of what a graph break leaves."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.dynamo import plain_python
from bcmend.tracing.deopt import eager_rerun
from tests.equivalence import Call, assert_equivalent, call, patch_then_compile

POSITIVE, NEGATIVE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])


class Checked(nn.Module):
    """Changes everything that can be changed, before its check and after it."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(3))
        self.steps = 0
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        self.steps += 1
        self.total.add_(1)
        y = torch.rand(3)
        print("before", self.steps)
        if x.sum() < 0:
            raise ValueError("negative", self.steps)
        self.steps += 10
        self.seen.append(self.steps)
        self.total.mul_(2)
        print("after", y)
        return x * self.total


class Wrapped(nn.Module):
    """Has a part that is patched, and a ``forward`` that is not."""

    def __init__(self) -> None:
        super().__init__()
        self.part = Checked()


def _caller(self: Wrapped, x: Tensor) -> Tensor:
    return self.part(x) + 1


def _handler(self: Wrapped, x: Tensor) -> Tensor:
    try:
        return self.part(x) + 1
    except ValueError as error:
        return x - len(error.args)


def _all_kinds(
    self: Wrapped, x: Tensor, /, factor: int = 2, *more: int, shift: int = 1, **rest: Any
) -> Tensor:
    return self.part(x) * factor + sum(more) + shift + len(rest) + rest.get("extra", 0)


def _with_cells(self: Wrapped, x: Tensor, factor: int = 3) -> Tensor:
    def scaled() -> Tensor:
        return x * factor

    y = self.part(x)
    x = x + 1
    factor += 1
    return scaled() + y


def _closed_over() -> Callable[..., Tensor]:
    count = [0]
    calls = 0

    def forward(self: Wrapped, x: Tensor) -> Tensor:
        nonlocal calls
        calls += 1
        count.append(calls)
        return self.part(x) + len(count) + calls

    return forward


def _twice(self: Wrapped, x: Tensor) -> Tensor:
    return self.part(self.part(x) - 100)


def _breaks_before(self: Wrapped, x: Tensor) -> Tensor:
    x = x + 1
    torch._dynamo.graph_break()
    return self.part(x - 1)


def _breaks_after(self: Wrapped, x: Tensor) -> Tensor:
    y = self.part(x)
    torch._dynamo.graph_break()
    return y + x


def _breaks_in_a_loop(self: Wrapped, x: Tensor) -> Tensor:
    for number in range(3):
        x = self.part(x) + number
        torch._dynamo.graph_break()
        with torch.no_grad():
            x = x - 10
    return x


def _breaks_in_an_argument(self: Wrapped, x: Tensor) -> Tensor:
    def shown(value: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return value

    return torch.add(shown(x * 2), self.part(x))


def _way(forward: Callable[..., Tensor], *, only_the_part: bool) -> Any:
    """Compile a function of no module, so that only what it calls has been patched."""

    def way(make: Callable[[], Any], options: Any) -> tuple[Any, Callable[..., Any]]:
        if not only_the_part:
            return patch_then_compile(make, options)
        program = make()
        bcmend.patch(program.part)
        return program, torch.compile(program, **options)

    return way


def _made(forward: Callable[..., Tensor]) -> Callable[[], Wrapped]:
    return type("Program", (Wrapped,), {"forward": forward})


def _calls() -> list[Call]:
    values = (POSITIVE, NEGATIVE, POSITIVE * 9, NEGATIVE, POSITIVE)
    return [call(each.clone()) for each in values]


@pytest.mark.parametrize(
    ("backend", "only_the_part"), [("eager", True), ("aot_eager", True), ("eager", False)]
)
@pytest.mark.parametrize(
    "make", [lambda: _caller, lambda: _handler, lambda: _with_cells, _closed_over, lambda: _twice]
)
def test_a_caller_is_left_as_eager_execution_leaves_it(
    make: Callable[[], Callable[..., Tensor]], backend: str, only_the_part: bool
) -> None:
    forward = make()
    assert_equivalent(
        lambda: _made(make())(),
        _calls,
        backend=backend,
        graphs=None,
        recompiles=None,
        way=_way(forward, only_the_part=only_the_part),
    )


def test_arguments_of_all_kinds_are_handed_on() -> None:
    def calls() -> Iterator[Call]:
        for x in (POSITIVE, NEGATIVE):
            yield call(x.clone())
            yield call(x.clone(), 3)
            yield call(x.clone(), 3, 4, 5, shift=6)
            yield call(x.clone(), shift=7, extra=8)

    assert_equivalent(
        _made(_all_kinds),
        lambda: list(calls()),
        graphs=None,
        recompiles=None,
        way=_way(_all_kinds, only_the_part=True),
    )


@pytest.mark.parametrize("only_the_part", [True, False])
@pytest.mark.parametrize(
    "forward", [_breaks_before, _breaks_after, _breaks_in_a_loop, _breaks_in_an_argument]
)
def test_what_a_graph_break_leaves_is_left_as_eager_execution_leaves_it(
    forward: Callable[..., Tensor], only_the_part: bool
) -> None:
    assert_equivalent(
        _made(forward),
        _calls,
        fullgraph=False,
        graphs=None,
        recompiles=None,
        way=_way(forward, only_the_part=only_the_part),
    )


def test_an_exception_has_the_lines_of_all_callers() -> None:
    program = _made(_caller)()
    torch._dynamo.reset()
    bcmend.patch(program.part)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    with pytest.raises(ValueError, match="negative") as caught:
        compiled(NEGATIVE)
    names = [entry.name for entry in caught.traceback]
    assert names[-1] == "forward"
    assert "_caller" in names
    bcmend.unpatch()


def test_nothing_is_compiled_in_a_second_run() -> None:
    def check(x: Tensor) -> Tensor:
        if x.sum() < 0:
            raise ValueError("negative")
        return x * 2

    def program(x: Tensor) -> Tensor:
        return check(x) + check(x + 100)

    torch._dynamo.reset()
    bcmend.patch(check)
    graphs: list[torch.fx.GraphModule] = []

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    compiled = torch.compile(program, backend=backend)
    for _ in range(3):
        with pytest.raises(ValueError, match="negative"):
            compiled(NEGATIVE)
    assert len(graphs) == 1
    assert torch._C._dynamo.eval_frame.get_eval_frame_callback() is None
    bcmend.unpatch()


def _all(a: int, /, b: int, *more: int, c: int = 0, **named: int) -> Any:
    return a, b, more, c, named


def _two(a: int, *, c: int) -> Any:
    return a, c


@pytest.mark.parametrize(
    ("function", "values", "expected"),
    [
        (_all, (1, 2, 5, (3, 4), {"d": 6}), (1, 2, (3, 4), 5, {"d": 6})),
        (_two, (1, 2), (1, 2)),
        (lambda: "nothing", (), "nothing"),
    ],
)
def test_values_are_given_in_the_order_of_the_variables(
    function: Any, values: Any, expected: Any
) -> None:
    assert eager_rerun.run_code(values, (), function.__code__, globals()) == expected


def test_cells_and_globals_are_those_that_are_given() -> None:
    held = 1

    def reads() -> Any:
        return held, other  # type: ignore[name-defined]  # noqa: F821

    assert reads.__closure__ is not None
    space = {"other": 2}
    assert eager_rerun.run_code((), reads.__closure__, reads.__code__, space) == (1, 2)


def test_the_callback_of_dynamo_is_put_back_if_the_function_fails() -> None:
    before = torch._C._dynamo.eval_frame.get_eval_frame_callback()
    with pytest.raises(ZeroDivisionError):
        plain_python.run(lambda: 1 / 0)
    assert torch._C._dynamo.eval_frame.get_eval_frame_callback() is before


def _generates() -> Any:
    yield 1


async def _awaits() -> None:
    pass


@pytest.mark.parametrize(
    ("function", "expected"), [(_two, True), (_generates, False), (_awaits, False)]
)
def test_only_a_function_that_returns_can_be_run_again(function: Any, expected: bool) -> None:
    root = SimpleNamespace(f_code=function.__code__)
    tx: Any = SimpleNamespace(output=SimpleNamespace(root_tx=root))
    assert eager_rerun.can_return(tx) is expected
