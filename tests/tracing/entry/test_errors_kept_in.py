"""Whatever goes wrong inside bcmend, the program runs as without it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, NoReturn

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.exc import BackendCompilerFailed
from torch._dynamo.testing import CompileCounter

import bcmend
from bcmend.dynamo import frames, hooks, trace_state
from bcmend.tracing.entry import branch_mending, branch_primitives
from bcmend.tracing.search import strict
from bcmend.tracing.sites.nesting_limits import Unreadable

INPUTS = (torch.ones(3), torch.full((3,), 0.1))


class Net(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        y = x * 2
        if y.sum() > 3:
            y = y + 1
        if bool((y < 0).any()):
            raise ValueError("negative")
        print(y.sum())
        return y.abs() if all(each > 0 for each in y) else y


def _direct(net: Net) -> Callable[[Tensor], Tensor]:
    return net


def _inlined(net: Net) -> Callable[[Tensor], Tensor]:
    return lambda x: net(x) * 1


ROOTS = pytest.mark.parametrize("root", [_direct, _inlined])


def _graphs_and_results(root: Any, capsys: pytest.CaptureFixture[str], patched: bool) -> Any:
    torch._dynamo.reset()
    net, backend = Net(), CompileCounter()
    if patched:
        bcmend.patch(net)
    compiled = torch.compile(root(net), backend=backend)
    capsys.readouterr()
    results = [compiled(each).tolist() for each in INPUTS]
    bcmend.unpatch()
    return backend.frame_count, (results, capsys.readouterr().out)


@pytest.fixture(autouse=True)
def _as_for_users(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(strict, "IS_ON", False)
    yield
    bcmend.unpatch()
    torch._dynamo.reset()
    hooks.REGISTRY.subclasses.clear()


#: Raises a ``ValueError`` in a frame that counts as one of bcmend's.
_scope: dict[str, Any] = {}
exec(compile("def _fault(*_, **__): raise ValueError('a fault')", strict.__file__, "exec"), _scope)
_fault: Callable[..., Any] = _scope["_fault"]


@ROOTS
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (branch_mending, "mend_branch"),
        (branch_primitives, "_depends_on_data"),
        (trace_state.TraceState, "end"),
    ],
)
def test_a_fault_leaves_the_program_as_without_bcmend(
    root: Any,
    owner: Any,
    name: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    graphs, expected = _graphs_and_results(root, capsys, patched=False)
    monkeypatch.setattr(owner, name, _fault)
    with caplog.at_level(logging.WARNING, "bcmend"):
        found, results = _graphs_and_results(root, capsys, patched=True)
    assert results == expected and found <= graphs
    assert "Internal error in bcmend: " in caplog.text and "a fault" in caplog.text
    assert "Please report it" in caplog.text


@ROOTS
def test_an_end_of_an_arm_that_no_arm_waits_for_leaves_the_program_as_without_bcmend(
    root: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def unreadable(*arguments: Any) -> NoReturn:
        raise Unreadable("for a test")

    graphs, expected = _graphs_and_results(root, capsys, patched=False)
    monkeypatch.setattr(branch_mending, "mend_branch", unreadable)
    found, results = _graphs_and_results(root, capsys, patched=True)
    assert results == expected and found <= graphs


def _faulty(hook: hooks.Hook, monkeypatch: pytest.MonkeyPatch) -> None:
    faulty = hooks.Hook(hook.owner, hook.name, hook.purpose, _fault, hook.gate, hook.place)
    others = [each for each in hooks.REGISTRY.hooks if each is not hook]
    monkeypatch.setattr(hooks.REGISTRY, "hooks", [*others, faulty])
    hooks.REGISTRY.subclasses.clear()


#: Every trace comes to these; the others are tried by ``pytest -m slow``.
_ALWAYS = frozenset(["call_function", "call_method", "compile_subgraph", "install_global_unsafe"])


def _cases() -> Iterator[Any]:
    for hook in hooks.REGISTRY.hooks:
        for root in (_direct, _inlined):
            marks = () if hook.name in _ALWAYS and root is _direct else (pytest.mark.slow,)
            if hook.name != "run":  # the barrier itself
                name = f"{root.__name__}-{hook.target}: {hook.purpose}"
                yield pytest.param(root, hook, marks=marks, id=name)


@pytest.mark.parametrize(("root", "hook"), list(_cases()))
def test_a_hook_that_fails_leaves_the_program_as_without_bcmend(
    root: Any,
    hook: hooks.Hook,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    graphs, expected = _graphs_and_results(root, capsys, patched=False)
    _faulty(hook, monkeypatch)
    found, results = _graphs_and_results(root, capsys, patched=True)
    assert results == expected
    # The back end is given a graph that fails to be installed, and then another; and one more since
    # the truth of the check that is left alone is computed in front of it.
    assert found <= graphs + 2 * (hook.name == "install_global_unsafe")


def test_what_was_left_alone_is_mended_when_it_is_patched_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before, _ = _graphs_and_results(_direct, capsys, patched=True)
    with monkeypatch.context() as faults:
        faults.setattr(trace_state.TraceState, "end", _fault)
        assert _graphs_and_results(_direct, capsys, patched=True)[0] > before
    assert _graphs_and_results(_direct, capsys, patched=True)[0] == before


def _branch(x: Tensor) -> Tensor:
    y = x * 2
    if y.sum() > 3:
        y = (y @ y).sin().expm1() + y
    print("between")
    return y


def _fails_on(operator: str, seen: list[int]) -> Callable[..., Any]:
    def backend(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(len(graph.graph.nodes))
        if any(operator in str(node.target) for node in graph.graph.nodes):
            raise NotImplementedError(operator)
        return graph.forward

    return backend


def _withdrawn() -> list[tuple[str, str | None]]:
    sites = bcmend.report(_branch).sites
    return [(each.kind, each.refusal) for each in sites if each.status == "withdrawn"]


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: f(x) + 0])
def test_a_back_end_that_fails_on_a_lowering_compiles_the_rest(
    wrap: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = [wrap(_branch)(x) for x in INPUTS]
    bcmend.patch(_branch, policy=bcmend.Policy(branch="cond"))
    compiled = torch.compile(wrap(_branch), backend=_fails_on("cond", []))
    for x, result in zip(INPUTS, expected, strict=True):
        assert torch.equal(compiled(x), result)
    assert ("branch", "not-captured") in _withdrawn()


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: f(x) + 0])
def test_a_failure_that_torch_has_without_bcmend_withdraws_nothing(wrap: Any) -> None:
    bcmend.patch(_branch)
    with pytest.raises(BackendCompilerFailed, match="mul"):
        torch.compile(wrap(_branch), backend=_fails_on("mul", []))(INPUTS[0])
    assert _withdrawn() == []
    torch._dynamo.reset()
    backend = CompileCounter()
    torch.compile(_branch, backend=backend)(INPUTS[0])
    assert backend.frame_count == 1


class Plain:
    def __init__(self) -> None:
        self.weight = torch.ones(3)

    def run(self) -> Tensor:
        y = self.weight * 2
        if y.sum() > 3:
            y = y + 1
        return y


@pytest.mark.parametrize("patch_first", [True, False])
def test_a_function_without_tensors_among_its_arguments_is_compiled(patch_first: bool) -> None:
    plain, backend = Plain(), CompileCounter()
    if patch_first:
        bcmend.patch(plain.run)
    compiled = torch.compile(plain.run, backend=backend)
    if not patch_first:
        bcmend.patch(plain.run)
    assert compiled().tolist() == [3.0, 3.0, 3.0]
    assert backend.frame_count == 1


def test_the_part_of_a_trace_before_patched_code_is_looked_at(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    looked: list[str] = []
    monkeypatch.setattr(
        trace_state,
        "_WHEN_LATE",
        [*trace_state._WHEN_LATE, lambda tx: looked.append(tx.output.root_tx.f_code.co_name)],
    )
    bcmend.patch(_branch)

    def before(x: Tensor) -> Tensor:
        return _branch(x + 1)

    torch.compile(before, backend="eager")(INPUTS[0])
    assert looked and set(looked) == {"before"}
    assert not frames.is_left_alone(before.__code__)


def _with_layer(x: Tensor) -> Tensor:
    print("in", x.sum())
    if bool((x > 9).any()):
        raise ValueError("large")
    y = x.sin().matmul(x.cos()) if x.sum() > 1 else x.cos().matmul(x.exp())
    z = x + 1 if x.min() > 0 else x - 1
    print("out", y.sum())
    return y + z.sum()


FIRST = _with_layer.__code__.co_firstlineno


@pytest.mark.parametrize("wrap", [lambda f: f, lambda f: lambda x: f(x) + 0])
def test_a_site_that_the_back_end_does_not_take_leaves_the_others_mended(wrap: Any) -> None:
    bcmend.patch(_with_layer)
    compiled = torch.compile(wrap(_with_layer), backend=_fails_on("cond", []))
    for each in (torch.ones(64, 64), -torch.ones(64, 64)):
        assert torch.equal(compiled(each), _with_layer(each))
    records = {each.line - FIRST: each for each in bcmend.report(_with_layer).sites}
    assert [(line, each.status) for line, each in sorted(records.items())] == [
        (1, "mended"),
        (2, "mended"),
        (4, "withdrawn"),
        (5, "mended"),
        (6, "mended"),
    ]
