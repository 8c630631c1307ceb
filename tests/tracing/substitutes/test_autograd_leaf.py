"""``Variable``, ``requires_grad_`` and what becomes a leaf, called directly and in programs."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, fx

from bcmend.dynamo import compat
from bcmend.dynamo.values import constant
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.substitutes import autograd_leaf
from tests.equivalence import Call, assert_equivalent, call
from tests.tracing.in_trace import during_trace, substituted, trace

X = torch.tensor([1.0, 2.0])


class _Subclass(torch.Tensor):
    pass


def _variable(tx: Any, *args: Any, **kwargs: Any) -> Any:
    return autograd_leaf._variable(substituted(tx, "torch.autograd.Variable", *args, **kwargs))


def _require(tx: Any, owner: Any, *args: Any, **kwargs: Any) -> Any:
    name = "torch.Tensor.requires_grad_"
    return autograd_leaf._requires_grad(substituted(tx, name, *args, owner=owner, **kwargs))


def _detail(answer: Any, *given: Any, **named: Any) -> str:
    with pytest.raises(Refusal) as caught:
        answer(*given, **named)
    assert caught.value.slug == "no-equal-substitute"
    return caught.value.detail


def test_a_variable_is_a_detached_tensor() -> None:
    given = X * torch.ones(2, requires_grad=True)
    found = trace(lambda tx, x: _variable(tx, x, volatile=constant(0)), given)
    assert torch.equal(found, X) and not found.requires_grad


@pytest.mark.parametrize(
    ("args", "named", "detail"),
    [
        ((), {}, "not of a plain tensor"),
        ((constant(3),), {}, "not of a plain tensor"),
        (("x",), {"volatile": constant(True)}, "it warns"),
        (("x",), {"name": constant(True)}, "other arguments"),
        (("x", constant(False), constant(False), constant(False)), {}, "other arguments"),
        (("x",), {"requires_grad": constant("yes")}, "a flag that is no constant"),
    ],
)
def test_variables_that_are_refused(args: Any, named: Any, detail: str) -> None:
    def body(tx: Any, x: Any) -> str:
        return _detail(_variable, tx, *(x if each == "x" else each for each in args), **named)

    assert detail in during_trace(body, X)


def test_a_variable_of_integers_requires_no_gradients() -> None:
    def body(tx: Any, x: Any) -> str:
        return _detail(_variable, tx, x, requires_grad=constant(True))

    assert "no gradients" in during_trace(body, torch.tensor([1]))


@pytest.mark.parametrize("wanted", [True, False])
def test_requires_grad_as_it_is_already_is_nothing(wanted: bool) -> None:
    def body(tx: Any, x: Any) -> Any:
        return _require(tx, x, constant(wanted)) is x

    assert during_trace(body, X.clone().requires_grad_(wanted))


def test_requires_grad_of_an_argument_that_was_changed_is_refused() -> None:
    def body(tx: Any, x: Any) -> str:
        x.call_method(tx, "add_", [constant(1)], {})
        return _detail(_require, tx, x)

    assert "from outside the call" in during_trace(body, X)


def test_requires_grad_of_an_argument_cannot_be_taken_back() -> None:
    def body(tx: Any, x: Any) -> str:
        return _detail(_require, tx, x, constant(False))

    assert "from outside the call" in during_trace(body, X.clone().requires_grad_())


def test_requires_grad_of_an_argument_is_set_in_front_of_the_graph() -> None:
    given = X.clone()
    assert during_trace(lambda tx, x: _require(tx, x).requires_grad, given)
    assert given.requires_grad


def test_requires_grad_of_a_computed_tensor_cannot_be_taken_back() -> None:
    def body(tx: Any, x: Any) -> str:
        computed = x.call_method(tx, "add", [constant(1)], {})
        return _detail(_require, tx, computed, constant(False))

    assert "it fails" in during_trace(body, X.clone().requires_grad_())


def test_requires_grad_makes_a_leaf_of_a_computed_tensor() -> None:
    def body(tx: Any, x: Any) -> Any:
        computed = x.call_method(tx, "add", [constant(1)], {})
        leaf = _require(tx, computed)
        return leaf is computed, leaf.requires_grad

    assert during_trace(body, X) == (True, True)


@pytest.mark.parametrize(
    ("tensor", "is_plain"),
    [(X, True), (torch.nn.Parameter(X), True), (_Subclass(X), False)],
    ids=["tensor", "parameter", "subclass"],
)
def test_what_is_plain(tensor: Any, is_plain: bool) -> None:
    def body(tx: Any, x: Any) -> Any:
        return autograd_leaf.is_plain(x), autograd_leaf.is_plain(constant(1))

    assert during_trace(body, tensor) == (is_plain, False)


def test_nodes_that_require_gradients_without_a_leaf() -> None:
    graph = fx.Graph()
    examples = {"leaf": True, "weight": True, "plain": False}
    nodes = {name: graph.placeholder(name) for name in examples}
    calls = {
        "of leaf": graph.call_function(torch.neg, (nodes["leaf"],)),
        "of both": graph.call_function(torch.add, (nodes["leaf"], nodes["weight"])),
        "of plain": graph.call_function(torch.neg, (nodes["plain"],)),
        "without example": graph.call_function(torch.neg, (nodes["weight"],)),
    }
    for name, node in {**nodes, **calls}.items():
        node.meta["example_value"] = torch.ones(1, requires_grad=name not in ("plain", "of plain"))
    calls["without example"].meta.clear()
    found = autograd_leaf._require_by_themselves(graph.nodes, {nodes["leaf"]})
    assert found == {nodes["weight"], calls["of both"]}


def test_a_class_is_variable_in_a_tuple_too() -> None:
    def body(tx: Any, x: Any) -> Any:
        classes = (torch.autograd.Variable, torch.Tensor)
        given = [compat.VariableTracker.build(tx, each).realize() for each in classes]
        calls: list[Any] = []
        for kinds in (given[0], given[1], compat.TupleVariable(given)):
            autograd_leaf._is_instance(lambda *each: calls.append(each), None, tx, x, kinds)
        named = [autograd_leaf._kinds_in(each[-1]) for each in calls]
        return [[kind.value for kind in kinds] for kinds in named]

    tensor = torch.Tensor
    assert during_trace(body, X) == [[tensor], [tensor], [tensor, tensor]]


class _Kept(torch.nn.Module):
    """Keeps a tensor that is told to require gradients, and then that it does not."""

    def __init__(self) -> None:
        super().__init__()
        self.kept: Tensor | None = None


class _ToldOtherwise(_Kept):
    def forward(self, x: Tensor) -> Tensor:
        self.kept = x.detach().clone().requires_grad_()
        self.kept.requires_grad_(False)
        return self.kept * x if x.sum() > 0 else self.kept + x


class _StoredOtherwise(_Kept):
    def forward(self, x: Tensor) -> Tensor:
        self.kept = told = x.detach().clone().requires_grad_()
        x = x + 1 if x.sum() > 0 else x - 1
        self.kept.requires_grad = False
        print(told.requires_grad)
        return x


class _ToldOnOneSide(_Kept):
    def forward(self, x: Tensor) -> Tensor:
        self.kept = x.detach().clone().requires_grad_()
        if x.sum() > 0:
            self.kept.requires_grad_(False)
        print(self.kept.requires_grad)
        return x + 1


class _ToldInOneArm(_Kept):
    def forward(self, x: Tensor) -> tuple[Tensor, bool]:
        h = x.detach() * 1
        if x.sum() > 0:
            h.requires_grad_()
        y = (h * 2).sum()
        return y, y.requires_grad


def _two_signs() -> list[Call]:
    return [call(torch.tensor([1.0, x])) for x in (3.0, -5.0, 2.0)]


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", [_ToldOtherwise, _StoredOtherwise])
def test_a_leaf_that_is_told_otherwise_is_none(make: Any, training: bool) -> None:
    assert_equivalent(make, _two_signs, backend="aot_eager", training=training, graphs=None)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("make", [_ToldOnOneSide, _ToldInOneArm])
def test_what_one_side_tells_breaks_the_graph(make: Any, training: bool) -> None:
    options: Any = {"graphs": None, "recompiles": None, "fullgraph": False}
    assert_equivalent(make, _two_signs, backend="aot_eager", training=training, **options)
