"""Powers and methods of numbers out of tensors are those of Python."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.differences_of_torch import ERRORS_WITH_NUMBERS_FAIL
from tests.equivalence import assert_equivalent, call

BACK_ENDS = ["eager", "aot_eager", pytest.param("inductor", marks=pytest.mark.slow)]

#: Two floating numbers and two integers; powers of some raise, are complex, long or not finite.
_ROWS = (
    [1.5, 2.25, 3, 2], [-1.5, 0.5, -2, 3], [0.0, -1.0, 0, 0], [2.0, math.nan, 5, -4],
    [math.inf, -math.inf, 60, 1], [1e200, -1e-300, 2, -1], [2.5, 2.5, 70, 2], [1e200, 2.0, 4, 40],
)  # fmt: skip

Numbers = Callable[[float, float, int, int], Any]


def _calls() -> list[Any]:
    return [call(torch.tensor(each, dtype=torch.float64)) for each in _ROWS]


def _program(compute: Numbers) -> Callable[[Tensor], Any]:
    def program(x: Tensor) -> Any:
        v, w, n, m = x[0].item(), x[1].item(), int(x[2]), int(x[3])
        found = compute(v, w, n, m)
        return x * found, found

    return program


def _in_place(v: float, w: float, n: int, m: int) -> Any:
    v **= w
    return v


POWERS: dict[str, Numbers] = {
    "a root": lambda v, w, n, m: v**0.5,
    "a reciprocal": lambda v, w, n, m: v**-1,
    "a square": lambda v, w, n, m: v**2,
    "of two floats": lambda v, w, n, m: v**w,
    "in place": _in_place,
    "by the function": lambda v, w, n, m: pow(v, w),
    "of a float and an integer": lambda v, w, n, m: v**n,
    "of an integer and a float": lambda v, w, n, m: n**v,
    "of two integers": lambda v, w, n, m: n**m,
    "of ten": lambda v, w, n, m: 10**n,
    "a negative one of ten": lambda v, w, n, m: 10 ** (-n),
    "a reciprocal of an integer": lambda v, w, n, m: n**-1,
    "a root of an integer": lambda v, w, n, m: n**0.5,
    "of a decay": lambda v, w, n, m: 1 - 0.999**n,
    "of a negative number": lambda v, w, n, m: (-0.5) ** n,
    "a natural one": lambda v, w, n, m: n**3,
}


@pytest.mark.parametrize("backend", BACK_ENDS)
@pytest.mark.parametrize("compute", POWERS.values(), ids=POWERS)
def test_a_power_is_that_of_python(compute: Numbers, backend: str) -> None:
    # What Python computes itself of some calls leaves the graph, which is traced once more.
    program = _program(compute)
    assert_equivalent(lambda: program, _calls, backend=backend, graphs=None, recompiles=2)


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_power_of_usual_numbers_is_one_graph(backend: str) -> None:
    def program(x: Tensor) -> Any:
        v, n = x[0].item(), int(x[1])
        return x * v**0.5 * 0.9**n, 10**n, 10 ** (-n), v**2 if v**n > 3 else v**1.5

    rows = ([1.5, 3.0], [2.25, 1.0], [0.0, 4.0])
    assert_equivalent(
        lambda: program, lambda: [call(torch.tensor(e)) for e in rows], backend=backend
    )


@pytest.mark.parametrize("backend", BACK_ENDS)
def test_a_branch_on_a_power_takes_the_side_of_python(backend: str) -> None:
    def program(x: Tensor) -> Tensor:
        scale = x.sum().item() ** 0.5
        return x * scale if scale > 1.5 else x - scale

    rows = ([4.0, 5.0], [0.25, 0.25], [2.25, 0.0])
    assert_equivalent(
        lambda: program, lambda: [call(torch.tensor(e)) for e in rows], backend=backend
    )


METHODS: dict[str, Numbers] = {
    "inverted": lambda v, w, n, m: ~n,
    "bits": lambda v, w, n, m: n.bit_length() + m.bit_count(),
    "is whole": lambda v, w, n, m: v.is_integer() + 1,
    "gcd": lambda v, w, n, m: math.gcd(n, m),
    "lcm": lambda v, w, n, m: math.lcm(n, m),
    "factorial": lambda v, w, n, m: math.factorial(n),
    "comb": lambda v, w, n, m: math.comb(n, m),
    "perm": lambda v, w, n, m: math.perm(n, m),
    "isqrt": lambda v, w, n, m: math.isqrt(n),
    "isclose": lambda v, w, n, m: 2 if math.isclose(v, w) else 3,
    "ldexp": lambda v, w, n, m: math.ldexp(v, n),
}


@pytest.mark.parametrize("backend", BACK_ENDS)
@pytest.mark.parametrize("compute", METHODS.values(), ids=METHODS)
def test_a_method_of_a_number_is_that_of_python(compute: Numbers, backend: str) -> None:
    program = _program(compute)
    assert_equivalent(lambda: program, _calls, backend=backend, graphs=None, recompiles=2)


def test_methods_of_numbers_are_one_graph() -> None:
    def program(x: Tensor) -> Any:
        n = int(x[0])
        found = ~n, n.bit_length(), (x[1].item() / 2).is_integer(), math.gcd(n, 12), math.isqrt(n)
        return x[~n % 2] * math.factorial(n), found

    rows = ([3.0, 2.0], [6.0, 1.0], [1.0, math.nan])
    assert_equivalent(lambda: program, lambda: [call(torch.tensor(e)) for e in rows])


def test_a_function_of_integers_is_not_given_a_float() -> None:
    def program(x: Tensor) -> Any:
        return x * math.gcd(int(x[0]), x[1].item())  # type: ignore[arg-type]

    assert_equivalent(
        lambda: program,
        lambda: [call(torch.tensor([4.0, 2.0]))],
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


class Stepped(torch.nn.Module):
    """A solver whose steps depend on its error."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(3, 3)

    def forward(self, y: Tensor) -> Tensor:
        time, step, count = 0.0, 0.25, 0
        while time < 1.0 and count < 40:
            slope = self.layer(y).tanh()
            error = (self.layer(y + step * slope).tanh() - slope).abs().max().item()
            if error < 0.25:
                y = y + step * slope
                time += step
            step = step * min(2.0, max(0.5, 0.9 * (0.25 / (error + 1e-12)) ** 0.5))
            count += 1
        return y


@pytest.mark.parametrize("training", [False, True])
def test_turns_divide_and_take_roots(training: bool) -> None:
    def calls() -> list[Any]:
        return [call(torch.eye(3, dtype=torch.float64) * each) for each in (1.0, 0.25, 4.0)]

    assert_equivalent(lambda: Stepped().double(), calls, training=training, backend="aot_eager")


class Divided(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = torch.nn.Parameter(torch.tensor([1.0, 2.0, 4.0]))

    def forward(self, x: Tensor) -> Tensor:
        total, y = 0.0, x * self.weight
        for turn in range(30):
            total = total + 1 / y[turn % 3].item()
            if total > 5:
                break
            y = y * 0.5
        return y * total


@pytest.mark.parametrize("training", [False, True])
def test_a_turn_divides_by_zero(training: bool) -> None:
    def calls() -> list[Any]:
        return [
            call(torch.tensor(each))
            for each in ([1.0, 2.0, 0.5], [0.25, 1.0, 1.0], [1.0, 0.0, 1.0])
        ]

    assert_equivalent(Divided, calls, training=training)


def _parts(value: Any) -> Any:
    return value == value.real, value.imag == 0, value.real * 2, value.imag, value.real


def _of_a_tensor(x: Tensor) -> Any:
    v, n = x[0].item(), int(x[2])
    if x.sum() > 100:
        print("large")
    return _parts(v), _parts(n), n.numerator == n, n.denominator, x * v.real + n.numerator


def _of_an_argument(x: Tensor, v: float) -> Any:
    if x.sum() > 100:
        print("large")
    return _parts(v), x * v.real, x if v.real is v else x + 1


@pytest.mark.parametrize("backend", BACK_ENDS)
@pytest.mark.parametrize("fullgraph", [True, False])
def test_parts_of_numbers(fullgraph: bool, backend: str) -> None:
    ways: Any = {"backend": backend, "fullgraph": fullgraph, "graphs": None, "recompiles": None}
    rows = [torch.tensor(each, dtype=torch.float64) for each in _ROWS if math.isfinite(each[0])]
    assert_equivalent(lambda: _of_a_tensor, lambda: [call(each) for each in rows], **ways)
    numbers = [call(torch.ones(3), each) for each in (1.5, -2.0, 0.25, 3.0)]
    assert_equivalent(lambda: _of_an_argument, lambda: numbers, **ways)


def _kept_from_overflowing(x: Tensor) -> Any:
    v = x.item()
    if x > 100:
        print("large")
    try:
        found = v**2000
    except OverflowError:
        found = math.inf
    return found


def _with_the_arguments_of_the_error(x: Tensor) -> Any:
    v = x.item()
    if x > 100:
        print("large")
    try:
        found: Any = v**2000
    except OverflowError as error:
        found = error.args
    return found


@pytest.mark.skipif(ERRORS_WITH_NUMBERS_FAIL, reason="an internal error of torch's")
@pytest.mark.parametrize("program", [_kept_from_overflowing, _with_the_arguments_of_the_error])
def test_an_error_of_python_on_constants_is_handled(program: Any) -> None:
    numbers = [call(torch.tensor(each).double()) for each in (1.0, 2.0, 1.0001, 3.0, 1.0)]
    assert_equivalent(
        lambda: program, lambda: numbers, fullgraph=False, graphs=None, recompiles=None
    )


def _kind(x: Tensor) -> Any:
    n, v = int(x[0]), x[1].item()
    whole, root = 2**n, v**0.5
    if x.sum() > 100:
        print("large")
    return isinstance(whole, float), whole, isinstance(root, complex), str(root), x * n


def _kind_in_a_piece(x: Tensor) -> Any:
    n, v = int(x[0]), x[1].item()
    torch._dynamo.graph_break()
    if x.sum() > 0:
        x = x * 2
    whole, root = 2**n, v**0.5
    return isinstance(whole, float), whole, isinstance(root, complex), str(root), x * n


@pytest.mark.parametrize("program", [_kind, _kind_in_a_piece])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("first", [2.0, -1.0])
def test_a_power_is_of_its_kind_in_each_call(program: Any, backend: str, first: float) -> None:
    numbers = [call(torch.tensor([each, each]).double()) for each in (first, -1.0, -2.0, -3.0, 4.0)]
    assert_equivalent(
        lambda: program,
        lambda: numbers,
        backend=backend,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )
