"""What only output in an arm reads is computed if the arm is taken, and then of the moment."""

from __future__ import annotations

import re
from collections import OrderedDict, namedtuple
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.lowering import lazy_output
from corpus.patterns.pattern import signs
from tests.equivalence import Call, assert_equivalent, call

Program = Callable[..., Any]
Pair = namedtuple("Pair", "first second")


class Named(OrderedDict[str, Tensor]):
    """Shows its name."""


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _operations(program: Program, *arguments: Tensor) -> list[str]:
    """Return the names of what the graph of a program computes."""
    found: list[str] = []

    def note(module: torch.fx.GraphModule, inputs: list[Any]) -> Callable[..., Any]:
        nodes = [node for node in module.graph.nodes if node.op.startswith("call")]
        found.extend(getattr(node.target, "__name__", str(node.target)) for node in nodes)
        return module.forward

    bcmend.compile(program, backend=note, fullgraph=True)(*arguments)
    return found


def _statistics() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            size = y.abs()
            print("large", size.max(), size.mean().item(), f"{size.std():.3f}", size)
        return y

    return program


def _results_and_output() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            z = y.clamp(max=1.0)
            print("cut", (y - z).abs().max(), z)
            y = z
        return y + 1

    return program


def _both_sides() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x.exp()
        if x.sum() > 0:
            print([y.max(), {"least": y.argmin()}], (y.min().item(), bool(y[0] > 2)))
        else:
            print("else", y.tolist(), y.sum().item() + 1, int(y.argmax()))
        return y

    return program


def _named_tuples() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            pair = Pair(y + 1, y.sort())
            print(pair, pair.second.indices, y.max(0))
        return y

    return program


def _changed_afterwards() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            print("before", y.mean(), y.abs().max().item())
        y.add_(10)
        return y

    return program


def _under_autocast() -> Program:
    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            if x.sum() > 0:
                print("product", torch.outer(x, x) @ x)
            return x * 2

    return program


def _changes_a_copy() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            y = x.clone()
            y[0] = 7
            y.mul_(2)
            print("copy", y, y.max().item())
        return x + 1

    return program


def _changes_a_copy_by_a_function() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() < 0:
            y = x.clone()
            torch.nn.functional.leaky_relu(y, 0.5, True)
            print("copy", y, y.min().item())
        return x + 1

    return program


def _transforms() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x
        if x.sum() > 0:
            y = torch.vmap(lambda each: each.sin() * 2)(x)
            print("by vmap", torch.vmap(lambda each: each + 1)(y), (y + 1).max())
            print("by grad", torch.func.grad(lambda each: (each**2).sum())(x))
        return y + 1

    return program


def _arrays() -> Program:
    def program(x: Tensor) -> Any:
        array = x.numpy() * 2
        print("before", array)
        if x.sum() > 0:
            print("in", array.mean(), array, [array.max()])
            other = array + 1
        else:
            other = array - 1
        array += 1
        return other, array, type(other).__name__

    return program


def _sets() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            print({1}, [{2, 3}], frozenset([4]))
        return x + 1

    return program


def _dictionaries_of_a_class() -> Program:
    def program(x: Tensor) -> Tensor:
        print(Named(total=x.sum()), OrderedDict(least=x.min()))
        return x

    return program


def _fails_in_the_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 0:
            print("ratio", 1 / int(y.min().item() - 2))
        return y

    return program


def _draws_in_the_arm() -> Program:
    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            print("noise", torch.rand(2), (x * torch.rand_like(x)).max())
        return x + torch.rand(3)

    return program


def _selections() -> Program:
    def program(x: Tensor) -> Tensor:
        high = x > 0
        if high.any():
            places = torch.where(high)[0]
            print(x[high].tolist(), high.nonzero().tolist(), places.shape[0], len(places))
            print(f"{int(high.sum())} of {x[high].mean():.2f}, first {x[high][0]}")
            x = x.clamp(max=1)
        if (x < 0).any():
            low = x[x < 0]
            print(low.numel(), low.min().item(), torch.masked_select(x, x < 0), low.unique())
            low.zero_()
            print(low)
        return x * 2

    return program


PROGRAMS = (
    _selections,
    _statistics,
    _results_and_output,
    _both_sides,
    _named_tuples,
    _changed_afterwards,
    _under_autocast,
    _changes_a_copy,
    _changes_a_copy_by_a_function,
    _transforms,
    _arrays,
    _sets,
    _dictionaries_of_a_class,
    _fails_in_the_arm,
    _draws_in_the_arm,
)


@pytest.mark.parametrize("make", PROGRAMS, ids=lambda each: each.__name__[1:])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_output_shows_the_moment(make: Program, backend: str) -> None:
    assert_equivalent(make, signs, backend=backend, recompiles=None)


@pytest.mark.parametrize(
    "make", [_statistics, _results_and_output, _both_sides], ids=lambda each: each.__name__[1:]
)
def test_histories_are_those_of_eager_execution(make: Program) -> None:
    assert_equivalent(make, signs, backend="aot_eager", training=True, zero_gradients=True)


def test_gradients_inside_of_an_arm_are_those_of_eager_execution() -> None:
    def make() -> Program:
        def program(x: Tensor) -> Tensor:
            if x.sum() > 0:
                slope = torch.func.grad(lambda each: (each**2).sum())(x)
                print("slope", slope)
                x = x - slope
            return x

        return program

    assert_equivalent(
        make,
        signs,
        backend="aot_eager",
        training=True,
        fullgraph=False,
        graphs=None,
        recompiles=None,
    )


def test_sizes_are_shown_where_they_are_dynamic() -> None:
    def make() -> Program:
        def program(x: Tensor) -> Tensor:
            y = x.cumsum(0)
            if y.sum() > 0:
                print(y.shape, y[1:].size(), f"{y.shape}", x.size())
                y = y * 2
            else:
                print("else", y.view(-1, 1).shape)
            return y

        return program

    def sizes() -> list[Call]:
        return [call(torch.full((size,), value)) for size, value in ((3, 1.0), (5, 1.0), (4, -1.0))]

    assert_equivalent(make, sizes, graphs=None, recompiles=None)


def test_an_arm_that_is_not_taken_is_not_computed() -> None:
    x = torch.tensor([-1.0, 2.0, -3.0])
    assert _operations(_statistics(), x) == ["mul", "sum", "gt"]


def test_results_are_computed_without_what_is_only_shown() -> None:
    found = _operations(_results_and_output(), torch.tensor([1.0, 2.0, 3.0]))
    assert "clamp" in found and "where" in found
    assert not {"sub", "abs", "max"} & set(found)


@pytest.mark.parametrize(
    "make", [_changed_afterwards, _under_autocast], ids=lambda each: each.__name__[1:]
)
def test_what_is_not_there_later_is_computed_in_the_graph(make: Program) -> None:
    found = _operations(make(), torch.tensor([1.0, 2.0, 3.0]))
    assert {"mean", "cond"} & set(found)


def test_a_trace_keeps_so_much_and_no_more(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        y = x * 2
        if x[0] > 0:
            print("first", y.mean())
        z = y * 2
        if x[1] > 0:
            print("second", z.mean())
        if x[2] > 0:
            print("third", y.std())
        return z

    monkeypatch.setattr(lazy_output, "STORED_AT_MOST", 12)  # bytes: of one vector
    x = torch.tensor([1.0, 2.0, 3.0])
    found = _operations(program, x)
    assert found.count("mean") == 1 and "std" not in found
    assert_equivalent(lambda: program, signs, recompiles=None)


def test_arguments_of_the_call_are_kept_anyway(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: Tensor) -> Tensor:
        if x[0] > 0:
            print(x.mean())
        return x * 2

    monkeypatch.setattr(lazy_output, "STORED_AT_MOST", 0)
    assert "mean" not in _operations(program, torch.tensor([1.0, 2.0, 3.0]))


def test_the_report_tells_that_nothing_is_merged() -> None:
    program = _statistics()
    _operations(program, torch.tensor([1.0, 2.0, 3.0]))
    (branch,) = (site for site in bcmend.report(program).sites if site.kind == "branch")
    assert branch.lowering is not None and branch.lowering.startswith("nothing to merge")
    assert re.search("computed.*taken", branch.detail or "")


@pytest.mark.parametrize("branch", ["where", "cond"])
def test_a_policy_for_branches_holds(branch: str, capsys: pytest.CaptureFixture[str]) -> None:
    program = bcmend.patch(_statistics(), policy=bcmend.Policy(branch=branch))
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    compiled(torch.tensor([1.0, 2.0, 3.0]))
    (site,) = (each for each in bcmend.report(program).sites if each.kind == "branch")
    assert site.lowering == f"{branch} with effects"
    assert capsys.readouterr().out.startswith("large tensor(6.) 4.0 2.000")
