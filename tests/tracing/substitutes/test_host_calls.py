"""Numbers that Python and numpy draw, seeds and clocks, in code that is captured whole."""

from __future__ import annotations

import copy
import random
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import Unsupported, UserError

import bcmend
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.values import constant
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import host_calls
from tests.differences_of_torch import RANGES_ARE_RESUMED
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace, substituted, trace

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _vectors() -> list[Any]:
    return [call(torch.tensor([1.0, 2.0, sign])) for sign in (3.0, -9.0, 4.0, -8.0)]


def _equal(program: Program, inputs: Any = _vectors, **options: Any) -> None:
    for backend in ("eager", "aot_eager"):
        options.update(backend=backend)
        options.setdefault("fullgraph", True)
        assert_equivalent(lambda: copy.deepcopy(program), inputs, **options)


def test_draws_of_python() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        y = x * random.random() + random.randint(1, 9)
        y = y * random.uniform(2, 3) - random.gauss(0, 1)
        chosen = random.choice([2, 3, 5])
        parts = random.sample(range(9), 3)
        return y * chosen, parts[0] + parts[2], random.choices([0.5, 1.5], k=2)[1]

    _equal(program)
    _equal(program, training=True)


def test_a_list_is_shuffled_anew_in_each_call() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        order = [1, 2, 3, 4, 5, 6]
        random.shuffle(order)
        return x * random.randint(1, 9), order

    _equal(program, fullgraph=False, graphs=None, recompiles=None)


def test_draws_are_numbers_of_their_types() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        return (
            x,
            random.random(),
            random.randrange(0, 10, 2),
            random.getrandbits(40),
            random.choice((True, False)),
            numpy.random.rand(),
            numpy.random.randint(3, 9),
        )

    _equal(program)


def test_draws_of_numpy() -> None:
    def program(x: Tensor) -> Tensor:
        noise = torch.from_numpy(numpy.random.randn(2, 3)).float()
        noise = noise * numpy.random.uniform(1, 2) + float(numpy.random.normal(0.0, 2.0))
        order = numpy.random.permutation(3)
        return (x * noise)[:, order] * torch.rand(3)

    _equal(program)
    _equal(program, training=True)


def test_an_array_that_is_drawn_may_be_changed() -> None:
    def program(x: Tensor) -> Tensor:
        noise = numpy.random.rand(3)
        noise *= 2
        return x * torch.from_numpy(noise).float()

    _equal(program)


def test_draws_stand_between_branches_and_output() -> None:
    def program(x: Tensor) -> Tensor:
        first = random.random()
        if x.sum() > 0:
            x = x * first
        else:
            x = x - first
        print("between", random.random())
        if random.random() < 0.5:
            x = x * 2
            print("half")
        return x + numpy.random.rand()

    _equal(program)


def test_layer_drop_by_numbers_of_python_and_numpy() -> None:
    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            x = x * 1
            for place, layer in enumerate(self.layers):
                draw = random.uniform if place % 2 else numpy.random.uniform
                if self.training and draw(0, 1) < 0.5:
                    continue
                x = layer(x).relu()
            return x

    for backend in ("eager", "aot_eager"):
        assert_equivalent(
            Net,
            _vectors,
            backend=backend,
            fullgraph=True,
            training=True,
            may_copy=True,
            zero_gradients=True,
        )


def test_a_check_behind_a_draw_raises_with_the_number_of_eager_execution() -> None:
    def program(x: Tensor) -> Tensor:
        chance, other = random.random(), numpy.random.rand()
        if x.sum() < 0:
            raise ValueError(f"{chance} {other}", random.random())
        return x * chance * other

    _equal(program)


def test_a_failure_inside_the_graph_leaves_the_streams_where_eager_leaves_them() -> None:
    def program(x: Tensor, index: Tensor) -> Tensor:
        chance = random.random() + numpy.random.rand()
        y = x.index_select(0, index) * chance
        return y * random.random()

    x = torch.arange(3.0)
    _equal(program, lambda: [call(x, torch.tensor([each])) for each in (1, 7, 2)])


def test_a_clock_in_an_arm_stays() -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return x * 2 + time.time() * 0
        return x - 1

    with pytest.raises((Unsupported, UserError)):
        bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    slugs = {site.refusal for site in bcmend.report(program).refused}
    assert "no-equal-substitute" in slugs


@pytest.mark.parametrize("fails", [True, False])
def test_an_arm_that_is_not_taken_draws_no_number_of_python(fails: bool) -> None:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            x = x + random.randrange(4)
            if fails:
                raise ValueError("it is positive")
        return x

    _equal(program, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize("breaks", [torch._dynamo.graph_break, lambda: None])
def test_arrays_are_drawn_from_the_generator_of_numpy_in_every_piece(
    breaks: Callable[[], None],
) -> None:
    """Dynamo by itself draws from torch's there."""

    def program(x: Tensor) -> Tensor:
        x = x + torch.from_numpy(numpy.random.randn(3))
        breaks()
        if x.sum() > 0:
            x = x * 2
        shift = numpy.random.randn(2, 3)[0]
        print("drawn")
        return x + torch.from_numpy(shift)

    _equal(program, fullgraph=False, graphs=None)


def test_a_loop_that_breaks_draws_from_the_generator_of_numpy() -> None:
    def program(x: Tensor) -> Tensor:
        turns = 0
        while turns < 3 and (x.sum() <= 2.0 and x.sum() == x.sum()):
            turns += 1
            x = x + torch.from_numpy(numpy.random.randn(2, 3)[0])
        return x

    _equal(program, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.parametrize(
    "draw",
    [
        lambda: random.getrandbits(64),
        lambda: random.getrandbits(70),
        lambda: random.choice([1, 2**64]),
        lambda: random.sample(range(2**63, 2**64), 2),
    ],
)
def test_an_integer_that_has_no_place_in_a_tensor_is_not_drawn_in_front(draw: Program) -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        y = x + 1 if x.sum() > 0 else x - 1
        return y, draw()

    _equal(program, fullgraph=False, graphs=None)


@pytest.mark.parametrize(
    "draw", [lambda: random.getrandbits(63), lambda: random.randrange(2**63 - 1)]
)
def test_the_longest_integers_are_drawn_in_front(draw: Program) -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        y = x + 1 if x.sum() > 0 else x - 1
        return y, draw()

    _equal(program)


def test_what_a_loop_or_a_size_needs_of_a_draw_is_never_baked_in() -> None:
    def program(x: Tensor) -> Tensor:
        for _ in range(random.randint(1, 3)):
            x = x * 2
        return x + torch.ones(random.randint(1, 1))

    # A size is taken not to be one; where it is, the frame is compiled anew with breaks.
    recompiles = 4 if RANGES_ARE_RESUMED else 2
    _equal(program, fullgraph=False, graphs=None, recompiles=recompiles)


def test_seeds() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        before = random.random()
        random.seed(3)
        numpy.random.seed(4)
        torch.manual_seed(5)
        return x * random.random() + numpy.random.rand() + torch.rand(3), before

    _equal(program)
    _equal(program, training=True)


def test_a_seed_behind_a_draw_of_torch_stays() -> None:
    def program(x: Tensor) -> Tensor:
        y = torch.rand(3)
        torch.manual_seed(5)
        return x + y + torch.rand(3)

    with pytest.raises(Unsupported):
        bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(3))
    (site,) = bcmend.report(program).refused
    assert site.refusal == "no-equal-substitute" and "draws" in site.detail
    bcmend.unpatch()
    _equal(program, fullgraph=False, graphs=None)


def _draws_inside(x: Tensor) -> Tensor:
    return torch.svd_lowrank(x.outer(x), 1)[0].abs().sum()


def _takes_a_new_seed(x: Tensor) -> Tensor:
    torch.seed()
    return x.sum()


def _takes_the_state(x: Tensor) -> Tensor:
    return torch.get_rng_state().sum() + x.sum()


@pytest.mark.parametrize("use", [_draws_inside, _takes_a_new_seed, _takes_the_state])
def test_a_seed_stays_behind_what_uses_the_generator(use: Callable[[Tensor], Tensor]) -> None:
    def program(x: Tensor) -> Tensor:
        y = use(x)
        torch.manual_seed(5)
        return x + y + torch.rand(3)

    _equal(program, fullgraph=False, graphs=None)


def test_a_seed_in_a_check_that_fails() -> None:
    def program(x: Tensor) -> Tensor:
        torch.manual_seed(5)
        if x.sum() < 0:
            raise ValueError(f"{torch.rand(1).item()}")
        return x + torch.rand(3)

    _equal(program)


def test_clocks() -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        started, ticks = time.perf_counter(), time.time_ns()
        y = (x @ x.t()).relu()
        elapsed = time.perf_counter() - started
        print(f"took {elapsed:.0f} seconds, {elapsed >= 0}")
        return y, elapsed, time.time(), time.time_ns() - ticks

    for backend in ("eager", "aot_eager"):
        torch._dynamo.reset()
        compiled = bcmend.compile(program, backend=backend, fullgraph=True)
        compiled(torch.ones(64, 64))
        ends = []
        for _ in range(3):
            before = time.time()
            y, elapsed, end, ticks = compiled(torch.ones(64, 64))
            after = time.time()
            assert torch.equal(y, torch.full((64, 64), 64.0))
            assert type(elapsed) is float and type(end) is float and type(ticks) is int
            assert 0 < elapsed < after - before
            assert before <= end <= after
            assert 0 <= ticks < 1e9 * (after - before)
            ends.append(end)
        assert ends == sorted(set(ends))
        bcmend.unpatch()


def test_draws_in_a_model_that_a_container_calls() -> None:
    class Noise(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = x + 1
            return x * random.random()

    def make() -> nn.Module:
        return nn.Sequential(Noise(), Noise())

    assert_equivalent(make, _vectors, fullgraph=True)


def test_each_thread_draws_its_own_numbers() -> None:
    def program(x: Tensor) -> Tensor:
        return x * random.random()

    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    compiled(torch.ones(1))
    compiled(torch.ones(1, dtype=torch.float64))

    def drawn_by_threads() -> list[float]:
        found: list[float] = []

        def work() -> None:
            found.extend(float(compiled(torch.ones(1, dtype=torch.float64))) for _ in range(50))

        workers = [threading.Thread(target=work) for _ in range(4)]
        for each in workers:
            each.start()
        for each in workers:
            each.join()
        return found

    def are_all_drawn_once() -> bool:
        random.seed(1)
        found = drawn_by_threads()
        random.seed(1)
        return sorted(found) == sorted(random.random() for _ in range(200))

    # Where Dynamo looks at a frame for the first time it puts the state back afterwards, and with
    # it what other threads have drawn meanwhile. That is seldom, and no doing of ours.
    assert any(are_all_drawn_once() for _ in range(3))


# The answers, called directly

X = torch.ones(1)


def _drawn(tx: Any, name: str, *args: Any) -> Any:
    return host_calls._draw(substituted(tx, name, *map(constant, args)))


def test_a_draw_is_made_before_each_graph_in_order() -> None:
    def body(tx: Any, x: Any) -> Any:
        names = ("random.random", "numpy.random.rand", "random.random")
        return compat.TupleVariable([_drawn(tx, each) for each in names])

    random.seed(5)
    numpy.random.seed(5)
    found = trace(body, X)
    random.seed(5)
    numpy.random.seed(5)
    assert found == (random.random(), numpy.random.rand(), random.random())


def test_an_example_is_drawn_from_no_stream() -> None:
    random.seed(5)
    before = random.getstate()
    with host_calls.generators_restored():
        random.random()
    assert random.getstate() == before


@pytest.mark.parametrize(
    ("example", "given"),
    [
        (1, host_calls._number),
        (True, host_calls._number),
        ([1.0, 2.0], host_calls._numbers),
        (numpy.ones(2), host_calls._array),
        (numpy.float32(1), host_calls._array),
    ],
)
def test_what_comes_of_a_draw(example: Any, given: Any) -> None:
    assert host_calls._conversion(example)[1] is given


@pytest.mark.parametrize("example", ["a", [1, 2.0], [], None, numpy.array(["a"]), (1, 2)])
def test_what_is_no_number_is_refused(example: Any) -> None:
    with pytest.raises(Refusal, match="it gives a"):
        host_calls._conversion(example)


@pytest.mark.parametrize("value", [True, 3, 2.5, [1, 2], [True], [0.5]])
def test_a_tensor_of_numbers_has_their_values_and_types(value: Any) -> None:
    assert repr(host_calls._tensor_of(value).tolist()) == repr(value)


def test_draws_that_are_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        with pytest.raises(Refusal, match="several types"):
            _drawn(tx, "random.choice", (1, 2.0))
        with pytest.raises(Refusal, match="it raises ValueError"):
            _drawn(tx, "random.randint", 3, 1)
        with pytest.raises(Refusal, match="no constant"):
            host_calls._draw(substituted(tx, "random.uniform", x, x))
        host_calls.note_drawn_inside(tx)
        with pytest.raises(Refusal, match="called inside the graph"):
            _drawn(tx, "random.random")
        assert not tx.output.random_calls

    during_trace(body, X)


def test_a_seed_is_set_among_the_draws() -> None:
    def body(tx: Any, x: Any) -> Any:
        host_calls._seed(substituted(tx, "random.seed", constant(9)))
        return _drawn(tx, "random.random")

    found = trace(body, X)
    assert found == random.Random(9).random()


def test_a_seed_of_torch_behind_a_random_operator_is_refused() -> None:
    def body(tx: Any, x: Any) -> None:
        fx_graph.function(tx, torch.rand_like, x)
        with pytest.raises(Refusal, match="draws from torch's generator"):
            host_calls._seed(substituted(tx, "torch.manual_seed", constant(9)))

    during_trace(body, X)
