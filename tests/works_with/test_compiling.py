"""Ways to compile: modes, stances, regions, transforms, whole steps of training."""

from __future__ import annotations

import copy
import io
import os
import pickle
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.works_with.small import (
    Graphs,
    Small,
    Stacked,
    assert_equal,
    inputs,
    logged,
    shown,
    steps,
)

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")

Build = Callable[[Any, Any], Callable[[Tensor], Any]]


def _begin_anew() -> None:
    bcmend.unpatch()
    torch._dynamo.reset()


def _compared(model: Any, prepare: Build, *, one_graph: int | None = 1) -> None:
    """Compare calls with eager execution, and assert that stock torch has more graphs."""
    expected = [shown(lambda: model(x)) for x in inputs()]  # noqa: B023  is called here
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        _begin_anew()
        graphs = Graphs()
        call = prepare(patch(copy.deepcopy(model)), graphs)
        found = [shown(lambda: call(x)) for x in inputs()]  # noqa: B023  is called here
        assert_equal(found, expected)
        counts.append(graphs.count)
    stock, mended = counts
    assert stock > mended
    if one_graph is not None:
        assert mended == one_graph


def test_dynamic_shapes() -> None:
    def prepare(model: Any, graphs: Any) -> Any:
        compiled = torch.compile(model, backend=graphs, dynamic=True)

        def call(x: Tensor) -> list[Tensor]:
            return [compiled(x.repeat(times, 1)) for times in (1, 2, 3)]

        return call

    model = Small()
    graphs = Graphs()
    call = prepare(bcmend.patch(model), graphs)
    for x in inputs()[:2]:
        reference = Small()
        expected = shown(lambda: [reference(x.repeat(times, 1)) for times in (1, 2, 3)])  # noqa: B023
        assert_equal(shown(lambda: call(x)), expected)  # noqa: B023
    assert graphs.count == 1
    stock = Graphs()
    _begin_anew()
    prepare(Small(), stock)(inputs()[0])
    assert stock.count > 1


def test_regional_compilation() -> None:
    def prepare(model: Any, graphs: Any) -> Any:
        for layer in model.layers:
            layer.compile(backend=graphs)
        return torch.no_grad()(model)

    _compared(Stacked(), prepare)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["reduce-overhead", "max-autotune-no-cudagraphs"])
def test_modes_of_inductor(mode: str) -> None:
    expected = steps(reference := Small(), reference, inputs())
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(Small(), mode=mode, fullgraph=True)(inputs()[0])
    model = bcmend.patch(Small())
    compiled = torch.compile(model, mode=mode, fullgraph=True)
    assert_equal(steps(model, compiled, inputs()), expected)


def test_compiled_autograd() -> None:
    expected = steps(reference := Small(), reference, inputs())
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        _begin_anew()
        model, graphs, backward = patch(Small()), Graphs("aot_eager"), Graphs()
        compiled = torch.compile(model, backend=graphs)

        def call(x: Tensor) -> Tensor:
            return compiled(x)  # noqa: B023  is called here

        with torch._dynamo.compiled_autograd._enable(torch.compile(backend=backward)):
            found = steps(model, call, inputs())
        assert_equal(found, expected)
        assert backward.count
        counts.append(graphs.count)
    stock, mended = counts
    assert stock > mended == 1


STANCES = {
    "default": {},
    "force_eager": {},
    "eager_on_recompile": {},
    "fail_on_recompile": {},
    "eager_then_compile": {},
    "aot_eager_then_compile": {},
}


@pytest.mark.parametrize("stance", STANCES)
def test_stances(stance: str) -> None:
    found = []
    for patch in (lambda each: each, bcmend.patch):
        _begin_anew()
        model, graphs = patch(Small()), Graphs()
        compiled = torch.compile(model, backend=graphs)
        first, second, third = inputs()
        if stance != "eager_then_compile":
            compiled(first)
            compiled(second)
        with torch.compiler.set_stance(stance):
            for x in (first, second, torch.cat([first, first])):
                reference = Small()
                result = shown(lambda: compiled(x))  # noqa: B023  is called here
                if isinstance(result[0], str):
                    assert stance == "fail_on_recompile" and len(x) == 6
                    continue
                assert_equal(result, shown(lambda: reference(x)))  # noqa: B023
        found.append(graphs.count)
        assert shown(lambda: compiled(third))[0] == "ValueError('not finite')"  # noqa: B023
    stock, mended = found
    assert stock >= mended


def test_a_whole_step_of_training() -> None:
    def prepare(model: Any, graphs: Any) -> Any:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

        @torch.compile(backend=graphs)
        def step(x: Tensor) -> Tensor:
            optimizer.zero_grad()
            result = model(x)
            result.square().sum().backward()
            optimizer.step()
            return result.detach()

        def call(x: Tensor) -> Any:
            return step(x), [each.detach().clone() for each in model.parameters()]

        return call

    def by_hand(model: Any) -> Any:
        return prepare(model, Graphs())

    with torch.compiler.set_stance("force_eager"):
        expected = [shown(lambda: call(x)) for call in [by_hand(Small())] for x in inputs()]  # noqa: B023
    counts = []
    for patch in (lambda each: each, bcmend.patch):
        _begin_anew()
        graphs = Graphs()
        call = prepare(patch(Small()), graphs)
        assert_equal([shown(lambda: call(x)) for x in inputs()], expected)  # noqa: B023
        counts.append(graphs.count)
    stock, mended = counts
    assert stock > mended


def _value(model: Any) -> Callable[..., Tensor]:
    def value(weights: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, weights, (x,)).square().sum()

    return value


def test_functional_call_and_grad() -> None:
    def prepare(model: Any, graphs: Any) -> Any:
        weights = {name: each.detach() for name, each in model.named_parameters()}
        compiled = torch.compile(
            lambda given, x: torch.func.functional_call(model, given, (x,)), backend=graphs
        )
        return lambda x: compiled(weights, x)

    _compared(Small(), prepare)


def test_grad_of_torch_func_around() -> None:
    model = Small()
    weights = {name: each.detach() for name, each in model.named_parameters()}
    expected = [shown(lambda: torch.func.grad(_value(model))(weights, x)) for x in inputs()]  # noqa: B023
    bcmend.patch(model)
    compiled = torch.compile(torch.func.grad(_value(model)), backend=Graphs())
    found = [shown(lambda: compiled(weights, x)) for x in inputs()]  # noqa: B023
    first_line = Small.forward.__code__.co_firstlineno
    assert {each.line for each in bcmend.why(model).traces} == {first_line}
    for (one, log), (other, expected_log) in zip(found, expected, strict=True):
        assert log == expected_log
        if isinstance(other, str):
            assert one == other
        else:
            assert_equal(
                [one[name] for name in sorted(one)], [other[name] for name in sorted(other)]
            )


def test_deepcopy_and_pickle() -> None:
    for again in (copy.deepcopy, lambda each: pickle.loads(pickle.dumps(each)), _saved):
        _compared(Small(), lambda model, graphs: torch.compile(again(model), backend=graphs))  # noqa: B023


def _saved(model: Any) -> Any:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    return torch.load(file, weights_only=False)


DISABLED = """
import sys, torch, bcmend
from tests.works_with.small import *
model = Small()
if sys.argv[1] == "patched":
    bcmend.patch(model)
compiled = torch.compile(model, backend="eager", fullgraph=True)
print([shown(lambda: compiled(x).tolist()) for x in inputs()])
"""


def test_compilation_switched_off_by_the_environment() -> None:
    def run(word: str) -> str:
        ran = subprocess.run(
            [sys.executable, "-c", DISABLED, word],
            env={**os.environ, "TORCH_COMPILE_DISABLE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        return ran.stdout + ran.stderr.strip().rpartition("\n")[2]

    stock, mended = run("stock"), run("patched")
    assert stock and stock == mended


def test_threads() -> None:
    model, graphs = bcmend.patch(Small()), Graphs()
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    reference = Small()
    compiled(inputs()[0])
    wrong: list[Any] = []

    def work() -> None:
        for _ in range(5):
            for x in inputs()[:2]:
                if not torch.allclose(compiled(x), reference(x)):
                    wrong.append(x)

    threads = [threading.Thread(target=work) for _ in range(4)]
    with logged() as texts:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert not wrong and graphs.count == 1
    assert len(texts) == 2 * 4 * 5 * 2
