"""The steps at the end of a trace run in the order of their phases."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest
from torch.fx import Graph, GraphModule

from bcmend.dynamo import hooks, trace_state
from bcmend.dynamo.trace_state import Phase, TraceState, at_the_end, at_the_end_of_a_graph


def _output() -> Any:
    return SimpleNamespace(register_finalizer_fns=[])


def _module() -> GraphModule:
    return GraphModule({}, Graph())


@pytest.mark.parametrize("seed", range(4))
def test_phases_run_in_their_order_whenever_they_were_added(seed: int) -> None:
    ran: list[Phase] = []
    output = _output()
    for phase in random.Random(seed).sample(list(Phase), len(Phase)):
        at_the_end(output, phase, lambda module, phase=phase: ran.append(phase))
    (end,) = output.register_finalizer_fns
    end(_module())
    first = [Phase.NUMBERS, Phase.CHECK, Phase.JUDGE]
    assert ran == [*first, Phase.FLATTEN, Phase.EDIT, Phase.TELL]


def test_steps_of_one_phase_run_in_the_order_in_which_they_were_added() -> None:
    ran: list[int] = []
    output = _output()
    for number in range(3):
        at_the_end(output, Phase.EDIT, lambda module, number=number: ran.append(number))
    output.register_finalizer_fns[0](_module())
    assert ran == [0, 1, 2]


def test_a_step_may_add_another_of_a_later_phase() -> None:
    ran: list[str] = []
    state = TraceState()

    def check(module: GraphModule | None) -> None:
        ran.append("check")
        state.steps.append((Phase.TELL, lambda module: ran.append("tell")))

    state.steps = [(Phase.EDIT, lambda module: ran.append("edit")), (Phase.CHECK, check)]
    state.end(None)
    assert ran == ["check", "edit", "tell"] and state.steps == []


def test_steps_run_once() -> None:
    ran: list[int] = []
    output = _output()
    at_the_end(output, Phase.TELL, lambda module: ran.append(1))
    (end,) = output.register_finalizer_fns
    end(_module())
    end(None)
    assert ran == [1]


def test_what_needs_a_graph_does_not_run_without_one() -> None:
    seen: list[GraphModule | None] = []
    for given in (None, _module()):
        output = _output()
        at_the_end(output, Phase.EDIT, seen.append)
        at_the_end_of_a_graph(output, Phase.EDIT, seen.append)
        output.register_finalizer_fns[0](given)
    assert [each is None for each in seen] == [True, False, False]


def test_a_trace_begins_once_and_late_ones_are_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[Any] = []
    endings: list[Any] = []
    root = SimpleNamespace(f_code=test_steps_run_once.__code__)
    output = SimpleNamespace(
        root_tx=root, side_effects=None, shape_env=None, add_cleanup_hook=endings.append
    )
    tx: Any = SimpleNamespace(output=output)
    monkeypatch.setattr(trace_state.frames, "covers", lambda frame: False)
    monkeypatch.setattr(trace_state, "_WHEN_LATE", [late.append])
    assert not hooks.is_active()
    trace_state.put_hooks_in_place(tx)
    try:
        assert hooks.is_active()
        trace_state.put_hooks_in_place(tx)
        assert late == [tx] and len(endings) == 1
    finally:
        endings[0]()
    assert not hooks.is_active()
