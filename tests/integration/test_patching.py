"""What patching and unpatching do to functions, classes and the modules that share them."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from types import CodeType
from typing import Any

import pytest
import torch

import bcmend
from tests.differences_of_torch import STORES_TO_REQUIRES_GRAD_ARE_TRACED

AHEAD = pytest.mark.usefixtures("mended_ahead")


class Shared(torch.nn.Module):
    """Used by both models."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:
            return x + 1
        return x - 1


class First(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.max() > 10:
            x = x / 2
        return self.shared(x)


class Second(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.shared = Shared()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.min() < -10:
            x = x * 2
        return self.shared(x)


class Heir(First):
    """Overrides nothing that ``First`` has patched."""

    def extra(self, x: torch.Tensor) -> torch.Tensor:
        return self(x) * 3


class Overriding(First):
    """Calls the patched method of its base."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = super().forward(x)
        if y.mean() > 1:
            y = y - 1
        return y


FUNCTIONS = [Shared.forward, First.forward, Second.forward, Overriding.forward]


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _codes() -> list[CodeType]:
    return [function.__code__ for function in FUNCTIONS]


def _graphs(obj: Any, *inputs: torch.Tensor) -> int:
    """Compile and call; compare with eager execution; return the number of graphs."""
    graphs = 0

    def backend(graph: torch.fx.GraphModule, examples: Any) -> Any:
        nonlocal graphs
        graphs += 1
        return graph.forward

    compiled = torch.compile(obj, backend=backend)
    for x in inputs:
        assert torch.equal(compiled(x), obj(x))
    return graphs


UP, DOWN = torch.full((3,), 5.0), torch.full((3,), -20.0)


@AHEAD
def test_unpatching_restores_the_very_code_objects() -> None:
    before, model = _codes(), First()
    assert bcmend.patch(model) is model
    assert Shared.forward.__code__ is not before[0] and First.forward.__code__ is not before[1]
    assert Second.forward.__code__ is before[2]
    bcmend.unpatch(model)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


@AHEAD
def test_patching_twice_is_patching_once() -> None:
    before, model = _codes(), First()
    bcmend.patch(model)
    once = _codes()
    bcmend.patch(model)
    assert all(now is then for now, then in zip(_codes(), once, strict=True))
    bcmend.unpatch(model)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


def test_unpatching_what_is_not_patched_changes_nothing() -> None:
    before = _codes()
    bcmend.unpatch(First())
    bcmend.unpatch()
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


@AHEAD
def test_a_context_manager_unpatches_at_its_end() -> None:
    before, model = _codes(), First()
    with bcmend.patched(model) as same:
        assert same is model
        assert First.forward.__code__ is not before[1]
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


@AHEAD
def test_a_context_manager_unpatches_after_an_exception() -> None:
    before = _codes()
    with pytest.raises(KeyError, match="inside"), bcmend.patched(First()):
        raise KeyError("inside")
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


@AHEAD
def test_a_nested_context_manager_leaves_the_outer_patch() -> None:
    bcmend.patch(First())
    patched = _codes()
    with bcmend.patched(Second()):
        assert Second.forward.__code__ is not patched[2]
    assert all(now is then for now, then in zip(_codes(), patched, strict=True))


@AHEAD
def test_a_context_manager_in_a_patched_model_leaves_it_patched() -> None:
    model = bcmend.patch(First())
    patched = _codes()
    with bcmend.patched(model):
        pass
    assert all(now is then for now, then in zip(_codes(), patched, strict=True))


@AHEAD
def test_what_two_models_share_stays_patched_until_both_are_unpatched() -> None:
    before, first, second = _codes(), First(), Second()
    bcmend.patch(first)
    bcmend.patch(second)
    bcmend.unpatch(first)
    assert First.forward.__code__ is before[1]
    assert Shared.forward.__code__ is not before[0]
    assert _graphs(second, UP, DOWN) == 1
    bcmend.unpatch(second)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


def test_a_model_that_was_changed_since_it_was_patched() -> None:
    before, model = _codes(), First()
    bcmend.patch(model)
    model.shared = torch.nn.Identity()
    bcmend.unpatch(model)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


@AHEAD
def test_two_instances_of_one_class() -> None:
    before, one, other = _codes(), First(), First()
    bcmend.patch(one)
    bcmend.patch(other)
    bcmend.unpatch(one)
    assert First.forward.__code__ is not before[1]
    assert _graphs(other, UP, DOWN) == 1
    bcmend.unpatch(other)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


def test_an_heir_of_a_patched_class() -> None:
    bcmend.patch(First())
    heir = Heir()
    assert _graphs(heir, UP, DOWN) == 1
    assert torch.equal(heir.extra(UP), heir(UP) * 3)


def test_a_method_that_calls_its_base() -> None:
    assert _graphs(bcmend.patch(Overriding()), UP, DOWN, UP / 10) == 1


@AHEAD
def test_a_class_patched_before_its_instances() -> None:
    before = _codes()
    assert bcmend.patch(First) is First
    assert First.forward.__code__ is not before[1]
    model = First()
    expected = [First()(x) for x in (UP, DOWN)]
    assert all(torch.equal(model(x), y) for x, y in zip((UP, DOWN), expected, strict=True))
    _graphs(model, UP, DOWN)
    bcmend.unpatch(First)
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


def _plain(x: torch.Tensor) -> torch.Tensor:
    return x * 2 if x.sum() > 0 else -x


@AHEAD
def test_functions_methods_and_partials() -> None:
    code = _plain.__code__
    bcmend.patch(_plain)
    assert _graphs(_plain, UP, DOWN) == 1
    bcmend.unpatch(_plain)
    assert _plain.__code__ is code
    partial = functools.partial(_plain)
    assert bcmend.patch(partial) is partial
    assert _plain.__code__ is not code
    bcmend.unpatch(partial)
    assert _plain.__code__ is code
    model = First()
    bcmend.patch(model.forward)
    assert _graphs(model.forward, UP, DOWN) == 1


def _generator() -> Iterator[int]:
    yield 1


async def _coroutine() -> None: ...


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_what_cannot_be_patched_is_refused_and_nothing_changes() -> None:
    before = _codes()
    script = torch.jit.script(torch.nn.Linear(2, 2))
    for obj in (3, None, "text", len, print, torch.relu, dict, script, _generator, _coroutine):
        with pytest.raises(bcmend.UnsupportedObject):
            bcmend.patch(obj)
        with pytest.raises(bcmend.UnsupportedObject):
            bcmend.compile(obj)
    with pytest.raises(bcmend.UnsupportedObject), bcmend.patched(3):
        pytest.fail("the body ran")
    with pytest.raises(bcmend.PolicyError):
        bcmend.patch(First(), policy="auto")  # type: ignore[arg-type]
    assert all(now is then for now, then in zip(_codes(), before, strict=True))


def test_the_function_that_patches_and_compiles() -> None:
    model = First()
    compiled = bcmend.compile(model, backend="eager", fullgraph=True)
    assert torch.equal(compiled(UP), model(UP)) and torch.equal(compiled(DOWN), model(DOWN))
    again = bcmend.compile(compiled, backend="eager", fullgraph=True)
    assert torch.equal(again(UP), model(UP))


def test_compiled_before_it_was_patched() -> None:
    model = First()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert bcmend.patch(compiled) is compiled
    assert torch.equal(compiled(UP), model(UP)) and torch.equal(compiled(DOWN), model(DOWN))


def test_called_compiled_before_it_was_patched() -> None:
    model = First()
    compiled = torch.compile(model, backend="eager")
    expected = [model(UP), model(DOWN)]
    assert torch.equal(compiled(UP), expected[0])
    bcmend.patch(model)
    assert torch.equal(compiled(DOWN), expected[1]) and torch.equal(compiled(UP), expected[0])


def test_unpatched_after_it_was_compiled() -> None:
    model = bcmend.patch(First())
    compiled = torch.compile(model, backend="eager")
    assert torch.equal(compiled(UP), model(UP))
    bcmend.unpatch(model)
    assert torch.equal(compiled(UP), model(UP)) and torch.equal(compiled(DOWN), model(DOWN))


def test_a_module_compiled_in_place() -> None:
    model = bcmend.patch(First())
    expected = [model(UP), model(DOWN)]
    model.compile(backend="eager", fullgraph=True)
    assert torch.equal(model(UP), expected[0]) and torch.equal(model(DOWN), expected[1])


def test_a_part_compiled_in_place() -> None:
    model = bcmend.patch(First())
    expected = [model(UP), model(DOWN)]
    model.shared.compile(backend="eager", fullgraph=True)
    assert torch.equal(model(UP), expected[0]) and torch.equal(model(DOWN), expected[1])


def test_what_is_patched_again_has_no_site_off_because_of_an_earlier_use() -> None:
    def leaf(x: torch.Tensor) -> torch.Tensor:
        h = x.float()
        h.requires_grad = True
        return h * 2

    whole = torch.arange(4)
    bcmend.patch(leaf)
    torch.compile(leaf, backend="eager")(whole)  # what is returned would require gradients
    assert [site.status for site in bcmend.report(leaf).sites] == ["withdrawn"]
    bcmend.unpatch(leaf)
    torch._dynamo.reset()
    bcmend.patch(leaf)
    with torch.no_grad():
        compiled = torch.compile(leaf, backend="eager", fullgraph=True)
        assert torch.equal(compiled(whole), whole * 2.0)
    statuses = [site.status for site in bcmend.report(leaf).sites]
    assert statuses == ([] if STORES_TO_REQUIRES_GRAD_ARE_TRACED else ["mended"])
