"""Objects that wait until Dynamo stops: nothing of them is touched before, all is mended then."""

from __future__ import annotations

import copy
import gc
import itertools
import json
import operator
import random
import signal
import sys
import threading
import types
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.dynamo import compat, hooks
from bcmend.patching import stops, waiting  # noqa: F401  declares what is watched
from bcmend.patching.table import TABLE
from bench.python_calls import python_calls
from tests import new_process
from tests.equivalence import fresh
from tests.observation import captured

X = torch.linspace(-1, 1, 8).view(2, 4)


@pytest.fixture(autouse=True)
def _clean() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()
    torch._dynamo.reset()
    assert not hooks.REGISTRY.watching
    assert not waiting._WAITING and not len(waiting._OWNERS)


class Counting:
    """A back end that counts its graphs, and runs each as it is."""

    def __init__(self) -> None:
        self.codes: list[str] = []

    def __call__(self, module: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        self.codes.append(module.code)
        return module.forward


class Layer(nn.Module):
    def __init__(self, talks: bool = True) -> None:
        super().__init__()
        self.linear, self.talks = nn.Linear(4, 4), talks

    def forward(self, x: Tensor) -> Tensor:
        y = self.linear(x)
        if self.talks:
            print("sum", y.sum().item())
            if y.sum() > 0:
                y = y * 2
        return y


class Model(nn.Module):
    def __init__(self, talks: bool = True) -> None:
        super().__init__()
        self.first, self.second = Layer(talks), Layer(talks)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.second(self.first(x))
        return y + 1


CODES = [Model.forward.__code__, Layer.forward.__code__]


def _codes() -> list[CodeType]:
    return [Model.forward.__code__, Layer.forward.__code__]


def _is_untouched() -> bool:
    return all(one is other for one, other in zip(_codes(), CODES, strict=True))


# Before a stop


def test_nothing_is_touched_where_dynamo_does_not_stop() -> None:
    model, backend = bcmend.patch(Model(talks=False)), Counting()
    assert _is_untouched() and not TABLE.functions
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    for x in (X, X * 2, torch.cat([X, X])):
        assert torch.equal(compiled(x), model(x))
    assert _is_untouched() and not TABLE.functions
    assert not hooks.REGISTRY.armed and not hooks.is_active()
    assert bcmend.report(model).sites == ()


_ASK = """
import json, sys, torch, bcmend
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.ModuleList(torch.nn.Linear(4, 4) for _ in range(3))
    def forward(self, x):
        for layer in self.layers:
            x = layer(x).relu()
        return x if self.training else x + 1
def packages():
    return sorted({name.split(".")[1] for name in sys.modules if name.startswith("bcmend.")})
model = bcmend.patch(Model())
patched = packages()
compiled = torch.compile(model, backend="eager")
compiled(torch.ones(2, 4)), compiled(torch.ones(3, 4))
print(json.dumps([patched, packages()]))
"""


def test_what_analyses_and_traces_is_not_imported_before() -> None:
    ran = new_process.run("-c", _ASK)
    assert ran.returncode == 0, ran.stderr
    for packages in json.loads(ran.stdout):
        assert "patching" in packages
        assert not {"tracing", "delivery", "analysis", "cfg"}.intersection(packages)


def test_what_is_watched_is_put_back() -> None:
    def present(is_lasting: bool = False) -> list[Any]:
        watches = [each for each in hooks.REGISTRY.watches if each.is_lasting is is_lasting]
        return [vars(each.owner)[each.name] for each in watches if each.is_needed()]

    before, of_exports = present(), present(is_lasting=True)
    first, second = bcmend.patch(Model()), bcmend.patch(lambda x: x * 2)
    assert all(one is not other for one, other in zip(present(), before, strict=True))
    bcmend.unpatch(second)
    assert present() != before
    torch.compile(first, backend="eager")(X)
    assert present() == before, "nothing waits any more"
    assert all(map(operator.is_not, present(is_lasting=True), of_exports)), "it may be exported"
    bcmend.unpatch()
    assert present(is_lasting=True) == of_exports


def test_patching_looks_at_each_module_once() -> None:
    def calls(count: int) -> int:
        model = nn.ModuleList(Layer() for _ in range(count))
        bcmend.patch(model)
        bcmend.unpatch()
        found = python_calls(lambda: bcmend.patch(model))
        bcmend.unpatch()
        return found

    assert (calls(1000) - calls(100)) / 900 < 25, "most of them in `nn.Module.modules`"


# At a stop


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_call_that_stops_is_one_graph_and_equal(fullgraph: bool) -> None:
    model, backend = Model(), Counting()
    with captured() as expected:
        results = [model(x) for x in (X, -X)]
    bcmend.patch(model)
    compiled = torch.compile(model, backend=backend, fullgraph=fullgraph)
    with captured() as found:
        assert all(map(torch.equal, [compiled(x) for x in (X, -X)], results))
    assert found == expected != []
    assert len(backend.codes) == 1
    assert not _is_untouched()
    assert {each.status for each in bcmend.report(model).sites} == {"mended"}
    bcmend.unpatch()
    assert _is_untouched()


@pytest.mark.parametrize("fullgraph", [False, True])
def test_other_code_that_calls_a_patched_model(fullgraph: bool) -> None:
    model, backend = bcmend.patch(Model()), Counting()

    def root(x: Tensor) -> Tensor:
        result: Tensor = model(x.sin()) * 2
        return result

    compiled = torch.compile(root, backend=backend, fullgraph=fullgraph)
    assert torch.equal(compiled(X), root(X))
    assert len(backend.codes) == 1
    assert not _is_untouched()


def test_a_submodule_that_is_compiled_alone() -> None:
    model, backend = bcmend.patch(Model()), Counting()
    model.first.compile(backend=backend, fullgraph=True)
    expected = Layer.forward(model.first, X)
    assert torch.equal(model.first(X), expected)
    assert len(backend.codes) == 1


def _doubles_or_not(x: Tensor) -> Tensor:
    return x * 2 if x.sum() > 0 else x - 1


def _calls(x: Tensor) -> Tensor:
    return _doubles_or_not(x) + 1


class Picking:
    def __call__(self, x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1


# pytest would rewrite the assertion.
ASSERTING: dict[str, Any] = {"__name__": __name__}
exec("def require_small(x):\n    assert x.sum() < 99, 'large'", ASSERTING)
_require_small = ASSERTING["require_small"]


class Methodical(nn.Module):
    def step(self, x: Tensor) -> Tensor:
        _require_small(x)
        return _doubles_or_not(x) + 1

    def forward(self, x: Tensor) -> Tensor:
        return self.step(x)


def _encoder(activation: Callable[[Tensor], Tensor]) -> nn.Module:
    layer = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, activation=activation)
    layer.activation = activation
    return layer


class Doubling(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return _doubles_or_not(x)


def _parametrized() -> nn.Module:
    linear = nn.Linear(4, 4)
    nn.utils.parametrize.register_parametrization(linear, "weight", Doubling())
    return linear


def _itself(model: Any) -> Any:
    return model


REACHED: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "a method": (Methodical, lambda model: model.step),
    "a function that a method calls": (Methodical, lambda _: _doubles_or_not),
    "a function that a function calls": (lambda: _calls, lambda _: _doubles_or_not),
    "a function that a layer of torch calls": (lambda: _encoder(_doubles_or_not), _itself),
    "an object that a layer of torch calls": (lambda: _encoder(Picking()), _itself),
    "beside a module of the program": (
        lambda: nn.Sequential(Doubling(), _encoder(_doubles_or_not)),
        _itself,
    ),
    "a layer of torch, alone": (
        lambda: nn.Sequential(Doubling(), _encoder(_doubles_or_not)),
        lambda model: model[1],
    ),
    "a parameter": (lambda: nn.Sequential(_parametrized()), _itself),
}


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("case", REACHED)
def test_what_is_reached_is_mended_wherever_dynamo_starts(case: str, fullgraph: bool) -> None:
    make, entered = REACHED[case]
    backend, subject = Counting(), make()
    entry = entered(bcmend.patch(subject))
    compiled = torch.compile(entry, backend=backend, fullgraph=fullgraph)
    for x in (X + 1, X - 1):
        assert torch.equal(compiled(x), entry(x))
    assert len(backend.codes) == 1
    assert TABLE.functions and not bcmend.report(subject).waits


def test_an_assertion_of_a_method_that_is_compiled_alone() -> None:
    step = torch.compile(bcmend.patch(Methodical()).step, backend="eager")
    with pytest.raises(AssertionError, match=r"^large$"):
        step(X + 99)


def test_what_no_waiting_object_reaches_breaks_as_on_torch_alone() -> None:
    def other(x: Tensor) -> Tensor:
        assert x.sum() < 99
        x = x * 3 if x.sum() > 0 else x - 2
        torch._dynamo.graph_break()
        return x.sin()

    def graphs() -> list[str]:
        torch._dynamo.reset()
        backend = Counting()
        compiled = torch.compile(other, backend=backend)
        assert torch.equal(compiled(X + 1), other(X + 1))
        return backend.codes

    expected = graphs()
    bcmend.patch(Methodical()), bcmend.patch(nn.Sequential(nn.Linear(4, 4)))
    assert graphs() == expected
    assert not TABLE.functions


@pytest.mark.parametrize("fullgraph", [False, True])
def test_a_function_of_the_same_def_breaks_as_on_torch_alone(fullgraph: bool) -> None:
    def made(number: float) -> Callable[[Tensor], Tensor]:
        def program(x: Tensor) -> Tensor:
            return x * number if x.sum() > 0 else x - number

        return program

    one, other = bcmend.patch(made(2.0)), made(3.0)
    backend = Counting()
    compiled = torch.compile(other, backend=backend, fullgraph=fullgraph)
    for _ in range(2):
        if fullgraph:
            with pytest.raises(torch._dynamo.exc.Unsupported, match="Data-dependent branching"):
                compiled(X + 1)
        else:
            assert torch.equal(compiled(X + 1), other(X + 1))
    assert len(backend.codes) == (0 if fullgraph else 2)
    backend = Counting()
    compiled = torch.compile(one, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X + 1), one(X + 1))
    assert len(backend.codes) == 1


def test_a_layer_of_torch_waits_like_any_other() -> None:
    layer = bcmend.patch(nn.Linear(4, 4))
    assert bcmend.report(layer).waits
    assert torch.equal(torch.compile(layer, backend="eager")(X), layer(X))
    assert bcmend.report(layer).waits


def test_below_a_frame_that_dynamo_skips() -> None:
    class Outer(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Layer()

        def forward(self, path: str) -> Tensor:  # no tensor among its arguments
            result: Tensor = _helped(self, float(path))
            return result

    def _helped(outer: Outer, number: float) -> Tensor:
        y: Tensor = outer.inner(X * number)
        return y if y.sum() > 0 else -y

    model, backend = bcmend.patch(Outer()), Counting()
    compiled = torch.compile(model, backend=backend)
    assert [torch.equal(compiled(each), model(each)) for each in ("1", "-1")] == [True, True]
    assert len(backend.codes) <= 2


def test_a_stop_in_a_later_call() -> None:
    def program(x: Tensor, mode: int) -> Tensor:
        if mode:
            return x * 2 if x.sum() > 0 else x - 1
        return x + 1

    code, backend = program.__code__, Counting()
    compiled = torch.compile(bcmend.patch(program), backend=backend, fullgraph=True)
    assert torch.equal(compiled(X, 0), X + 1)
    assert program.__code__ is code
    for x, mode in ((X + 1, 1), (X - 1, 1), (X, 0)):
        assert torch.equal(compiled(x, mode), program(x, mode))
    assert program.__code__ is not code


def test_what_is_not_mended_stops_as_on_torch_alone() -> None:
    def program(x: Tensor) -> Tensor:
        torch._dynamo.graph_break()
        return x + 1

    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    with pytest.raises(torch._dynamo.exc.Unsupported, match="graph_break"):
        compiled(X)
    torch._dynamo.reset()
    backend = Counting()
    assert torch.equal(torch.compile(program, backend=backend)(X), X + 1)


def _traces(call: Callable[[], object]) -> int:
    """Return how many times Dynamo traces frames in a call."""
    from torch._dynamo import convert_frame

    count, inner = 0, convert_frame.trace_frame

    def counting(*arguments: Any, **named: Any) -> Any:
        nonlocal count
        count += 1
        return inner(*arguments, **named)

    convert_frame.trace_frame = counting
    try:
        call()
    finally:
        convert_frame.trace_frame = inner
    return count


def test_many_kinds_of_site_are_mended_at_one_stop() -> None:
    class Many(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer() for _ in range(4))

        def forward(self, x: Tensor) -> Tensor:
            for layer in self.layers:
                x = layer(x)
            if x.isnan().any():
                raise ValueError("not a number")
            print("maximum", x.max().item())
            return x.clamp(max=1) if x.max() > 1 else x

    model = bcmend.patch(Many())
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    ahead = _traces(lambda: compiled(X))
    bcmend.unpatch()
    torch._dynamo.reset()
    bcmend.patch(model, policy=bcmend.Policy(mend="ahead"))
    assert ahead == _traces(lambda: compiled(X)) + 1


# What is learned


def test_another_instance_begins_with_what_is_known() -> None:
    torch.compile(bcmend.patch(Model()), backend="eager", fullgraph=True)(X)
    other = bcmend.patch(Model())
    assert not waiting._WAITING
    compiled = torch.compile(other, backend="eager", fullgraph=True)
    assert _traces(lambda: compiled(X)) <= 1
    assert torch.equal(compiled(X), other(X))


def test_what_shares_code_with_what_stops_is_mended_with_it() -> None:
    class Other(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = Layer()

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.layer(x)
            return y if y.sum() > 0 else -y

    bcmend.patch(Other())
    other, backend = bcmend.patch(Other()), Counting()
    torch.compile(bcmend.patch(Model()), backend="eager", fullgraph=True)(X)
    assert not waiting._WAITING
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X), other(X))
    assert len(backend.codes) == 1


def test_copies_of_what_is_gone() -> None:
    model = bcmend.patch(Model())
    other, backend = copy.deepcopy(model), Counting()
    del model
    gc.collect()
    compiled = torch.compile(other, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X), other(X))
    assert len(backend.codes) == 1


def test_a_bound_method_waits_as_long_as_its_object() -> None:
    class Plain:
        def run(self, x: Tensor) -> Tensor:
            return x * 2 if x.sum() > 0 else x - 1

    plain, backend = Plain(), Counting()
    bcmend.patch(plain.run)
    gc.collect()
    compiled = torch.compile(plain.run, backend=backend, fullgraph=True)
    assert torch.equal(compiled(X + 1), (X + 1) * 2)
    assert len(backend.codes) == 1


# Whose turn it is


def test_patching_twice_is_patching_once() -> None:
    model = bcmend.patch(bcmend.patch(Model()), policy=bcmend.Policy(mend="ahead"))
    assert _is_untouched(), "the policy of the first time stands"
    bcmend.unpatch(model)
    assert not waiting._WAITING


def test_a_with_block_in_which_nothing_stops() -> None:
    model = Model(talks=False)
    with bcmend.patched(model):
        torch.compile(model, backend="eager", fullgraph=True)(X)
        assert waiting._WAITING
    assert not waiting._WAITING and _is_untouched()


def test_what_was_compiled_before_it_was_patched() -> None:
    model, backend = Model(), Counting()
    compiled = torch.compile(model, backend=backend)
    compiled(X)
    assert len(backend.codes) > 1
    backend.codes.clear()
    bcmend.patch(model)
    assert torch.equal(compiled(X), model(X))
    assert len(backend.codes) == 1


def test_what_was_captured_whole_is_not_compiled_anew() -> None:
    model, backend = Model(talks=False), Counting()
    compiled = torch.compile(model, backend=backend, fullgraph=True)
    kept = []
    for _ in range(3):
        with bcmend.patched(model):
            compiled(X)
        kept.append(bcmend.patch(Model(talks=False)))
        compiled(X)
    assert len(backend.codes) == 1


def test_one_thread_patches_and_unpatches_what_another_compiles() -> None:
    def program(x: Tensor) -> Tensor:
        return x * 2 if x.sum() > 0 else x - 1

    ended = threading.Event()

    def turn() -> None:
        while not ended.is_set():
            bcmend.patch(program)
            bcmend.unpatch(program)

    thread = threading.Thread(target=turn)
    thread.start()
    try:
        for size in range(2, 10):
            compiled = torch.compile(program, backend="eager")
            assert torch.equal(compiled(torch.ones(size)), torch.full((size,), 2.0))
            torch._dynamo.reset()
    finally:
        ended.set()
        thread.join()


def test_threads_that_stop_at_once() -> None:
    model, barrier = bcmend.patch(Model()), threading.Barrier(4)
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    results: list[bool] = []

    def run(number: int) -> None:
        x = X * (number - 1.5)
        barrier.wait(60)
        results.append(torch.equal(compiled(x), model(x)))

    threads = [threading.Thread(target=run, args=(number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(120)
    assert results == [True] * 4


def test_an_interruption_is_no_stop() -> None:
    class Late(Exception):
        pass

    def handler(*_: object) -> None:
        raise Late

    def backend(module: Any, _: Any) -> Any:
        signal.raise_signal(signal.SIGALRM)
        return module.forward

    before = signal.signal(signal.SIGALRM, handler)
    try:
        model = bcmend.patch(Model(talks=False))
        with pytest.raises(torch._dynamo.exc.BackendCompilerFailed, match="Late"):
            torch.compile(model, backend=backend)(X)
        assert waiting._WAITING and _is_untouched()
    finally:
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("strict", [False, True])
def test_what_is_exported_is_mended_first(strict: bool) -> None:
    class Clipping(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            print("exported")
            return x + 1

    model = bcmend.patch(Clipping())
    with pytest.warns(bcmend.OutputDropped):
        exported = torch.export.export(model, (X,), strict=strict)
    assert torch.equal(exported.module()(X), X + 1)


def test_what_is_missing_is_said_where_it_is_needed(monkeypatch: pytest.MonkeyPatch) -> None:
    missing = hooks.Hook(nn.Module, "no_such_method", "of this test", print, None)
    with monkeypatch.context() as patch:
        patch.setattr(hooks.REGISTRY, "watches", [*hooks.REGISTRY.watches, missing])
        with pytest.raises(bcmend.MissingInTorch, match="no_such_method"):
            bcmend.patch(Model())
    assert not waiting._WAITING and not hooks.REGISTRY.watching
    compiled = torch.compile(bcmend.patch(Model()), backend="eager")
    with monkeypatch.context() as patch:
        patch.setattr(hooks.REGISTRY, "hooks", [*hooks.REGISTRY.hooks, missing])
        with pytest.raises(bcmend.MissingInTorch, match="no_such_method"):
            compiled(X)
    assert _is_untouched() and not hooks.REGISTRY.armed and not hooks.REGISTRY.watching


def test_what_runs_while_a_trace_is_made_runs_in_the_one_that_stops_as_well() -> None:
    calls = []

    @torch._dynamo.assume_constant_result
    def constant() -> int:
        calls.append(None)
        return 3

    def program(x: Tensor) -> Tensor:
        y = x * constant()
        return y + 1 if y.sum() > 0 else y

    for mend, count in (("ahead", 1), ("on-demand", 2)):
        torch._dynamo.reset()
        calls.clear()
        policy = bcmend.Policy(mend=mend)  # type: ignore[arg-type]
        compiled = torch.compile(bcmend.patch(program, policy=policy), backend="eager")
        assert torch.equal(compiled(X + 1), (X + 1) * 3 + 1)
        assert len(calls) == count
        bcmend.unpatch()


def test_what_was_captured_before_the_stop_is_captured_once_more() -> None:
    def program(x: Tensor, flag: bool) -> Tensor:
        if flag and x.sum() > 0:
            x = x * 2
        return x + 1

    for mend, count in (("ahead", 2), ("on-demand", 3)):
        torch._dynamo.reset()
        backend, policy = Counting(), bcmend.Policy(mend=mend)  # type: ignore[arg-type]
        compiled = torch.compile(bcmend.patch(program, policy=policy), backend=backend)
        for flag in (False, True, False, True, False):
            assert torch.equal(compiled(X + 1, flag), (X + 1) * (1 + flag) + 1)
        assert len(backend.codes) == count
        bcmend.unpatch()


# Code that runs in a first call alone

LOCK = threading.Lock()
TABLE_OF_MODELS: dict[int, object] = {}


class SettingUp(nn.Module):
    def __init__(self, how: Callable[[Any], None], talks: bool) -> None:
        super().__init__()
        self.inner, self.how, self.layer = nn.Linear(4, 4), how, Layer(talks)

    def forward(self, x: Tensor) -> Tensor:
        self.how(self)
        y: Tensor = self.layer(self.inner(x))
        return y


def _hooks_under_a_lock(model: Any) -> None:
    if getattr(model, "is_ready", False):
        return
    with LOCK:
        if not getattr(model, "is_ready", False):
            model.inner.register_forward_hook(lambda module, given, result: result * 2)
            model.is_ready = True


def _cache_of_locks(model: Any) -> None:
    if id(model) not in TABLE_OF_MODELS:
        TABLE_OF_MODELS[id(model)] = threading.Lock()


def _hooks_of_a_function(model: Any) -> None:
    if not getattr(model, "is_ready", False):
        with LOCK:
            _install_hooks(model)


def _hooks_where_it_is_asked_whether_it_compiles(model: Any) -> None:
    _hooks_of_a_function(model)
    if not torch.compiler.is_compiling():
        TABLE_OF_MODELS[0] = threading.Lock()


def _install_hooks(model: Any) -> None:
    model.inner.register_forward_hook(lambda module, given, result: result * 2)
    setattr(model, "is_ready", True)  # noqa: B010


@pytest.mark.parametrize("talks", [False, True])
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("mend", ["on-demand", "ahead"])
@pytest.mark.parametrize(
    "how",
    [
        _hooks_under_a_lock,
        _cache_of_locks,
        _hooks_of_a_function,
        _hooks_where_it_is_asked_whether_it_compiles,
    ],
)
def test_a_first_call_that_sets_something_up_is_made_plainly(
    how: Callable[[Any], None], mend: Any, fullgraph: bool, talks: bool
) -> None:
    if mend == "ahead" and not talks:
        pytest.skip("nothing is patched")
    for _ in range(2):  # what one instance has set up, another has not
        torch.manual_seed(0)
        model, eager, backend = SettingUp(how, talks), SettingUp(how, talks), Counting()
        eager.load_state_dict(model.state_dict())
        bcmend.patch(model, policy=bcmend.Policy(mend=mend))
        compiled = torch.compile(model, backend=backend, fullgraph=fullgraph)
        with captured() as expected:
            results = [eager(each) for each in (X, -X, X)]
        with captured() as found:
            assert all(map(torch.equal, [compiled(each) for each in (X, -X, X)], results))
        assert found == expected
        assert len(backend.codes) == 1
        bcmend.unpatch()
        torch._dynamo.reset()


def test_what_is_never_set_up_fails_at_the_second_call() -> None:
    def program(x: Tensor) -> Tensor:
        if not getattr(LOCK, "is_ready", False):
            x = x + 1
            torch._dynamo.graph_break()
            if x is None:
                LOCK.is_ready = True  # type: ignore[attr-defined]
        return x

    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X + 1)
    for _ in range(2):
        with pytest.raises(torch._dynamo.exc.Unsupported):
            compiled(X)


# Constructs at which torch does not stop


def _asserting(text: str) -> FunctionType:
    module = types.ModuleType("made_by_a_test_of_waiting")
    sys.modules[module.__name__] = module
    exec(text, vars(module))  # pytest would rewrite the assertion
    return module.program  # type: ignore[no-any-return]


def _random(x: Tensor) -> Tensor:
    return x * 2 if random.random() < 0.5 else x - 1


def _number(x: Tensor) -> Tensor:
    return x * [1, 2, 3][int(x.argmax() % 3)]


def _size(x: Tensor) -> Tensor:
    return x[x > 0].max() * 2


def _text(x: Tensor) -> Tensor:
    known: dict[str, int] = {}
    try:
        known["missing"]
    except KeyError as error:
        text = str(error)
    return x + 1 if text == "'missing'" else x * 2


_ASSERTION = "def program(x):\n    assert x.sum() > 0, 'small'\n    return x * 2"


def _draw(x: Tensor) -> Tensor:
    return x * torch.from_numpy(numpy.random.rand(4)).float()


def _is_variable(x: Tensor) -> Tensor:
    return x * 2 if isinstance(x, (int, torch.autograd.Variable)) else x


CONSTRUCTS = {
    "an assertion about a tensor": _asserting(_ASSERTION),
    "a number of a generator": _random,
    "a number out of a tensor": _number,
    "a size that the data decide": _size,
    "the text of an exception": _text,
    "a draw of numpy": _draw,
    "whether something is a variable": _is_variable,
}


@pytest.mark.parametrize("name", CONSTRUCTS)
@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("is_inlined", [False, True])
def test_a_construct_that_torch_takes_otherwise_is_a_stop(
    name: str, fullgraph: bool, is_inlined: bool
) -> None:
    _compare_with_eager(fresh(CONSTRUCTS[name]), fullgraph, is_inlined)


def _collecting() -> Any:
    calls: list[int] = []

    def collected(method: Any) -> Any:
        def wrapper(self: Any, x: Tensor) -> Any:
            calls.append(len(calls))
            return method(self, x) * len(calls)

        return wrapper

    class Made:
        @collected
        def doubled(self, x: Tensor) -> Tensor:
            return x * 2

    return lambda x: Made().doubled(x)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("is_inlined", [False, True])
def test_what_a_decorator_holds_is_a_stop(fullgraph: bool, is_inlined: bool) -> None:
    """Of a method of an object that the call makes: torch adds to a copy in each call."""
    program = _collecting()
    bcmend.patch(program)
    called = (lambda x: program(x)) if is_inlined else program
    compiled = torch.compile(called, backend="eager", fullgraph=fullgraph)
    for count in (1, 2, 3):
        assert torch.equal(compiled(X), X * 2 * count)


def _item_of_a_dictionary(x: Tensor) -> Tensor:
    scales = {0: 2, 1: 3, 2: 5}
    return x * scales[int(x.argmax())] + [0, 1, 2][int(x.argmin())]


def _loop_over_a_mask(x: Tensor) -> Tensor:
    for row in (x > 0).nonzero():
        x = x + row
    return x


def _range_up_to_a_number(x: Tensor) -> Tensor:
    for _ in range(int(x.argmax())):
        x = x.sin() + 1
    return x


SPLIT_WHERE_READ = [_number, _item_of_a_dictionary, _loop_over_a_mask, _range_up_to_a_number]


@pytest.mark.parametrize("program", SPLIT_WHERE_READ)
def test_what_other_code_calls_is_split_where_one_graph_is_wanted(program: Any) -> None:
    patched, backend = fresh(program), Counting()
    bcmend.patch(patched)
    compiled = torch.compile(lambda x: patched(x.neg()) + 1, backend=backend, fullgraph=True)
    for each in itertools.permutations((-1.0, 2.0, 0.5)):
        x = torch.tensor(each)
        assert torch.equal(compiled(x), program(x.neg()) + 1)
    assert len(backend.codes) == 1


def test_an_item_that_is_not_there_is_an_error_in_what_other_code_calls() -> None:
    def program(x: Tensor) -> Tensor:
        return x * [1, 2][int(x.argmax())]

    bcmend.patch(program)
    compiled = torch.compile(lambda x: program(x) + 1, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.tensor([0.0, 1, 0])), torch.tensor([1.0, 3, 1]))
    with pytest.raises(IndexError, match="list index out of range"):
        compiled(torch.tensor([0.0, 0, 1]))


def _number_among_sizes(x: Tensor, y: Tensor) -> Tensor:
    both = [len(x), len(y), 7]
    return x.sum() * (1 if 4 in x.shape else 2) * (3 if 5 in both else 5) * both.count(7)


@pytest.mark.parametrize("fullgraph", [False, True])
@pytest.mark.parametrize("is_inlined", [False, True])
def test_a_number_looked_for_among_sizes_is_a_stop(fullgraph: bool, is_inlined: bool) -> None:
    program = fresh(_number_among_sizes)
    bcmend.patch(program)
    root = (lambda x, y: program(x, y)) if is_inlined else program
    compiled = torch.compile(root, backend="eager", fullgraph=fullgraph)
    for one, other in [(3, 4), (5, 5), (4, 6), (6, 7), (4, 4), (8, 5), (9, 6)]:
        given = torch.ones(one), torch.ones(other)
        assert torch.equal(compiled(*given), _number_among_sizes(*given))


def _compare_with_eager(program: Any, fullgraph: bool, is_inlined: bool) -> None:
    bcmend.patch(program)
    root = (lambda x: program(x)) if is_inlined else program
    compiled = torch.compile(root, backend="eager", fullgraph=fullgraph)
    for number in range(12):
        x = (X + 0.1).roll(number) * (1 if number % 5 else -1)
        outcomes = []
        for run in (program, compiled):
            random.seed(number), numpy.random.seed(number)
            try:
                outcomes.append(run(x).tolist())
            except Exception as error:
                outcomes.append((type(error), str(error).partition("\n")[0]))
        assert outcomes[0] == outcomes[1]
    assert not waiting._WAITING


def _assertion(x: Tensor) -> Tensor:
    torch._assert(x.sum() > 0, "small")
    return x * 2


def _assertion_by_name(x: Tensor) -> Tensor:
    torch._assert(message="small", condition=(x.sum() > 0).reshape(1, 1))
    return x * 2


def _assertion_about_a_number(x: Tensor) -> Tensor:
    torch._assert((x.sum() + 5).floor(), f"the sum is {x.sum():.1f}")
    return x * 2


def _assertion_with_no_text(x: Tensor) -> Tensor:
    torch._assert(x.sum() > 0, ("small", 3))
    return x * 2


def _assertion_that_is_caught(x: Tensor) -> Tensor:
    try:
        torch._assert(x.sum() > 0, "small")
    except AssertionError as error:
        return x - len(str(error))
    return x * 2


def _assertion_in_an_arm(x: Tensor) -> Tensor:
    if x.max() > 3:
        torch._assert(x.sum() > 0, "small")
        return x * 2
    return x - 1


def _assertion_below(x: Tensor) -> Tensor:
    return _assertion(x + 0.5) + 1


ASSERTIONS = {
    "alone": _assertion,
    "by name": _assertion_by_name,
    "about a number": _assertion_about_a_number,
    "with no text": _assertion_with_no_text,
    "that is caught": _assertion_that_is_caught,
    "in an arm": _assertion_in_an_arm,
    "below the root": _assertion_below,
}


@pytest.mark.parametrize("name", ASSERTIONS)
@pytest.mark.parametrize(
    ("fullgraph", "is_inlined"), [(False, False), (False, True), (True, False)]
)
def test_an_assertion_of_torch_is_a_stop(name: str, fullgraph: bool, is_inlined: bool) -> None:
    """As a whole graph of a root that nobody has patched it is what torch makes of it."""
    _compare_with_eager(ASSERTIONS[name], fullgraph, is_inlined)


def test_what_dynamo_keeps_of_another_program_is_no_way_past_a_stop() -> None:
    """It keeps the methods that model calls of builtins, by the kinds of the arguments."""

    def before(x: Tensor) -> Tensor:
        return x + 1 if isinstance(x, torch.autograd.Variable) else x - 1

    def program(x: Tensor) -> Tensor:
        return x * 2 if isinstance(x, torch.autograd.Variable) else x * 3

    kept = compat.BuiltinVariable.call_function_handler_cache
    torch.compile(before, backend="eager")(X)
    known = set(kept)
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(X), X * 2)
    bcmend.unpatch()
    assert compat.BuiltinVariable.call_function_handler_cache is kept and set(kept) == known


class Remembering(nn.Module):
    """A module whose class has a ``__call__`` of its own, at which Dynamo starts."""

    def __call__(self, x: Tensor) -> Tensor:
        self.last = super().__call__(x)
        return self.last

    def forward(self, x: Tensor) -> Tensor:
        if x.mean() > 100:
            x = x / 100
        return torch.stack([x * number for number in range(int(x.sum()))])


def test_a_call_of_its_own_is_a_boundary() -> None:
    inputs = [torch.tensor([1.0, 2.0]), torch.tensor([1.0, 4.0])]
    expected = [Remembering()(x) for x in inputs]
    model, graphs = bcmend.patch(Remembering()), Counting()
    compiled = torch.compile(model, backend=graphs, fullgraph=True)
    for x, stacked in zip(inputs, expected, strict=True):  # its number is in front of the graph
        assert torch.equal(compiled(x), stacked) and torch.equal(model.last, stacked)
    assert len(graphs.codes) == 2
    assert waiting.is_mended(Remembering.__call__)
