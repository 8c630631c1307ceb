"""Random numbers of an arm while gradients flow: the same ones and gradients, or a refusal."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

import bcmend
from bcmend.tracing.lowering import hoist_random
from bcmend.tracing.search import strict
from bcmend.tracing.sites.refusal import Refusal
from tests import own_faults
from tests.equivalence import assert_equivalent, call
from tests.samples import in_turn, name_of

Arm = Callable[[Tensor, Tensor], Tensor]
SEEDS = range(8)


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


# --- arms ----------------------------------------------------------------------------------------


def dropout(x: Tensor, w: Tensor) -> Tensor:
    return functional.dropout(x @ w, 0.3, training=True)


def dropout_in_half_precision(x: Tensor, w: Tensor) -> Tensor:
    return functional.dropout((x @ w).bfloat16(), 0.3, training=True).float()


def dropout_of_a_transposed_tensor(x: Tensor, w: Tensor) -> Tensor:
    return functional.dropout((x @ w).t(), 0.3, training=True).t() * 2


def dropout_of_a_permuted_tensor(x: Tensor, w: Tensor) -> Tensor:
    cube = (x @ w).view(2, 2, 4).permute(1, 2, 0)
    return functional.dropout(cube * 2, 0.3, training=True).permute(2, 0, 1).reshape(4, 4)


def dropout_of_what_is_not_finite(x: Tensor, w: Tensor) -> Tensor:
    # The values, not the gradients: those are the same NaN in both.
    return functional.dropout(x.detach() / 0, 0.3, training=True) + x @ w


def dropout_in_place(x: Tensor, w: Tensor) -> Tensor:
    y = x @ w
    functional.dropout(y, 0.3, training=True, inplace=True)
    return y * 2


def dropout_of_features(x: Tensor, w: Tensor) -> Tensor:
    return functional.dropout1d((x @ w)[None], 0.3, training=True)[0]


def alpha_dropout(x: Tensor, w: Tensor) -> Tensor:
    return functional.alpha_dropout(x @ w, 0.3, training=True)


def attention(x: Tensor, w: Tensor) -> Tensor:
    heads = (x @ w).view(1, 2, 2, 4)
    return functional.scaled_dot_product_attention(heads, heads, heads, dropout_p=0.4).view(4, 4)


def causal_attention(x: Tensor, w: Tensor) -> Tensor:
    heads = (x @ w).view(1, 2, 2, 4)
    return functional.scaled_dot_product_attention(
        heads, heads, heads, dropout_p=0.4, is_causal=True, scale=0.3
    ).view(4, 4)


def attention_to_what_a_cache_holds(x: Tensor, w: Tensor) -> Tensor:
    """Joined to nothing, the keys keep other strides where a back end takes ``cat`` apart."""
    heads = (x @ w).view(2, 2, 2, 2).transpose(1, 2)
    held = torch.cat([torch.tensor([]), heads], dim=-2)
    result = functional.scaled_dot_product_attention(heads, held, held, dropout_p=0.4)
    return result.transpose(1, 2).reshape(4, 4)


def attention_with_a_differentiable_mask(x: Tensor, w: Tensor) -> Tensor:
    heads = (x @ w).view(1, 2, 2, 4)
    return functional.scaled_dot_product_attention(
        heads, heads, heads, attn_mask=heads[..., :2], dropout_p=0.4
    ).view(4, 4)


def attention_with_a_boolean_mask(x: Tensor, w: Tensor) -> Tensor:
    heads = (x @ w).view(1, 2, 2, 4)
    return functional.scaled_dot_product_attention(
        heads, heads, heads, attn_mask=heads[..., :2] > -1, dropout_p=0.4
    ).view(4, 4)


def attention_of_groups(x: Tensor, w: Tensor) -> Tensor:
    heads = (x @ w).view(1, 2, 2, 4)
    return functional.scaled_dot_product_attention(
        heads, heads[:, :1], heads[:, :1], dropout_p=0.4, enable_gqa=True
    ).view(4, 4)


def attention_in_half_precision(x: Tensor, w: Tensor) -> Tensor:
    return causal_attention(x.bfloat16(), w.bfloat16()).float()


def multi_head_attention(x: Tensor, w: Tensor) -> Tensor:
    sequence = x[:, None]
    result, _ = functional.multi_head_attention_forward(
        *(sequence, sequence, sequence, 4, 2, torch.cat([w, w, w]), None, None, None, False, 0.3),
        *(w, None),
        training=True,
    )
    return result[:, 0]


def numbers(x: Tensor, w: Tensor) -> Tensor:
    noise = torch.rand(4, 4) * torch.randn(4) + torch.randint(0, 5, (4,)) + torch.randperm(4)
    return x @ w + noise


def numbers_like_a_tensor(x: Tensor, w: Tensor) -> Tensor:
    return x @ w * torch.rand_like(x) + torch.randn_like(x.t()) + torch.bernoulli(x.detach(), 0.3)


def a_tensor_filled_in_place(x: Tensor, w: Tensor) -> Tensor:
    filled = x @ w * 2
    filled.t().normal_()
    return x @ w + filled * torch.normal(0.0, 1.0, (4, 4))


def gumbel_softmax(x: Tensor, w: Tensor) -> Tensor:
    return functional.gumbel_softmax(x @ w)


def numbers_that_nobody_reads(x: Tensor, w: Tensor) -> Tensor:
    torch.rand(3)
    return x @ w


def a_draw_before_an_index(x: Tensor, w: Tensor) -> Tensor:
    return functional.dropout(x, 0.3, training=True)[(x[0] * 0).long()] @ w


def sizes_of_the_input(x: Tensor, w: Tensor) -> Tensor:
    wide = torch.cat([x, x], 1)
    noise = torch.rand(2 * x.size(0), x.size(1) + 1)
    return functional.dropout(wide.t(), 0.3, training=True).t()[:, : x.size(1)] @ w + noise.sum()


TAKEN_OUT = [
    dropout,
    dropout_in_half_precision,
    dropout_of_a_transposed_tensor,
    dropout_of_a_permuted_tensor,
    dropout_of_what_is_not_finite,
    dropout_in_place,
    dropout_of_features,
    alpha_dropout,
    attention,
    causal_attention,
    attention_to_what_a_cache_holds,
    attention_with_a_differentiable_mask,
    attention_with_a_boolean_mask,
    attention_of_groups,
    attention_in_half_precision,
    multi_head_attention,
    numbers,
    numbers_like_a_tensor,
    a_tensor_filled_in_place,
    gumbel_softmax,
    numbers_that_nobody_reads,
    a_draw_before_an_index,
    sizes_of_the_input,
]


# --- comparison ----------------------------------------------------------------------------------


def _program(
    arm: Arm, other: Arm | None = None, chance_of: Callable[[Tensor], Tensor] | None = None
) -> Callable[[Tensor, Tensor], Tensor]:
    """A branch that a random number decides, between draws; with code that Dynamo has not met.

    The number is one of weights if `chance_of` is given: then nothing has it before the graph.
    """

    def program(x: Tensor, w: Tensor) -> Tensor:
        chance = torch.rand([]) if chance_of is None else chance_of(w)
        x = x * 1
        if chance < 0.5:
            x = arm(x, w)
        elif other is not None:
            x = other(x, w)
        return x * torch.rand(4, 4)

    code = program.__code__.replace()
    return FunctionType(code, program.__globals__, "program", None, program.__closure__)


@dataclass(frozen=True)
class Seen:
    output: Tensor
    gradients: tuple[Tensor, ...]
    state_before_backward: Tensor
    state_after: Tensor

    def is_like(self, other: Seen, tolerance: float) -> bool:
        pairs = zip((self.output, *self.gradients), (other.output, *other.gradients), strict=True)
        return (
            torch.equal(self.state_before_backward, other.state_before_backward)
            and torch.equal(self.state_after, other.state_after)
            and all(
                torch.allclose(one, two, rtol=tolerance, atol=tolerance, equal_nan=True)
                for one, two in pairs
            )
        )


def _seen(
    call: Callable[..., Tensor], seed: int, around: Callable[[], AbstractContextManager[Any]]
) -> Seen:
    torch.manual_seed(100)
    x, w = (torch.randn(4, 4).requires_grad_() for _ in range(2))
    torch.manual_seed(seed)
    with around():
        output = call(x, w)
    before = torch.get_rng_state()
    output.square().sum().backward()
    gradients = tuple(torch.zeros(4, 4) if g is None else g for g in (x.grad, w.grad))
    return Seen(output.detach(), gradients, before, torch.get_rng_state())


def _unlike_eager(
    program: Callable[..., Tensor],
    backend: str,
    *,
    around: Callable[[], AbstractContextManager[Any]] = nullcontext,
    **options: Any,
) -> list[int]:
    """The seeds with which the mended program can be told from eager execution."""
    expected = [_seen(program, seed, around) for seed in SEEDS]
    mended = bcmend.compile(program, backend=backend, **options)
    found = [_seen(mended, seed, around) for seed in SEEDS]
    tolerance = 1e-5 if backend == "inductor" else 0.0
    return [
        seed
        for seed, one, other in zip(SEEDS, expected, found, strict=True)
        if not one.is_like(other, tolerance)
    ]


def test_the_seeds_take_both_sides() -> None:
    sides = set()
    for seed in SEEDS:
        torch.manual_seed(seed)
        sides.add(bool(torch.rand([]) < 0.5))
    assert sides == {True, False}


def test_the_comparison_tells_other_draws() -> None:
    one = _seen(_program(dropout), 0, nullcontext)
    assert one.is_like(_seen(_program(dropout), 0, nullcontext), 0.0)
    assert not one.is_like(_seen(_program(dropout, numbers), 1, nullcontext), 0.0)
    assert not one.is_like(_seen(_program(alpha_dropout), 0, nullcontext), 0.0)


@pytest.mark.parametrize(("arm", "backend"), in_turn(TAKEN_OUT, ["eager", "aot_eager"], name_of))
def test_one_graph_with_the_numbers_of_eager(arm: Arm, backend: str) -> None:
    assert _unlike_eager(_program(arm), backend, fullgraph=True) == []


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("arm", [dropout, numbers, causal_attention])
def test_both_arms_draw(arm: Arm, backend: str) -> None:
    assert _unlike_eager(_program(arm, numbers_like_a_tensor), backend, fullgraph=True) == []


@pytest.mark.parametrize("policy", ["where", "cond"])
@pytest.mark.parametrize("arm", [dropout, numbers, causal_attention])
def test_whatever_lowering_the_policy_asks_for(arm: Arm, policy: Any) -> None:
    program = _program(arm)
    given = bcmend.Policy(branch=policy)
    assert _unlike_eager(program, "aot_eager", fullgraph=True, policy=given) == []
    assert {site.lowering for site in bcmend.report(program).sites} == {policy}


@pytest.mark.parametrize("arm", [dropout, causal_attention, sizes_of_the_input])
def test_symbolic_sizes(arm: Arm) -> None:
    assert _unlike_eager(_program(arm), "aot_eager", fullgraph=True, dynamic=True) == []


@pytest.mark.parametrize("arm", [dropout_in_half_precision, numbers])
def test_autocast(arm: Arm) -> None:
    def around() -> AbstractContextManager[Any]:
        return torch.autocast("cpu", torch.bfloat16)

    assert _unlike_eager(_program(arm), "aot_eager", around=around, fullgraph=True) == []


@pytest.mark.slow
@pytest.mark.parametrize(
    "arm", [dropout, dropout_of_a_transposed_tensor, causal_attention, numbers, dropout_in_place]
)
def test_inductor_with_the_numbers_of_eager(arm: Arm) -> None:
    with torch._inductor.config.patch(fallback_random=True):
        assert _unlike_eager(_program(arm), "inductor", fullgraph=True) == []


@pytest.mark.slow
def test_inductor_with_other_strides_than_those_of_the_trace() -> None:
    program = _program(attention_to_what_a_cache_holds)
    with torch._inductor.config.patch(fallback_random=True):
        assert _unlike_eager(program, "inductor", fullgraph=True) == []


def test_inductor_uses_one_mask_forward_and_backward() -> None:
    """With numbers of its own: the gradient is zero just where the output is."""
    mended = bcmend.compile(_program(dropout_alone), backend="inductor", fullgraph=True)
    dropped = 0
    for seed in SEEDS:
        x = torch.ones(4, 4, requires_grad=True)
        torch.manual_seed(seed)
        output = mended(x, torch.ones(4, 4))
        output.sum().backward()
        assert x.grad is not None
        assert torch.equal(x.grad == 0, output == 0)
        dropped += int((output == 0).sum())
    assert dropped > 0


def dropout_alone(x: Tensor, w: Tensor) -> Tensor:
    return functional.dropout(x * w, 0.5, training=True)


# --- refusals ------------------------------------------------------------------------------------


def draws_from_data(x: Tensor, w: Tensor) -> Tensor:
    return torch.bernoulli(x.detach().sigmoid()) * (x @ w)


def a_number_of_draws_that_depends_on_data(x: Tensor, w: Tensor) -> Tensor:
    return functional.rrelu(x @ w, training=True)


def a_checkpoint(x: Tensor, w: Tensor) -> Tensor:
    result: Tensor = checkpoint(dropout, x, w, use_reentrant=False)  # type: ignore[no-untyped-call]
    return result


def autocast_within(x: Tensor, w: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        y = functional.dropout(x @ w, 0.3, training=True)
    return y.float()


def a_branch_within(x: Tensor, w: Tensor) -> Tensor:
    return dropout(x, w) if (x @ w).sum() > 0 else numbers(x, w)


REFUSED = {
    draws_from_data: "bernoulli from data",
    a_number_of_draws_that_depends_on_data: "rrelu_with_noise from data",
    a_checkpoint: "dropout",
    autocast_within: "bernoulli_ in an arm that enters autocast",
}


@pytest.mark.parametrize("arm", REFUSED)
def test_what_cannot_be_taken_out_is_left_alone(arm: Arm) -> None:
    program = _program(arm, chance_of=_chance_of)
    mended = bcmend.compile(program, backend="eager")
    for seed in SEEDS:
        _seen(mended, seed, nullcontext)
    (site,) = bcmend.report(program).sites
    assert (site.status, site.refusal) == ("refused", "random-under-gradients")
    assert site.detail == REFUSED[arm]


def _chance_of(w: Tensor) -> Tensor:
    return torch.rand([]) + 0 * w.detach().sum()


@pytest.mark.parametrize("chance_of", [None, _chance_of])
@pytest.mark.parametrize("arm", [each for each in REFUSED if each is not a_checkpoint])
def test_what_is_left_alone_equals_eager(
    arm: Arm, chance_of: Callable[[Tensor], Tensor] | None
) -> None:
    assert _unlike_eager(_program(arm, chance_of=chance_of), "eager") == []


@pytest.mark.parametrize("arm", REFUSED)
def test_the_condition_of_what_is_left_alone_is_drawn_before(arm: Arm) -> None:
    program = _program(arm)
    mended = bcmend.compile(program, backend="eager")
    for seed in SEEDS:
        _seen(mended, seed, nullcontext)
    (site,) = bcmend.report(program).sites
    assert (site.status, site.lowering) == ("mended", "ahead")


def test_a_branch_with_draws_within_an_arm_with_draws() -> None:
    assert _unlike_eager(_program(a_branch_within), "eager") == []


def test_a_checkpoint_around_a_branch_with_draws() -> None:
    def program(x: Tensor, w: Tensor) -> Tensor:
        def inside(x: Tensor, w: Tensor) -> Tensor:
            return dropout(x, w) if x.sum() > 0 else x * 1

        result: Tensor = checkpoint(inside, x, w, use_reentrant=False)  # type: ignore[no-untyped-call]
        return result

    mended = bcmend.compile(program, backend="eager")
    _seen(mended, 0, nullcontext)
    assert "random-under-gradients" in {site.refusal for site in bcmend.report(program).sites}


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_draw_that_nobody_reads_is_made(backend: str) -> None:
    """Later numbers are those of eager execution, since the state of the generator is compared."""

    def ask(x: Tensor, unread: Tensor) -> None:
        if x.sum() > 0:
            pass

    def program(x: Tensor) -> Tensor:
        ask(x, functional.dropout(x, 0.5))
        return x + 1

    assert_equivalent(
        lambda: program,
        lambda: [call(torch.full((3,), sign)) for sign in (1.0, -1.0)],
        backend=backend,
    )


def _drawn_in_an_arm(x: Tensor, w: Tensor) -> Tensor:
    if not torch.equal(x, x):
        torch.rand(3)
    return w + 1


def _drawn_beside_a_result(x: Tensor, w: Tensor) -> Tensor:
    if not torch.equal(x, x):
        torch.rand(3)
        w = w * 2
    return w + 1


def _drawn_in_the_turns_of_a_loop(x: Tensor, w: Tensor) -> Tensor:
    for row in x:
        if row > 0:
            continue
        if row.abs() > 1:
            functional.dropout(w, 0.5)
    return w + 1


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "program", [_drawn_in_an_arm, _drawn_beside_a_result, _drawn_in_the_turns_of_a_loop]
)
def test_a_draw_in_an_arm_of_which_nothing_comes_is_made(
    program: Callable[[Tensor, Tensor], Tensor], *, training: bool
) -> None:
    def inputs() -> list[Any]:
        values = ([float("nan"), -3.0], [-2.0, 3.0], [-2.0, -4.0])
        return [call(torch.tensor(each), torch.ones(2)) for each in values]

    assert_equivalent(lambda: program, inputs, backend="aot_eager", training=training, graphs=None)


@pytest.mark.parametrize("is_strict", [True, False])
def test_a_fault_of_our_own_is_no_reason_to_leave_a_draw(
    is_strict: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    graph, mode = torch.fx.Graph(), FakeTensorMode(shape_env=ShapeEnv())
    x = graph.placeholder("x")
    with mode:
        x.meta["example_value"] = torch.ones(3)
    node = graph.call_function(functional.dropout, (x,))
    assert [each.op for each in hoist_random.decomposed(node, mode, "dropout").graph.nodes]
    monkeypatch.setattr(strict, "IS_ON", is_strict)
    monkeypatch.setattr(hoist_random, "stand_in", own_faults.fault)
    with pytest.raises(strict.InternalError if is_strict else Refusal):
        hoist_random.decomposed(node, mode, "dropout")


def test_an_operation_that_fails_is_no_fault_of_our_own(monkeypatch: pytest.MonkeyPatch) -> None:
    graph, mode = torch.fx.Graph(), FakeTensorMode(shape_env=ShapeEnv())
    x = graph.placeholder("x")
    with mode:
        x.meta["example_value"] = torch.ones(3)
    monkeypatch.setattr(strict, "IS_ON", True)
    for target in (torch.mm, functional.bilinear):
        with pytest.raises(Refusal, match="the name"):
            hoist_random.decomposed(graph.call_function(target, (x, x)), mode, "the name")


def test_a_draw_in_a_transform_is_refused_and_no_fault_of_our_own() -> None:
    def loss(w: Tensor, x: Tensor) -> Tensor:
        y = x @ w
        if x.sum() > 0:
            y = functional.dropout(y, 0.5, training=True) * 2
        return y.sum()

    def program(w: Tensor, x: Tensor) -> Any:
        return torch.func.grad(loss)(w, x)

    bcmend.patch(program)
    with pytest.raises(torch._dynamo.exc.Unsupported):  # and not an error of bcmend's own
        torch.compile(program, backend="eager", fullgraph=True)(torch.ones(3, 3), torch.ones(2, 3))
    refusals = {each.refusal for each in bcmend.report(program).sites}
    assert "random-under-gradients" in refusals
