"""Arms are traced beside the main graph; what they would change is told, and nothing is changed."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.slots import Slot
from bcmend.tracing.entry import branch_mending
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.speculation import arm_failures, arms
from bcmend.tracing.speculation.arms import ArmFailure, ArmTrace, trace_arm
from tests.equivalence import assert_equivalent, call, fresh
from tests.tracing.plain_trace import calls_answered

Traces = list[ArmTrace | ArmFailure]


class _Box:
    """An object of the program."""

    def __init__(self) -> None:
        self.value: Any = 1
        self.items = [1]


@pytest.fixture
def traced(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Traces]]:
    """Return a function that gives the traces of both arms of the one branch of a program."""
    found: Traces = []
    # Asserted outside of the trace, in which a failure would only withdraw the site.
    marks: list[tuple[Any, ...]] = []
    sizes: list[tuple[int, int]] = []

    def probe(tx: Any, target: Any, site: Any, form: int, condition: Any, both: Any) -> None:
        if not found:
            before = _state(tx)
            found.extend(trace_arm(tx, target, arm, lambda: nullcontext([])) for arm in both)
            marks.append((before, _state(tx)))
            sizes.extend(
                (len(change.before["items"]), len(change.variable.items))
                for change in _container_changes(found)
            )

    def run(program: Callable[..., Any], *arguments: Any) -> Traces:
        monkeypatch.setattr(branch_mending, "mend_branch", probe)
        function = bcmend.patch(fresh(program))
        torch.compile(function, backend="eager")(*arguments)
        assert marks[0][0] == marks[0][1]
        assert all(before == after for before, after in sizes)
        return found

    torch._dynamo.reset()
    yield run
    bcmend.unpatch()
    torch._dynamo.reset()


def _container_changes(traces: Traces) -> list[Any]:
    return [
        change
        for trace in traces
        if isinstance(trace, ArmTrace)
        for change in trace.effects.containers
    ]


def _state(tx: Any) -> tuple[Any, ...]:
    """Return what a trace leaves marks on: nodes, stores, the kind of the effects, the tracer."""
    effects = tx.output.side_effects
    stores = {id(key): dict(value) for key, value in effects.store_attr_mutations.items()}
    nodes = [node.name for node in tx.output.graph.nodes if node.op == "call_function"]
    return nodes, stores, type(effects), id(tx.output.current_tracer)


def _targets(trace: ArmTrace | ArmFailure) -> list[Any]:
    assert isinstance(trace, ArmTrace)
    return [node.target for node in trace.graph.nodes if node.op.startswith("call")]


def _computes(x: Tensor) -> Tensor:
    if x.sum() > 0:
        y = torch.sin(x)
    else:
        y = torch.cos(x)
    return y


def test_each_arm_has_a_graph_of_its_own(traced: Callable[..., Traces]) -> None:
    then_arm, else_arm = traced(_computes, torch.ones(2))
    assert _targets(then_arm) == [torch.sin]
    assert _targets(else_arm) == [torch.cos]


def test_an_arm_tells_what_it_reads_of_the_main_trace(traced: Callable[..., Traces]) -> None:
    then_arm, _ = traced(_computes, torch.ones(2))
    assert isinstance(then_arm, ArmTrace)
    (outer,) = then_arm.lifted
    assert then_arm.lifted[outer].node.graph is then_arm.graph
    assert not then_arm.entries[outer].form_changed
    assert not then_arm.effects


def _stores(x: Tensor, box: _Box) -> Tensor:
    if x.sum() > 0:
        box.value = 5
    return x + box.value


def test_a_store_is_an_effect_and_is_taken_back(traced: Callable[..., Traces]) -> None:
    box = _Box()
    then_arm, else_arm = traced(_stores, torch.ones(2), box)
    assert isinstance(then_arm, ArmTrace) and isinstance(else_arm, ArmTrace)
    ((location, value),) = then_arm.effects.attributes.items()
    assert (location.key, value.as_python_constant()) == ("value", 5)
    assert not else_arm.effects


def _stores_before(x: Tensor, box: _Box) -> Tensor:
    box.value = 5
    if x.sum() > 0:
        x = x + 1
        box.other = 6  # type: ignore[attr-defined]
    return x + box.value


def test_what_was_stored_before_the_branch_is_no_effect_of_an_arm(
    traced: Callable[..., Traces],
) -> None:
    then_arm, else_arm = traced(_stores_before, torch.ones(2), _Box())
    assert isinstance(then_arm, ArmTrace) and isinstance(else_arm, ArmTrace)
    assert [each.key for each in then_arm.effects.attributes] == ["other"]
    assert not else_arm.effects


def _appends(x: Tensor, items: list[int]) -> Tensor:
    if x.sum() > 0:
        items.append(7)
    return x * len(items)


def test_a_changed_container_is_told_with_both_contents(traced: Callable[..., Traces]) -> None:
    items = [1]
    then_arm, else_arm = traced(_appends, torch.ones(2), items)
    assert isinstance(then_arm, ArmTrace) and isinstance(else_arm, ArmTrace)
    (change,) = then_arm.effects.containers
    assert (len(change.before["items"]), len(change.after["items"])) == (1, 2)
    assert change.after["items"][1].as_python_constant() == 7
    assert else_arm.effects.containers == ()
    assert items == [1, 7]  # once, by the program itself


def _writes_in_place(x: Tensor) -> Tensor:
    y = x * 1
    if x.sum() > 0:
        y.add_(1)
    return y


def test_a_tensor_that_is_changed_in_place_is_told(traced: Callable[..., Traces]) -> None:
    then_arm, else_arm = traced(_writes_in_place, torch.ones(2))
    assert isinstance(then_arm, ArmTrace) and isinstance(else_arm, ArmTrace)
    assert len(then_arm.effects.tensors) == 1
    assert else_arm.effects.tensors == ()


def _advances(x: Tensor, values: list[int]) -> Tensor:
    values_left = iter(values)
    if x.sum() > 0:
        next(values_left)
    return x + next(values_left)


def test_an_iterator_that_is_advanced_is_told_and_set_back(traced: Callable[..., Traces]) -> None:
    then_arm, else_arm = traced(_advances, torch.ones(2), [1, 2])
    assert isinstance(then_arm, ArmTrace) and isinstance(else_arm, ArmTrace)
    assert len(then_arm.effects.consumed) == 1
    assert not else_arm.effects.consumed


def _makes(x: Tensor) -> Tensor:
    if x.sum() > 0:
        box = _Box()
        box.value = 9
    else:
        box = _Box()
    return x * box.value


def test_what_an_arm_stores_in_objects_of_its_own_is_no_effect(
    traced: Callable[..., Traces],
) -> None:
    then_arm, _ = traced(_makes, torch.ones(2))
    assert isinstance(then_arm, ArmTrace)
    assert not then_arm.effects
    stored = [each for stores in then_arm.effects.made.values() for each in stores.items()]
    found = [value.as_python_constant() for location, value in stored if location.key == "value"]
    assert found == [9]


def _complain(error: type[Exception]) -> None:
    raise error("complaint")


def _raises(x: Tensor) -> Tensor:
    y = x * 2
    if x.sum() > 0:
        y = y + 1
    else:
        _complain(KeyError)
    return y


def test_an_arm_that_raises_is_a_failure(traced: Callable[..., Traces]) -> None:
    then_arm, else_arm = traced(_raises, torch.ones(2))
    assert isinstance(then_arm, ArmTrace)
    assert else_arm == ArmFailure(arm_failures.Raised.CERTAIN, "KeyError", spoiled=False)


def _fails(x: Tensor) -> Tensor:
    y = x * 2
    if x.sum() > 0:
        y = y @ torch.ones(5, 5)
    return y


def test_an_operation_that_does_not_fit_is_likely_to_raise(traced: Callable[..., Traces]) -> None:
    failure, _ = traced(_fails, -torch.ones(2))
    assert isinstance(failure, ArmFailure)
    assert failure.raised is arm_failures.Raised.LIKELY


def _reshapes(x: Tensor) -> Tensor:
    y = x * 1
    if x.sum() > 0:
        y.t_()
        _complain(ValueError)
    return y


def test_an_arm_that_fails_after_a_change_of_form_has_spoiled_a_tensor(
    traced: Callable[..., Traces],
) -> None:
    failure, _ = traced(_reshapes, -torch.ones(2, 3))
    assert failure == ArmFailure(arm_failures.Raised.CERTAIN, "ValueError", spoiled=True)


def test_the_recording_class_is_made_once_and_not_of_itself() -> None:
    kind = arms._recording_kind(compat.SideEffects)
    assert issubclass(kind, compat.SideEffects)
    assert arms._recording_kind(compat.SideEffects) is kind
    assert arms._recording_kind(kind) is kind


def test_a_stack_that_overflows_is_too_deep(traced: Callable[..., Traces]) -> None:
    found: list[BaseException] = []

    def overflow(*given: Any) -> Any:
        raise RecursionError

    def program(x: Tensor) -> Tensor:
        return torch.sin(x) if x.sum() > 0 else torch.cos(x)

    def probe(tx: Any, target: Any, site: Any, form: int, condition: Any, both: Any) -> None:
        arm = arms.Arm(both[0].function, both[0].arguments, calls=overflow)
        try:
            trace_arm(tx, target, arm, lambda: nullcontext([]))
        except nesting_limits.TooDeep as error:
            found.append(error)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(branch_mending, "mend_branch", probe)
        torch.compile(bcmend.patch(program), backend="eager")(torch.ones(2))
    assert found


# Slots of our own


_NOTES: Slot[list[str]] = Slot(list, rolls_back=True)
_LASTING: Slot[list[str]] = Slot(list, rolls_back=False)


def _noted(*inputs: Any) -> Any:
    return inputs[0]


def _is_merged(x: Tensor) -> Tensor:
    return x + 1


def _breaks_the_graph(x: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return x + 1


def _sets_something(x: Tensor) -> Tensor:
    torch.set_num_threads(torch.get_num_threads())
    torch.use_deterministic_algorithms(True)
    torch.use_deterministic_algorithms(False)
    torch.set_float32_matmul_precision("high")
    return x + 1


def _raises_always(x: Tensor) -> Tensor:
    raise ValueError("raised")


def _noting(x: Tensor, then_arm: Any, else_arm: Any) -> Tensor:
    x = _noted(x, "before")
    if x.sum() > 0:
        x = then_arm(_noted(x * 2, "then"))
    else:
        x = else_arm(_noted(x * 3, "else"))
    return x


@pytest.mark.parametrize(
    ("then_arm", "else_arm", "noted"),
    [
        (_is_merged, _is_merged, ["before", "then", "else"]),
        (_breaks_the_graph, _is_merged, ["before"]),
        (_is_merged, _breaks_the_graph, ["before"]),
        (_sets_something, _is_merged, ["before"]),
        (_raises_always, _is_merged, ["before", "else"]),
        (_is_merged, _raises_always, ["before", "then"]),
    ],
)
def test_what_a_refused_arm_writes_to_slots_that_roll_back_goes(
    then_arm: Any, else_arm: Any, noted: list[str]
) -> None:
    """Dynamo goes on behind a break in another trace."""
    outputs: list[Any] = []
    noted_there: list[list[Any]] = []
    precision = torch.get_float32_matmul_precision()

    def answer(tx: Any, value: Any, note: Any) -> Any:
        if not outputs:
            outputs.append(tx.output)
            noted_there.extend(slot.of(tx.output) for slot in (_NOTES, _LASTING))
        if tx.output is outputs[0]:
            for slot in (_NOTES, _LASTING):
                slot.of(tx.output).append(note.as_python_constant())
        return value

    program = bcmend.patch(fresh(_noting), policy=bcmend.Policy(mend="ahead"))
    try:
        with calls_answered(_noted, answer):
            compiled = torch.compile(program, backend="eager")
            with suppress(ValueError):
                compiled(
                    torch.ones(2) if else_arm is _is_merged else -torch.ones(2), then_arm, else_arm
                )
    finally:
        bcmend.unpatch()
        torch._dynamo.reset()
        torch.set_float32_matmul_precision(precision)
    assert noted_there[0] == noted
    assert {"before", "then"} <= {*noted_there[1]}


def _drawn_on_one_side(x: Tensor) -> Tensor:
    generator = random.Random(3)
    return x * generator.random() if x.sum() > 0 else x


def _drawn_again(x: Tensor) -> Tensor:
    generator = random.Random(3)
    if x.sum() > 0:
        x = x * generator.random()
    return x * generator.random()


def _seeded_on_one_side(x: Tensor) -> Tensor:
    generator = random.Random(3)
    if x.sum() > 0:
        generator.seed(5)
    return x * generator.random()


@pytest.mark.parametrize("program", [_drawn_on_one_side, _drawn_again, _seeded_on_one_side])
def test_a_generator_of_the_call_is_as_it_was_behind_arms_that_were_refused(program: Any) -> None:
    calls = lambda: [call(torch.tensor([1.0, x])) for x in (1.0, -3.0, 2.0)]  # noqa: E731
    options: Any = {"graphs": None, "recompiles": None, "fullgraph": False}
    assert_equivalent(lambda: program, calls, **options)
