"""What stock torch does wrong, or twice, and a module of bcmend works round.

Where a test fails, torch is mended: the module that it names can go, or do less.
"""

from __future__ import annotations

import collections
import operator
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from typing import Any

import numpy
import pytest
import sympy
import torch
from torch import Tensor
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.exc import (
    BackendCompilerFailed,
    InternalTorchDynamoError,
    TorchRuntimeError,
)
from torch._dynamo.source import ConstantSource
from torch._functorch._aot_autograd.autograd_cache import BypassAOTAutogradCache, check_cacheable
from torch._functorch.aot_autograd import aot_function, make_boxed_func
from torch._inductor.exc import InductorError
from torch._inductor.utils import fresh_cache
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.amp.autocast_mode import _enter_autocast, _exit_autocast
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import DimDynamic, ShapeEnv, free_symbols
from torch.utils._sympy.functions import FloorDiv
from torch.utils._sympy.value_ranges import ValueRangeError
from torch.utils.checkpoint import checkpoint

from tests.differences_of_torch import (
    BLOCKS_OF_AUTOCAST_ARE_STORED,
    COMPUTED_FLOATS_ARE_FROZEN,
    COPIES_HAVE_NO_LIMIT,
    COPIES_OF_CHANGED_ARE_REMOVED,
    FACTORS_OF_PRODUCTS_ARE_LOST,
    FUNCTIONS_ARE_NAMED_AFTER_CODE,
    JOINED_ROWS_ARE_WRONG,
    KEYS_STAY,
    LOOPS_WRITE_OVER_RESULTS,
    MASKS_BEHIND_CHOICES_FAIL,
    NUMBERS_IN_RANGES_ARE_COUNTED,
    PRODUCTS_OF_SIZES_ARE_TAKEN_TOGETHER,
    QUEUES_ARE_COPIED,
    SIDES_WRITE_OVER_ARGUMENTS,
    SQUARES_OF_SIZES_FAIL,
    VIEWS_OF_HALVES_FAIL_IN_CHOICES,
)

ATEN = torch.ops.aten


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def _raising_if(is_at_fault: bool, *expected: Any) -> Any:
    """Expect what torch raises where a release has a fault, and nothing from others."""
    kind, *match = expected
    return pytest.raises(kind, match=match[0] if match else None) if is_at_fault else nullcontext()


def _as_compiled(
    program: Callable[..., Tensor], *inputs: Tensor
) -> tuple[GraphModule, GraphModule]:
    """Return the forward and the backward that a back end compiles for a program."""
    found: list[GraphModule] = []

    def keep(graph: GraphModule, _: Any) -> Any:
        found.append(graph)
        return make_boxed_func(graph.forward)

    backend = aot_autograd(fw_compiler=keep, bw_compiler=keep)
    torch.compile(program, backend=backend, fullgraph=True)(*inputs).sum().backward()
    forward, backward = found
    return forward, backward


def _sides(graph: GraphModule) -> list[list[Any]]:
    """Return what the sides of the choices in a graph call."""
    return [
        [node.target for node in side.graph.nodes if node.op == "call_function"]
        for _, side in graph.named_children()
        if isinstance(side, GraphModule)
    ]


def _choice(predicate: Tensor, x: Tensor) -> Any:
    return torch.cond(predicate, lambda x: x.sin().exp(), lambda x: x.cos().exp(), (x,))


def test_the_backward_of_a_choice_computes_the_forward_again() -> None:
    """``bcmend/tracing/backends/saved_values.py``"""
    x = torch.ones(3, requires_grad=True)
    _, backward = _as_compiled(_choice, torch.tensor(True), x)
    sides = _sides(backward)
    assert len(sides) == 2 and all(ATEN.exp.default in side for side in sides)


def test_a_choice_takes_strides_for_products_of_sizes() -> None:
    """``_merged`` in ``bcmend/tracing/backends/traced_choices.py``"""

    def program(x: Tensor) -> Any:
        y = x.view(x.size(0) // 2, 2, 3)
        return torch.cond(x.sum() > 0, lambda y: y.sin(), lambda y: y.cos(), (y,))

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True, dynamic=True)
    with _raising_if(VIEWS_OF_HALVES_FAIL_IN_CHOICES, TorchRuntimeError, "accumulative multipl"):
        compiled(torch.ones(4, 3))


def test_a_size_of_another_graph_is_a_product_of_its_first_factors() -> None:
    """``computed_again`` in ``bcmend/dynamo/shape_env.py``"""
    found: list[GraphModule] = []

    def compiler(graph: GraphModule, inputs: Any) -> Any:
        given = [node.meta["example_value"] for node in graph.graph.find_nodes(op="placeholder")]
        (x,) = (each for each in given if isinstance(each, Tensor))
        size = x.size(0) * x.size(1) * x.size(2)
        found.append(make_fx(lambda x: x.new_zeros(size))(x))
        return graph.forward

    torch.compile(torch.sin, backend=compiler, dynamic=True)(torch.ones(3, 5, 7))
    products = [node for node in found[0].graph.nodes if node.target is operator.mul]
    counts = [len(each.args) for each in products]
    assert counts == ([3] if PRODUCTS_OF_SIZES_ARE_TAKEN_TOGETHER else [2, 2])


def test_a_fraction_that_was_a_truth_has_no_range() -> None:
    """``_float`` in ``bcmend/tracing/handlers/tensor_bool.py``"""

    def program(x: Tensor) -> Tensor:
        return x + 1 if float(x[0].item()) < 4 else x - 1

    with (
        torch._dynamo.config.patch(capture_scalar_outputs=True),
        pytest.raises(AssertionError, match="ToFloat"),
    ):
        torch.compile(program, backend="eager", fullgraph=True)(torch.tensor([True]))


def test_a_side_loses_what_checks_a_matrix() -> None:
    """``without_tokens`` in ``bcmend/tracing/backends/traced_choices.py``"""
    inverse: Callable[[Tensor], Tensor] = torch.linalg.inv

    def program(truth: Tensor, x: Tensor) -> Any:
        return torch.cond(truth, lambda x: inverse(x).exp(), lambda x: inverse(x).sin(), (x,))

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    assert not compiled(torch.tensor(True), torch.zeros(2, 2)).isfinite().all()
    with pytest.raises(BackendCompilerFailed, match="tangents_token"):
        compiled(torch.tensor(True), torch.eye(2).requires_grad_())


def _two_choices(one: Tensor, other: Tensor, x: Tensor) -> Any:
    return _choice(other, _choice(one, x))


def test_graphs_are_made_of_sides_to_see_what_they_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """``seen_pure`` in ``bcmend/tracing/backends/saved_values.py``"""
    kind, asked = type(torch.ops.higher_order.cond), []
    schema = kind.gen_schema

    def counting(*arguments: Any) -> Any:
        asked.append(arguments)
        return schema(*arguments)

    monkeypatch.setattr(kind, "gen_schema", counting)
    compiled = torch.compile(_choice, backend="aot_eager", fullgraph=True)
    compiled(torch.tensor(True), torch.ones(3))
    assert asked


def test_choices_that_are_alike_have_graphs_of_their_own() -> None:
    """``bcmend/tracing/backends/traced_choices.py``"""
    x = torch.ones(3, requires_grad=True)
    forward, backward = _as_compiled(_two_choices, torch.tensor(True), torch.tensor(False), x)
    for graph in (forward, backward):
        then_one, else_one, then_other, else_other = _sides(graph)
        assert then_one == then_other and else_one == else_other


def _sum_of_products(count: Tensor, x: Tensor, weight: Tensor) -> Any:
    start = torch.tensor(0), torch.zeros(3)
    return torch.while_loop(
        lambda at, total: at < count, lambda at, total: (at + 1, total + x * weight), start
    )[1]


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_carried_tensor_gets_no_gradient_in_a_later_iteration(backend: str) -> None:
    """``bcmend/tracing/loops/late_gradients.py``: the gradient of one iteration of three."""
    x, weight = torch.full((3,), 5.0), torch.full((3,), 2.0, requires_grad=True)
    compiled = torch.compile(_sum_of_products, backend=backend, fullgraph=True)
    compiled(torch.tensor(3), x, weight).sum().backward()
    assert weight.grad is not None and not weight.grad.equal(3 * x)
    assert weight.grad.equal(x)


def _from_a_leaf(x: Tensor) -> Tensor:
    return x.detach().requires_grad_() * 2


def test_what_is_computed_from_a_leaf_in_a_graph_requires_no_gradient() -> None:
    """``bcmend/tracing/substitutes/autograd_leaf.py``"""
    differentiated = aot_function(_from_a_leaf, lambda graph, _: make_boxed_func(graph.forward))
    assert _from_a_leaf(torch.ones(3)).requires_grad
    assert not differentiated(torch.ones(3)).requires_grad


def test_choices_and_loops_are_not_stored_in_caches() -> None:
    """``bcmend/tracing/backends/compile_caches.py``"""
    assert not torch.ops.higher_order.cond.cacheable()
    assert not torch.ops.higher_order.while_loop.cacheable()


def test_blocks_of_autocast_are_not_stored_in_caches() -> None:
    """``bcmend/tracing/backends/compile_caches.py``"""
    graph = torch.fx.Graph()
    block = graph.call_function(_enter_autocast, ("cpu", torch.bfloat16, True, None))
    graph.call_function(_exit_autocast, (block,))
    graph.output(())
    stored = (
        nullcontext() if BLOCKS_OF_AUTOCAST_ARE_STORED else pytest.raises(BypassAOTAutogradCache)
    )
    with stored:
        check_cacheable(GraphModule({}, graph))


def test_a_back_end_that_compiles_nothing_traces_both_sides_at_each_call(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``bcmend/tracing/backends/uncompiled_sides.py``"""
    module: Any = sys.modules["torch._higher_order_ops.cond"]
    original, traced = module.materialize_as_graph, []

    def count(*arguments: Any, **named: Any) -> Any:
        traced.append(arguments[0])
        return original(*arguments, **named)

    monkeypatch.setattr(module, "materialize_as_graph", count)
    compiled = torch.compile(_choice, backend="eager", fullgraph=True)
    x = torch.ones(3, requires_grad=True)
    for calls in range(1, 4):
        compiled(torch.tensor(True), x).sum().backward()
        assert len(traced) == 2 * calls


def _with_a_choice(x: Tensor, one: Tensor, other: Tensor) -> Any:
    y, z = x.sin() * one, x.cos() * other

    def then(y: Tensor, z: Tensor, one: Tensor) -> Tensor:
        return (y * one).exp() @ (z * other).tanh().t() @ one

    def otherwise(y: Tensor, z: Tensor, one: Tensor) -> Tensor:
        return (y - one).sigmoid() * z.sin()

    return torch.cond(x.sum() > 0, then, otherwise, (y, z, one)) * one


@pytest.mark.parametrize("is_donated", [True, False])
def test_the_backward_of_a_choice_writes_over_an_argument(is_donated: bool) -> None:
    """``bcmend/tracing/backends/donated_memory.py``"""
    torch.manual_seed(5)
    inputs = [torch.rand(4, 4).requires_grad_() for _ in range(3)]
    before = [each.detach().clone() for each in inputs]
    with torch._functorch.config.patch(donated_buffer=is_donated):
        compiled = torch.compile(_with_a_choice, backend="inductor", fullgraph=True)
        compiled(*inputs).square().sum().backward()
    is_as_before = all(map(torch.equal, inputs, before))
    assert is_as_before is not (is_donated and SIDES_WRITE_OVER_ARGUMENTS)


def _turn(matrix: Tensor, x: Tensor, rest: Tensor, way: Tensor, size: Tensor) -> tuple[Tensor, ...]:
    step = matrix @ way
    length = size / (way @ step)
    x, rest = x + length * way, rest - length * step
    following = rest @ rest
    return x, rest, rest + following / size * way, following


def _begun(right: Tensor) -> tuple[Tensor, ...]:
    rest = right * 1
    return torch.zeros_like(right), rest, rest.clone(), rest @ rest


def _with_a_loop(matrix: Tensor, right: Tensor) -> Any:
    begun = torch.zeros((), dtype=torch.int64), *_turn(matrix, *_begun(right))
    return torch.while_loop(
        lambda turn, *state: turn < 3,
        lambda turn, *state: (turn + 1, *_turn(matrix, *state)),
        begun,
    )[1]


def _of_a_loop(matrix: Tensor, right: Tensor) -> Tensor:
    state = _begun(right)
    for _ in range(4):
        state = _turn(matrix, *state)
    return state[0]


@pytest.mark.skipif(
    not LOOPS_WRITE_OVER_RESULTS, reason="it shows in other programs: test_loop_gradients.py"
)
@pytest.mark.parametrize("reuses", [True, False])
def test_what_a_turn_returns_as_it_is_is_written_over(reuses: bool) -> None:
    """``bcmend/tracing/backends/donated_memory.py``"""
    drawn = torch.Generator().manual_seed(0)
    rows = torch.randn(6, 6, generator=drawn) * 0.3
    given = rows @ rows.t() + torch.eye(6), torch.randn(6, generator=drawn)
    found = []
    with torch._inductor.config.patch(allow_buffer_reuse=reuses):
        for program in (_of_a_loop, torch.compile(_with_a_loop, fullgraph=True)):
            inputs = [each.clone().requires_grad_() for each in given]
            (program(*inputs) * torch.linspace(0.5, 1.5, 6)).sum().backward()
            found.append([each.grad for each in inputs])
    pairs = zip(*found, strict=True)
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in pairs) is not reuses


def _with_a_copy(x: Tensor, weight: Tensor) -> Any:
    y = x * weight
    y.copy_(torch.where(x > 0, 1.0, y))
    return y.sin() * y.amax(), y[0]


@pytest.mark.parametrize("is_donated", [True, False])
def test_the_backward_writes_over_a_result_that_was_copied_to(is_donated: bool) -> None:
    """``bcmend/tracing/backends/donated_memory.py``"""
    x = torch.tensor([[-1.0, 2.0], [3.0, -4.0]])
    weight = torch.full((2, 2), 2.0, requires_grad=True)
    with (
        torch._functorch.config.patch(donated_buffer=is_donated),
        torch._inductor.config.patch(force_disable_caches=True),
    ):
        compiled = torch.compile(_with_a_copy, backend="inductor", fullgraph=True)
        result, row = compiled(x, weight)
        assert row.tolist() == [-2.0, 1.0]
        result.sum().backward()
    assert (row.tolist() == [-2.0, 1.0]) is not is_donated


def _added_to_a_queue(x: Tensor, weight: Tensor, queue: Tensor) -> Tensor:
    found = (x * weight) @ queue.clone().t()
    with torch.no_grad():
        queue[:1] = 7
    return found.square().sum()


@pytest.mark.parametrize("passes", ["", "remove_noop_ops"])
def test_a_copy_of_what_is_changed_later_is_removed(passes: str) -> None:
    """``bcmend/tracing/backends/donated_memory.py``"""
    x, weight, queue = torch.ones(2, 2), torch.ones(2, requires_grad=True), torch.ones(3, 2)
    settings = {"force_disable_caches": True, "disabled_passes": passes}
    with torch._inductor.config.patch(settings):
        compiled = torch.compile(_added_to_a_queue, backend="inductor", fullgraph=True)
        compiled(x, weight, queue).backward()
    is_wrong = weight.grad is not None and weight.grad.tolist() != [24.0, 24.0]
    assert is_wrong is (COPIES_OF_CHANGED_ARE_REMOVED and not passes)


def test_a_factor_of_a_product_is_lost() -> None:
    """``bcmend/tracing/arithmetic/scaled_sums.py``"""

    def average(mean: Tensor, x: Tensor) -> Tensor:
        return mean.add(x.t() @ x, alpha=0.25)

    x = torch.full((2, 2), 2.0)
    found = torch.compile(average, backend="inductor", fullgraph=True)(torch.zeros(2, 2), x)
    assert (found.tolist() != [[2.0, 2.0], [2.0, 2.0]]) is FACTORS_OF_PRODUCTS_ARE_LOST


def _product(x: Tensor, y: Tensor, mask: Tensor) -> Tensor:
    found = mask.nonzero().squeeze(-1)
    return torch.bmm(x[:, :, found] * 2, y[:, found] + 1)


def test_a_layout_is_not_chosen_for_a_data_dependent_size() -> None:
    """``bcmend/tracing/backends/layouts.py``"""
    compiled = torch.compile(_product, backend="inductor", fullgraph=True)
    inputs = torch.ones(4, 5, 6), torch.ones(4, 6, 5), torch.tensor([True, False] * 3)
    with (
        torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True),
        pytest.raises(Exception, match="Could not guard on data-dependent expression"),
    ):
        compiled(*inputs)


def _of_rows_in_another_order(x: Tensor, y: Tensor) -> Any:
    rows = torch.stack([x, y]).permute(2, 0, 1).softmax(-1)
    return torch.cond(
        x.sum() > 0,
        lambda rows: torch.bmm(rows, rows.transpose(1, 2)),
        lambda rows: torch.bmm(rows.cos(), rows.transpose(1, 2)),
        (rows,),
    )


def test_an_operand_of_a_choice_has_other_strides_than_were_traced() -> None:
    """``bcmend/tracing/backends/layouts.py``"""
    compiled = torch.compile(_of_rows_in_another_order, backend="inductor", fullgraph=True)
    with pytest.raises(AssertionError, match="expected size"):
        compiled(torch.ones(5, 7), torch.ones(5, 7))


def test_a_square_of_a_size_is_not_divided_by_it() -> None:
    """``bcmend/tracing/backends/layouts.py``"""
    environment = ShapeEnv()
    size = environment.create_symbol(401, ConstantSource("size"), DimDynamic.DYNAMIC)
    rows = FloorDiv(size, 10) - 1
    question = sympy.Eq(rows % sympy.expand(rows**2), 0)
    with _raising_if(SQUARES_OF_SIZES_FAIL, (ValueError, ValueRangeError)):
        environment.evaluate_expr(question, fallback_value=False)


def _selected_behind_a_choice(x: Tensor, mask: Tensor) -> Tensor:
    y = torch.cond(x.sum() > 3, lambda rows: rows * 2, lambda rows: rows.sin(), (x,))
    return y[mask]


def test_a_mask_selects_rows_of_a_tensor_that_is_laid_out_otherwise() -> None:
    """``_rename`` in ``bcmend/tracing/backends/layouts.py``"""
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(_selected_behind_a_choice, backend="inductor", fullgraph=True)
        with _raising_if(MASKS_BEHIND_CHOICES_FAIL, InductorError, r"u\d+ -> u\d+"):
            compiled(torch.ones(3, 4), torch.tensor([True, False, True]))


def _rows_joined(x: Tensor) -> Tensor:
    places = torch.cat([(x[:, 0] >= 0).nonzero().flatten(), (x[:, 0] < 0).nonzero().flatten()])
    return x[places].reshape(-1, 4) * 2


def test_rows_that_are_joined_are_not_all_there_are() -> None:
    """``_is_a_claim_of_inductor`` in ``bcmend/tracing/numbers/size_questions.py``"""
    x = torch.arange(16.0).reshape(8, 2) - 7
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        compiled = torch.compile(_rows_joined, backend="inductor", fullgraph=True)
        try:
            found = compiled(x)
        except AssertionError as error:
            assert JOINED_ROWS_ARE_WRONG and "expected size" in str(error)
        else:
            assert torch.equal(found, _rows_joined(x)) is not JOINED_ROWS_ARE_WRONG


def _sum_of_some(x: Tensor) -> Tensor:
    return x[x > 0].sin().sum()


def test_a_backward_that_does_not_compile_fails_when_it_is_called() -> None:
    """``bcmend/tracing/backends/early_backward.py``"""

    def refuse(graph: GraphModule, _: Any) -> Any:
        raise ValueError("not compiled")

    backend = aot_autograd(
        fw_compiler=lambda graph, _: make_boxed_func(graph.forward), bw_compiler=refuse
    )
    x = torch.ones(3, requires_grad=True)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        result = torch.compile(_sum_of_some, backend=backend, fullgraph=True)(x)
    assert result.equal(_sum_of_some(x))
    with pytest.raises(ValueError, match="not compiled"):
        result.backward()


def test_a_backward_is_not_given_fractions_that_sizes_are_made_of() -> None:
    """``bcmend/tracing/backends/early_backward.py``"""

    def repeated(x: Tensor, count: Tensor) -> Tensor:
        return x.expand(int(count.item()), -1).sin()

    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        _, backward = _as_compiled(
            repeated, torch.ones(1, 3, requires_grad=True), torch.tensor(2.0)
        )
    given = [node.meta["val"] for node in backward.graph.nodes if node.op == "placeholder"]
    bound = {each.node.expr for each in given if not isinstance(each, Tensor)}
    assert {str(each) for tensor in given for each in free_symbols(tensor) - bound} == {"zuf0"}


def test_what_a_choice_returns_is_found_out_for_each_that_is_alike(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """``bcmend/tracing/backends/known_structures.py``"""
    seen: list[Any] = []
    original: Any = FakeTensorMode.dispatch

    def count(mode: FakeTensorMode, operator: Any, *more: Any, **named: Any) -> Any:
        seen.append(operator)
        return original(mode, operator, *more, **named)

    def sines(choices: int) -> int:
        def program(predicate: Tensor, x: Tensor) -> Tensor:
            for _ in range(choices):
                x = _choice(predicate, x)
            return x

        seen.clear()
        torch._dynamo.reset()
        inputs = torch.tensor(True), torch.ones(3)
        torch.compile(program, backend="eager", fullgraph=True)(*inputs)
        return seen.count(ATEN.sin.default)

    monkeypatch.setattr(FakeTensorMode, "dispatch", count)
    assert sines(3) == 3 * sines(1) > 0


def _halves_and_whole(x: Tensor) -> Any:
    y = x.sin()
    return y[:2], y[2:], y.detach()


def test_a_result_loses_its_gradient_to_a_detached_one() -> None:
    """``bcmend/tracing/output/tensor_copies.py``"""
    x = torch.ones(4, requires_grad=True)
    compiled = torch.compile(_halves_and_whole, backend="inductor", fullgraph=True)
    for program, has_gradient in ((_halves_and_whole, True), (compiled, False)):
        one, other, _ = program(x)
        (one.sum() + other.sum()).backward()
        assert (x.grad is not None) is has_gradient
        x.grad = None


def test_a_sum_with_zeros_loses_its_gradient_to_a_detached_tensor() -> None:
    """``bcmend/tracing/backends/detached_results.py``"""

    def program(x: Tensor) -> Any:
        y = x * 2
        return y + torch.zeros(3), y.detach()

    x = torch.ones(3, requires_grad=True)
    compiled = torch.compile(program, backend="inductor", fullgraph=True)
    assert [each.requires_grad for each in program(x)] == [True, False]
    assert [each.requires_grad for each in compiled(x)] == [False, False]


class _Grown(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.number = 2.0

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.number
        self.number = self.number + 0.5
        return y


def test_a_float_of_a_call_is_found_for_another_in_the_cache_of_autograd() -> None:
    """``_reads_known_numbers`` in ``bcmend/tracing/backends/compile_caches.py``"""
    found = []
    for is_on in (True, False):
        torch._dynamo.reset()
        module = _Grown()
        program = torch.compile(module, backend="inductor")
        with fresh_cache(), torch._functorch.config.patch(enable_autograd_cache=is_on):
            for _ in range(4):
                program(torch.ones(3))
        found.append(module.number)
    assert found[1] == 4.0
    assert (found[0] != 4.0) is COMPUTED_FLOATS_ARE_FROZEN


def _breaks_in_a_loop(x: Tensor) -> Tensor:
    for _ in range(4):
        x = x * 2
        torch._dynamo.graph_break()
        x = x + 1
    return x


def _returns_in_a_loop(x: Tensor) -> Tensor:
    for turn in range(4):
        x = x * 2
        torch._dynamo.graph_break()
        if turn == 7:
            return x
        x = x + 1
    return x


@pytest.mark.parametrize(
    ("program", "is_compiled"), [(_breaks_in_a_loop, False), (_returns_in_a_loop, True)]
)
def test_a_return_hides_from_dynamo_that_it_stops_in_a_loop(
    program: Callable[[Tensor], Tensor], is_compiled: bool
) -> None:
    """``bcmend/tracing/loops/loop_breaks.py``"""
    graphs: list[GraphModule] = []

    def backend(graph: GraphModule, _: Any) -> Any:
        graphs.append(graph)
        return graph.forward

    assert torch.compile(program, backend=backend)(torch.ones(2)).equal(program(torch.ones(2)))
    assert bool(graphs) is is_compiled


@pytest.mark.parametrize("operator", ["cond", "while_loop"])
def test_a_checkpoint_has_no_rule_for_a_choice_or_a_loop(operator: str) -> None:
    """``tracing/backends/checkpointed.py``."""

    def body(x: Tensor) -> Any:
        if operator == "cond":
            return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))
        return torch.while_loop(lambda x: x.sum() > 1, lambda x: (x / 2,), (x,))[0]

    def program(x: Tensor) -> Any:
        return checkpoint(body, x, use_reentrant=False)

    with pytest.raises(NotImplementedError, match="no rule registered"):
        torch.compile(program, backend="eager")(torch.ones(3, requires_grad=True))


def test_dynamo_fails_where_it_would_show_a_graph_that_is_empty() -> None:
    """``tracing/sites/body_states.py``."""

    def choose(x: Tensor) -> Tensor:
        return x.sin() if x.sum() > 0 else x.cos()

    def program(x: Tensor) -> Any:
        def inner(x: Tensor) -> Any:
            return checkpoint(choose, x, use_reentrant=False)

        return checkpoint(inner, x, use_reentrant=False)

    with pytest.raises(InternalTorchDynamoError, match="IndentationError"):
        torch.compile(program, backend="eager")(torch.ones(3, requires_grad=True))


def _rows(mask: Tensor, x: Tensor, y: Tensor) -> Any:
    rows = x[mask]
    return rows @ y + rows.mean(0, keepdim=True)


def _squared(mask: Tensor, x: Tensor) -> Any:
    rows = x[mask]
    return (rows @ rows.mT) @ rows


def test_products_of_rows_of_a_data_dependent_number_do_not_compile() -> None:
    """``_is_of_form`` in ``bcmend/tracing/backends/layouts.py``"""
    mask, x = torch.tensor([True, False, True]), torch.eye(3)
    with torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True):
        torch.compile(_rows, backend="aot_eager", fullgraph=True)(mask, x, x)
        compiled = torch.compile(_rows, fullgraph=True)
        with pytest.raises(InductorError, match=r"Ne\(u0, 1\)"):
            compiled(mask, x, x)
        squared = torch.compile(_squared, backend="aot_eager", fullgraph=True)
        with pytest.raises(BackendCompilerFailed, match=r"Max\(1, u0\)"):
            squared(mask, torch.eye(3).requires_grad_())


@pytest.mark.parametrize("power", [operator.pow, operator.ipow])
def test_a_power_of_a_negative_number_is_negated(power: Any) -> None:
    """``tracing/arithmetic/powers.py``."""
    program = torch.compile(lambda x: power(-1, x), backend="eager", fullgraph=True)
    assert program(torch.tensor([2.0])).item() == -1


def test_runs_along_a_last_dimension_have_sizes_that_are_not_theirs() -> None:
    """``tracing/handlers/size_arguments`` counts the dimension from the front."""
    with FakeTensorMode(shape_env=ShapeEnv(allow_dynamic_output_shape_ops=True)):
        given = torch.zeros(5)
        assert torch.unique_consecutive(given, dim=0).dim() == 1
        assert torch.unique_consecutive(given, dim=-1).dim() == 2


def test_a_list_in_a_tuple_of_a_module_is_taken_for_a_constant() -> None:
    """``bcmend/tracing/handlers/lists_in_tuples.py``"""

    class Counting(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.items = [0]
            self.pair = (self.items, 0)

        def forward(self, x: Tensor) -> tuple[Tensor, bool]:
            self.items.append(1)
            return x + len(self.pair[0]), self.pair[0] is self.items

    eager, compiled = Counting(), torch.compile(Counting(), backend="eager")
    assert eager(torch.zeros(1)) == (torch.tensor([2.0]), True)
    assert compiled(torch.zeros(1)) == (torch.tensor([1.0]), False)


def test_no_guard_says_that_two_lists_are_two() -> None:
    """``bcmend/tracing/effects/separate_objects.py``"""
    held = {"one": [1], "other": [1]}

    def program(x: Tensor) -> Tensor:
        held["one"].append(5)
        return x + len(held["other"])

    compiled = torch.compile(program, backend="eager")
    assert compiled(torch.zeros(1)).item() == 1
    held["one"] = held["other"] = [1]
    assert compiled(torch.zeros(1)).item() == 1, "eager execution says 2"


def _last_of(program: Callable[..., Any], *calls: Any) -> Any:
    """Compile a program of a tensor and a number, and return what the last call gives."""
    compiled = torch.compile(program, backend="eager")
    return [compiled(torch.ones(2), each) for each in calls][-1]


def test_a_format_is_lost() -> None:
    """``bcmend/tracing/handlers/strings.py``"""
    assert _last_of(lambda x, v: (x + 1, format(v, ".3f")), 1.5)[1] == "1.5"


def test_a_number_in_a_range_is_an_integer() -> None:
    """``bcmend/tracing/handlers/ranges.py``"""
    found = _last_of(lambda x, n: (x + 1, 2 in range(n)), 5, 3, 4)[1]
    assert (found is not True) is NUMBERS_IN_RANGES_ARE_COUNTED and found == 1


def test_an_error_of_a_number_that_varies_passes_its_handler() -> None:
    """``bcmend/tracing/arithmetic/handled_errors.py``"""

    def share(x: Tensor, count: int) -> Any:
        try:
            return x + 1, 6 / count
        except ZeroDivisionError:
            return x + 1, 0.0

    with pytest.raises(ZeroDivisionError):
        _last_of(share, 2, 3, 0)


def test_what_dynamo_does_not_know_of_a_number_is_an_error_of_the_program() -> None:
    """``bcmend/tracing/output/exception_flow.py``"""

    def parts(x: Tensor, n: int) -> Any:
        try:
            return x + 1, divmod(n, 2)
        except TypeError:
            return x + 1, None

    assert _last_of(parts, 5, 6)[1] is None


def test_an_integer_that_varies_is_not_rounded_to_tens() -> None:
    """``bcmend/tracing/arithmetic/number_methods.py``"""
    assert _last_of(lambda x, n: (x + 1, round(n, -1)), 15, 26)[1] == 26


def test_a_truth_out_of_a_tensor_is_never_true() -> None:
    """``bcmend/tracing/handlers/tensor_bool.py``"""
    with torch._dynamo.config.patch(capture_scalar_outputs=True):
        assert _last_of(lambda x, n: (x + 1, (x > 0).any().item() is True), 1)[1] is False


def test_a_tuple_that_is_given_twice_is_two() -> None:
    """``bcmend/tracing/effects/separate_objects.py``"""
    pair = (1, 0)
    compiled = torch.compile(lambda x, one, other: (x + 1, one is other), backend="eager")
    assert compiled(torch.ones(2), pair, pair)[1] is False


def test_a_weak_reference_is_put_elsewhere_as_what_it_refers_to() -> None:
    """``_weak_reference`` in ``bcmend/tracing/handlers/identity.py``"""

    class State:
        copy: Any = None

    def program(x: Tensor, state: Any) -> Tensor:
        state.copy = state.reference
        return x + 1

    state: Any = State()
    held = State()
    state.reference = weakref.ref(held)
    torch.compile(program, backend="eager", fullgraph=True)(torch.ones(2), state)
    assert state.copy is held


def test_a_function_has_the_name_of_its_code() -> None:
    """``bcmend/tracing/handlers/function_names.py``"""

    def named(x: Tensor) -> Tensor:
        return x

    named.__name__ = "longer name"
    compiled = torch.compile(
        lambda x, function: x * len(function.__name__), backend="eager", fullgraph=True
    )
    assert compiled(torch.ones(1), named).item() == (5 if FUNCTIONS_ARE_NAMED_AFTER_CODE else 11)


def test_a_queue_that_was_changed_is_put_elsewhere_as_a_copy() -> None:
    """``bcmend/tracing/merging/journaled_container.py``"""

    def program(x: Tensor, queue: Any, held: list[Any]) -> Any:
        queue.append(1)
        held.append(queue)
        return x + 1

    queue, held = collections.deque([0]), list[Any]()
    torch.compile(program, backend="eager", fullgraph=True)(torch.ones(2), queue, held)
    assert held[0] == queue
    assert (held[0] is queue) is not QUEUES_ARE_COPIED


def test_a_limited_queue_that_is_given_has_no_limit() -> None:
    """``bcmend/tracing/handlers/written_back.py``"""

    def program(x: Tensor, queue: Any) -> Any:
        queue.appendleft(0)
        return x + len(queue)

    queue = collections.deque([1, 2], maxlen=2)
    found = torch.compile(program, backend="eager", fullgraph=True)(torch.zeros(1), queue)
    assert (found.item(), list(queue)) == (3, [1, 2])


def test_a_copy_of_a_limited_queue_has_no_limit() -> None:
    """``_copied`` in ``bcmend/tracing/handlers/written_back.py``"""

    def program(x: Tensor) -> Any:
        queue = collections.deque([1], maxlen=1)
        return x + 1, queue.copy()

    copied = torch.compile(program, backend="eager", fullgraph=True)(torch.zeros(1))[1]
    assert (copied.maxlen is None) is COPIES_HAVE_NO_LIMIT


def test_what_is_taken_from_a_set_in_place_stays_there() -> None:
    """``_write_back`` in ``bcmend/tracing/handlers/written_back.py``"""

    def program(x: Tensor, members: Any) -> Tensor:
        members -= {1}
        return x + 1

    members = {1, 2}
    torch.compile(program, backend="eager", fullgraph=True)(torch.zeros(1), members)
    assert (members == {1, 2}) is KEYS_STAY


def test_a_key_that_is_moved_to_the_end_stays_where_it_was() -> None:
    """``_write_back`` in ``bcmend/tracing/handlers/written_back.py``"""

    def program(x: Tensor, table: Any) -> Tensor:
        table.move_to_end("a")
        return x + 1

    table = collections.OrderedDict(a=1, b=2)
    torch.compile(program, backend="eager", fullgraph=True)(torch.zeros(1), table)
    assert list(table) == ["a", "b"]


def test_a_slot_gets_the_new_items_of_a_dictionary_alone() -> None:
    """``_write`` in ``bcmend/tracing/handlers/written_back.py``"""

    class Slotted:
        __slots__ = ("held",)

    def program(x: Tensor, table: Any, slotted: Any) -> Tensor:
        table["b"] = 2
        slotted.held = table
        return x + 1

    table, slotted = {"a": 1}, Slotted()
    torch.compile(program, backend="eager", fullgraph=True)(torch.zeros(1), table, slotted)
    assert table == {"a": 1, "b": 2}
    assert slotted.held == {"b": 2}


def test_a_dictionary_that_grows_while_it_is_gone_over_backwards_is_no_error() -> None:
    """``bcmend/tracing/speculation/iterators.py``"""

    def program(x: Tensor, n: int) -> Any:
        held = {1: 1, 2: 2}
        for key in reversed(held):
            held[key * 10] = n
        return x + 1, len(held)

    assert _last_of(program, 1)[1] == 4


@pytest.mark.skipif(sys.version_info < (3, 13), reason="no cast is left of it on this Python")
def test_two_nots_are_an_error() -> None:
    """``_with_casts`` in ``bcmend/rewrite/passes/common_form.py``"""

    def program(x: Tensor) -> Any:
        return x + 1, not not x.shape[0]

    with pytest.raises(AssertionError, match="POP_JUMP_IF_TRUE"):
        torch.compile(program, backend="eager", fullgraph=True)(torch.zeros(1))


def test_inputs_that_share_memory_later_are_taken_for_apart() -> None:
    """``bcmend/tracing/merging/shared_inputs.py``"""

    def program(one: Tensor, other: Tensor) -> Tensor:
        other.add_(1)
        return one * 2

    compiled = torch.compile(program, backend="aot_eager", fullgraph=True)
    compiled(torch.zeros(3), torch.zeros(2))
    memory = torch.zeros(3)
    assert compiled(memory, memory[1:]).tolist() == [0, 0, 0]


def test_nothing_guards_which_attributes_an_object_has() -> None:
    """``_guard_attributes`` in ``bcmend/tracing/handlers/dictionaries.py``"""

    class Holder:
        pass

    def program(x: Tensor, holder: Any) -> Any:
        holder.count = 1
        return x + 0, sorted(vars(holder))

    compiled, holder = torch.compile(program, backend="eager", fullgraph=True), Holder()
    compiled(torch.zeros(1), holder)
    holder.more = 2  # type: ignore[attr-defined]
    assert compiled(torch.zeros(1), holder)[1] == ["count"]


def test_a_method_that_is_replaced_goes_on() -> None:
    """docs/upstream.md"""

    class Layer(torch.nn.Module):
        def activation(self, x: Tensor) -> Tensor:
            return x.relu()

        def forward(self, x: Tensor) -> Tensor:
            return self.activation(x)

    compiled = torch.compile(Layer(), backend="eager", fullgraph=True)
    compiled(torch.ones(1))
    Layer.activation = lambda self, x: x * 10  # type: ignore[method-assign]
    assert compiled(torch.ones(1)).item() == 1


def test_an_array_in_two_places_is_two_arrays() -> None:
    """``_write_once`` in ``bcmend/tracing/handlers/written_back.py``"""

    def program(x: Any, held: dict[str, Any]) -> None:
        held["one"] = numpy.sin(x)
        held["other"] = held["one"]

    held: dict[str, Any] = {}
    torch.compile(program, backend="eager", fullgraph=True)(numpy.ones(2), held)
    assert held["one"] is not held["other"]
