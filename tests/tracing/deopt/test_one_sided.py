"""Branches of which a graph has one side: calls that take the other are made in plain Python."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import bcmend
from bcmend.reports.outcomes import SiteRecord
from tests.equivalence import Call, Comparison, assert_equivalent, call, fresh

EXIT = bcmend.Policy(one_sided="exit")
ONE_SIDED = "one side"

THEN, ELSE = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, -2.0, -3.0])
LOW = torch.tensor([-1.0, -9.0, 2.0])

#: Calls that take both sides, in either order, and so that a graph keeps its side or is turned.
ORDERS = {
    "else first": [ELSE, THEN, ELSE, LOW, THEN],
    "then first": [THEN, ELSE, LOW, THEN, THEN],
    "then twice": [THEN, THEN, ELSE, THEN, LOW, ELSE, ELSE],
    "mostly then": [ELSE] + [THEN] * 15 + [ELSE, THEN, LOW, THEN],
}

LOG = logging.getLogger(__name__)
Make = Callable[[], Any]


@pytest.fixture(autouse=True)
def _unpatched() -> Iterator[None]:
    yield
    bcmend.unpatch()
    torch._dynamo.reset()


def _stop() -> None:
    torch._dynamo.graph_break()


def _with_exits(make: Make, options: Mapping[str, Any]) -> tuple[Any, Callable[..., Any]]:
    program = bcmend.patch(make(), policy=EXIT)
    return program, torch.compile(program, **options)


def _compare(make: Make, values: Sequence[Tensor], **options: Any) -> Comparison:
    def calls() -> list[Call]:
        return [call(each.clone()) for each in values]

    options = {"graphs": None, "recompiles": None, **options}
    return assert_equivalent(make, calls, way=_with_exits, **options)


def _sides(found: Comparison) -> list[SiteRecord]:
    assert found.report is not None
    return [each for each in found.report.sites if each.lowering == ONE_SIDED]


class _Net(nn.Module):
    """Two branches, one behind the other, and all that a call shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)
        self.register_buffer("total", torch.zeros(3))
        self.count = 0
        self.seen: dict[str, Tensor] = {"last": torch.zeros(3)}

    def forward(self, x: Tensor) -> Tensor:
        h = self.layer(x) + torch.rand(3)
        print("begins", h)
        if x.sum() > 0:
            self.count += 1
            LOG.warning("first %s", self.count)
            _stop()
            h = h * torch.rand(3)
            self.seen["last"] = h.detach()
        self.total += h.detach()
        if x.min() < -5:
            print("second", h)
            _stop()
            h = h.sin()
        print("ends", self.seen["last"])
        return h + torch.rand(3)


def _other_forms() -> Any:
    def program(x: Tensor) -> Any:
        y = x * 2
        if x.sum() > 0:
            return {"then": y, "items": [1, y]}
        if x.min() < -5:
            _stop()
            return x, None
        return y - 1

    return program


def _raising() -> Any:
    def program(x: Tensor) -> Tensor:
        print("before")
        if x.sum() > 0:
            _stop()
            print("raises")
            raise ValueError(f"positive: {x.sum().item()}")
        return x * 2

    return program


def _caught() -> Any:
    def program(x: Tensor) -> Tensor:
        try:
            if x.sum() > 0:
                _stop()
                raise KeyError("positive")
            y = x - 1
        except KeyError as error:
            print("caught", error)
            y = x * 5
        return y

    return program


def _in_an_arm() -> Any:
    def program(x: Tensor) -> Tensor:
        if x[0] > 0:
            y = x * 2
            if x[1] > 1:
                _stop()
                print("inner", y)
        else:
            y = x - 1
        return y

    return program


class _InACond(nn.Module):
    """An arm with a side exit that is expensive, beside one that may fail."""

    def __init__(self) -> None:
        super().__init__()
        self.wide, self.deep, self.back = nn.Linear(3, 64), nn.Linear(64, 64), nn.Linear(64, 3)

    def forward(self, x: Tensor) -> Tensor:
        if x[0] > 0:
            h = self.deep(self.deep(self.wide(x)).relu()).relu()
            if x[1] > 1.5:
                _stop()
                print("inner", h.sum())
                h = h * 2
            y = self.back(h)
        else:
            y = torch.linalg.inv(torch.eye(3) + torch.diag(x)).sum(0)
        result: Tensor = y
        return result


def _in_a_loop() -> Any:
    def program(x: Tensor) -> Tensor:
        rows = []
        for each in x:
            if each > 2:
                _stop()
                print("large", each.item())
                rows.append(each * 2)
            else:
                rows.append(each - 1)
        return torch.stack(rows)

    return program


def _changing_its_argument() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x.detach()
        y += 1
        if y.sum() > 0:
            _stop()
            y *= 2
        return x * 2 + y

    return program


def _fails_behind() -> Any:
    """What is behind the branch fails, and has no end, for values that take the other side."""

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            _stop()
            return x * 3
        y = torch.arange(20.0)[(-x.sum()).long()]
        factor = torch.linalg.cholesky(torch.diag(-x.sum().expand(3)))
        while x.sum() > -100:
            x = x * 2
        return x + y + factor.sum()

    return program


PROGRAMS = [
    *(_Net, _other_forms, _raising, _caught, _in_an_arm, _in_a_loop, _changing_its_argument),
    *(_fails_behind, _InACond),
]


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", PROGRAMS)
def test_calls_give_what_eager_execution_gives(make: Make, training: bool, order: str) -> None:
    found = _compare(fresh(make), ORDERS[order], training=training)
    # A check has its side exit by default, and conditions may be computed in front of the graph.
    assert _sides(found) or make in (_raising, _fails_behind)


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize("make", PROGRAMS)
def test_likewise_under_autograd(make: Make, training: bool) -> None:
    _compare(fresh(make), ORDERS["then twice"], training=training, backend="aot_eager")


@pytest.mark.slow
def test_likewise_with_inductor() -> None:
    found = _compare(_in_an_arm, ORDERS["then first"], training=True, backend="inductor")
    assert _sides(found)


def test_two_in_a_row_are_both_left() -> None:
    found = _compare(_Net, ORDERS["else first"], graphs=1, recompiles=0)
    assert len(_sides(found)) == 2


def test_an_arm_alone_is_left_where_that_is_enough() -> None:
    found = _compare(_in_an_arm, ORDERS["else first"], graphs=1, recompiles=0)
    (side,) = _sides(found)
    assert found.report is not None
    assert [each.status for each in found.report.sites if each.kind == "branch"] == ["mended"] * 2
    assert "false" in side.detail


def _leaf_or_new() -> Any:
    def program(x: Tensor) -> Tensor:
        with torch.no_grad():
            return x if x.sum() > 0 else x * 2

    return program


def _leaving_the_graph() -> Any:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            _stop()
            x = x * 2
        return x

    return program


def _many_exits() -> Any:
    def program(x: Tensor) -> Tensor:
        for step in (1.5,) * 30:
            x = x * step
            if x.sum() > 1e3:
                break
        return x

    return program


@pytest.mark.parametrize(
    ("make", "slug", "training"),
    [
        (_leaf_or_new, "arms-differ", True),
        (_leaving_the_graph, "arm-untraceable", False),
        (_many_exits, "too-deep", False),
    ],
)
def test_what_is_refused_by_default_is_one_graph(make: Make, slug: str, training: bool) -> None:
    program = fresh(make)()
    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    x = ELSE.clone().requires_grad_(training)
    with pytest.raises(torch._dynamo.exc.TorchDynamoException) as caught:
        compiled(x)
    refused = {each.refusal for each in bcmend.report(program).sites}
    assert slug in refused
    assert 'Policy(one_sided="exit")' in "\n".join(caught.value.__notes__)
    bcmend.unpatch()
    found = _compare(fresh(make), [ELSE * 9, THEN, ELSE * 9], training=training, graphs=1)
    assert _sides(found)


def _jump_of_a_loop() -> Any:
    def program(x: Tensor) -> Tensor:
        while x.sum() < 50:
            _stop()
            x = x + 1
        return x

    return program


def _loop_of_two_forms() -> Any:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        while x.sum() < 9:
            y.unsqueeze_(0)
            x = x + 1
        return y + 1

    return program


@pytest.mark.parametrize("make", [_jump_of_a_loop, _loop_of_two_forms])
@pytest.mark.parametrize("values", [[THEN * 9, ELSE, THEN * 9], [ELSE, THEN, ELSE, THEN * 9] * 2])
def test_the_jump_of_a_loop_that_may_have_no_end(make: Make, values: list[Tensor]) -> None:
    found = _compare(fresh(make), values)
    # The tests before and behind the loop are two; one of them has to leave the loop.
    assert any("is false;" in each.detail for each in _sides(found))


def _compiled(program: Any, **options: Any) -> Any:
    bcmend.patch(program, policy=EXIT)
    return torch.compile(program, backend="eager", **options)


class _Counting:
    """A back end, and how often it was called and its graphs were run."""

    def __init__(self) -> None:
        self.graphs = self.runs = 0

    def __call__(self, graph: Any, inputs: object) -> Callable[..., Any]:
        self.graphs += 1

        def run(*arguments: Any) -> Any:
            self.runs += 1
            return graph.forward(*arguments)

        return run


def _side(program: Any) -> str:
    (site,) = (each for each in bcmend.report(program).sites if each.lowering == ONE_SIDED)
    return site.detail


def _both_ways() -> Any:
    """Either side can be traced, and they leave a tensor in two forms."""

    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x.sum() > 0:
            y.unsqueeze_(0)
        return y + 1

    return program


def _run(values: Sequence[Tensor]) -> tuple[Any, _Counting]:
    program, backend = fresh(_both_ways)(), _Counting()
    bcmend.patch(program, policy=EXIT)
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    plain = _both_ways()
    for each in values:
        assert torch.equal(compiled(each.clone()), plain(each.clone()))
    return program, backend


def test_the_side_stays_where_few_calls_leave() -> None:
    program, backend = _run([THEN, ELSE, *[THEN, ELSE] * 8])
    assert backend.graphs == 1
    assert _side(program) == (
        "the graph has the side where the condition is false; calls that take the other are made "
        "in plain Python"
    )


def test_the_side_is_turned_once_both_of_the_first_calls_leave() -> None:
    program, backend = _run([THEN, THEN, THEN, ELSE, ELSE, ELSE, *[ELSE] * 20, THEN])
    assert backend.graphs == 2, "and not turned back, though most leave later on"
    assert _side(program) == (
        "the graph has the side where the condition is true, since most calls take it; calls that "
        "take the other are made in plain Python"
    )


def test_the_side_is_turned_once_most_of_sixteen_calls_have_left() -> None:
    program, backend = _run([ELSE, *[THEN] * 8, *[ELSE] * 7, *[THEN] * 30])
    assert backend.graphs == 1, "eight are not most"
    bcmend.unpatch()
    program, backend = _run([ELSE, *[THEN] * 9, *[ELSE] * 6, THEN, THEN, ELSE])
    assert backend.graphs == 2
    assert "true" in _side(program)


def test_a_side_that_cannot_be_traced_is_given_back() -> None:
    program, backend = fresh(_leaving_the_graph)(), _Counting()
    bcmend.patch(program, policy=EXIT)
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    for each in [THEN, THEN, THEN, ELSE, THEN, ELSE]:
        assert torch.equal(compiled(each), each * 2 if each is THEN else each)
    assert backend.graphs == 2, "the other side never was a graph"
    assert "false" in _side(program)


def test_no_side_is_turned_where_a_backward_pass_makes_calls_again() -> None:
    program, backend = fresh(_both_ways)(), _Counting()
    bcmend.patch(program, policy=EXIT)
    compiled = torch.compile(program, backend=backend, fullgraph=True)
    for each in [THEN] * 3 + [ELSE] + [THEN] * 20:
        x = each.clone().requires_grad_()
        checkpoint(compiled, x, use_reentrant=False).sum().backward()
        other = each.clone().requires_grad_()
        _both_ways()(other).sum().backward()
        assert torch.equal(x.grad, other.grad)
    assert backend.graphs == 1


def test_nothing_changes_between_forward_and_backward() -> None:
    results = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        net = _Net()
        called = _compiled(net, fullgraph=True) if is_compiled else net
        losses = [called(each) for each in (ELSE, THEN, THEN, ELSE, THEN)]
        for each in reversed(losses):
            each.sum().backward()
        results.append([each.grad for each in net.parameters()] + [net.total])
    for one, other in zip(*results, strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("order", ORDERS)
def test_steps_of_an_optimizer(order: str, backend: str) -> None:
    weights = []
    for is_compiled in (False, True):
        torch.manual_seed(0)
        net: Any = _Net()
        called = net
        if is_compiled:
            bcmend.patch(net, policy=EXIT)
            called = torch.compile(net, backend=backend, fullgraph=True)
        optimizer = torch.optim.AdamW(net.parameters(), lr=0.1)
        for each in ORDERS[order]:
            optimizer.zero_grad()
            called(each).square().sum().backward()
            optimizer.step()
        weights.append([each.detach().clone() for each in (*net.parameters(), net.total)])
        weights[-1].append(torch.rand(3))
    for one, other in zip(*weights, strict=True):
        assert torch.equal(one, other)


def test_breaks_stay_where_one_graph_is_not_asked_for() -> None:
    found = _compare(_leaving_the_graph, [ELSE, THEN, ELSE], fullgraph=False)
    assert not _sides(found) and found.graphs > 1


def test_a_caller_that_is_not_patched() -> None:
    inner = bcmend.patch(fresh(_leaving_the_graph)(), policy=EXIT)

    def caller(x: Tensor) -> Tensor:
        result: Tensor = inner(x) + 1
        return result

    compiled = torch.compile(caller, backend="eager", fullgraph=True)
    for each in [THEN, ELSE, THEN, THEN]:
        assert torch.equal(compiled(each), (each * 2 if each is THEN else each) + 1)


#: Too large to be kept in case that a side is left.
_LARGE = torch.zeros(2**20)


def _changing_much() -> Any:
    def program(x: Tensor) -> Tensor:
        _LARGE.add_(1)
        if x.sum() > 0:
            _stop()
            x = x * 2
        return x

    return program


def _in_a_checkpoint() -> Any:
    def inner(x: Tensor) -> Tensor:
        if x.sum() > 0:
            _stop()
            x = x * 2
        return x * 3

    def program(x: Tensor) -> Any:
        return checkpoint(inner, x * 2, use_reentrant=False)

    return program


@pytest.mark.parametrize("make", [_changing_much, _in_a_checkpoint])
def test_where_a_graph_cannot_be_thrown_away_the_branch_is_refused(make: Make) -> None:
    compiled = _compiled(fresh(make)(), fullgraph=True)
    before = _LARGE.clone()
    with pytest.raises(torch._dynamo.exc.TorchDynamoException):
        compiled(ELSE)
    assert torch.equal(_LARGE, before)
    bcmend.unpatch()
    _compare(fresh(make), [ELSE, THEN, ELSE], fullgraph=False)


def test_what_the_trace_assumed_is_told() -> None:
    program = fresh(_leaving_the_graph)()
    _compiled(program, fullgraph=True)(ELSE)
    assert "it has one, and is left by a side exit" in str(bcmend.why(program))
    assert "calls that take the other are made in plain Python" in str(bcmend.report(program))
