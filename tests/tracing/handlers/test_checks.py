"""``torch._assert`` and ``torch._check*``: what is known, and what becomes a side exit."""

from __future__ import annotations

import inspect
import math
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.tracing.handlers import checks
from bcmend.tracing.numbers import scalars
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace, substituted, trace

TRUE, FALSE = torch.tensor(True), torch.tensor(False)


BY_DYNAMO = constant("by Dynamo")


def _asserted(tx: Any, *given: Any, **named: Any) -> Any:
    def by_dynamo(*all_of_it: Any, **by_name: Any) -> Any:
        return BY_DYNAMO

    return checks._assert(by_dynamo, None, tx, *given, **named)


def _asserted_with_a_text(tx: Any, condition: Any) -> Any:
    return _asserted(tx, condition, constant("why"))


def _checked(tx: Any, condition: Any, function: Any = torch._check, **more: Any) -> Any:
    return checks._check(substituted(tx, function, condition, **more))


def test_an_assertion_that_fails_has_the_call_made_in_plain_python() -> None:
    assert trace(_asserted_with_a_text, TRUE) is None
    in_plain_python = trace(_asserted_with_a_text, FALSE)
    assert in_plain_python[0] is FALSE


@pytest.mark.parametrize("condition", [constant(True), constant(False)])
def test_an_assertion_of_a_constant_is_left_to_dynamo(condition: Any) -> None:
    assert during_trace(lambda tx, x: _asserted_with_a_text(tx, condition), TRUE) is BY_DYNAMO


def _assert_that_boxes_are_boxes(boxes: Tensor) -> Tensor:
    wrong = boxes[:, 1] <= boxes[:, 0]
    if wrong.any():
        first = boxes[torch.where(wrong)[0][0]].tolist()
        torch._assert(False, f"a box of {boxes.shape[1]} numbers is empty: {first}")
    return boxes * 2


def test_an_assertion_that_fails_in_an_arm_raises_there() -> None:
    boxes = [torch.tensor([[0.0, 1.0]]), torch.tensor([[0.0, 1.0], [3.0, 2.0]])]
    assert_equivalent(
        lambda: _assert_that_boxes_are_boxes,
        lambda: [call(each) for each in boxes],
        recompiles=None,
        graphs=None,
    )


@pytest.mark.parametrize(
    ("export", "one_graph", "expected"),
    [(False, False, None), (False, True, BY_DYNAMO), (True, False, BY_DYNAMO)],
)
def test_an_assertion_that_cannot_exit_is_traced_as_a_call_where_the_graph_may_break(
    export: bool, one_graph: bool, expected: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def body(tx: Any, several: Any) -> Any:
        monkeypatch.setattr(tx, "export", export)
        monkeypatch.setattr(tx, "one_graph", one_graph)
        found = _asserted_with_a_text(tx, several)
        monkeypatch.undo()
        return found

    assert during_trace(body, torch.tensor([True, True])) is expected


def test_an_assertion_in_code_that_is_not_mended_is_traced_as_a_call() -> None:
    assert during_trace(_asserted_with_a_text, TRUE, is_mended=False) is None


def test_an_assertion_without_a_message_is_traced_as_a_call() -> None:
    assert during_trace(_asserted, TRUE) is None


def test_the_condition_of_an_assertion_may_be_a_keyword() -> None:
    def body(tx: Any, condition: Any) -> Any:
        return _asserted(tx, message=constant("why"), condition=condition)

    assert trace(body, FALSE)[0] is FALSE


def test_a_check_that_is_known_to_hold_is_nothing() -> None:
    found = during_trace(lambda tx, x: _checked(tx, constant(True)), TRUE)
    assert found.as_python_constant() is None


def test_a_check_that_is_known_to_fail_raises_its_exception() -> None:
    def body(tx: Any, x: Any) -> Any:
        with pytest.raises(compat.ObservedException) as caught:
            _checked(tx, constant(False), torch._check_index)
        compat.handle_observed_exception(tx)
        return type(caught.value)

    assert during_trace(body, TRUE) is compat.observed_exception_map[IndexError]


@pytest.mark.parametrize(("number", "holds"), [(3.0, True), (-3.0, False)])
def test_a_check_of_a_number_is_a_side_exit(number: float, holds: bool) -> None:
    def body(tx: Any, x: Any) -> Any:
        taken = scalars.take(tx, x)
        is_positive = compat.SymNodeVariable.create(tx, taken.as_proxy() > 0)
        return _checked(tx, is_positive)

    found = trace(body, torch.tensor(number))
    assert (found is None) is holds


@pytest.mark.parametrize("condition", [constant(1), constant("yes")])
def test_a_check_of_what_is_no_truth_is_passed_on(condition: Any) -> None:
    assert during_trace(lambda tx, x: _checked(tx, condition), TRUE) is PASS


def _all_checked(tx: Any, condition: Any) -> Any:
    return checks._check_all(substituted(tx, torch._check_tensor_all, condition))


def test_a_check_of_all_elements_is_one_of_their_conjunction() -> None:
    assert trace(_all_checked, torch.tensor([True, True])) is None
    assert trace(_all_checked, torch.tensor([True, False])) is not None


def test_a_check_of_numbers_in_a_tensor_is_passed_on() -> None:
    assert during_trace(_all_checked, torch.ones(2)) is PASS


@pytest.mark.parametrize(
    ("function", "args", "kwargs", "expected"),
    [
        (torch._check, ("c",), {}, (RuntimeError, "c", None)),
        (torch._check, (), {"cond": "c", "message": "m"}, (RuntimeError, "c", "m")),
        (torch._check_type, ("c", "m"), {}, (TypeError, "c", "m")),
        (torch._check_with, (OSError, "c", "m"), {}, (OSError, "c", "m")),
        (torch._check_with, (UserWarning, "c"), {}, None),
        (torch._check_with, (3, "c"), {}, None),
        (torch._check_with, (), {"cond": "c"}, None),
        (torch._check, ("c", "m", "more"), {}, None),
        (torch._check, ("c",), {"text": "m"}, None),
        (torch._check, (), {"message": "m"}, None),
    ],
)
def test_parts_of_a_check(function: Any, args: Any, kwargs: Any, expected: Any) -> None:
    given = [constant(each) if isinstance(each, str) else _known(each) for each in args]
    named = {name: constant(each) for name, each in kwargs.items()}
    found = checks._parts(substituted(None, function, *given, **named))
    if found is not None:
        found = found[0], *(each and each.as_python_constant() for each in found[1:])
    assert found == expected


def _known(value: Any) -> Any:
    return SimpleNamespace(as_python_constant=lambda: value)


class _Handler:
    """Stands for a handler of Dynamo that cannot take a message."""

    def __init__(self, gb_type: str) -> None:
        self.gb_type, self.calls = gb_type, list[Any]()

    def __call__(self, called: Any, tx: Any, *given: Any, **named: Any) -> Any:
        self.calls.append((given, named))
        if len(given) > 1 or named:
            raise compat.Unsupported("no", self.gb_type)
        return "checked"


_MESSAGE = "Can't extract message from torch._check*()"


@pytest.mark.parametrize("named", [{}, {"message": "m"}])
def test_a_message_that_dynamo_cannot_take_is_dropped(named: dict[str, Any]) -> None:
    def body(tx: Any, x: Any) -> Any:
        handler = _Handler(_MESSAGE)
        given = (x,) if named else (x, "m")
        found = checks._without_message(1)(handler, None, tx, *given, **named)
        return found, handler.calls[-1] == ((x,), {})

    assert during_trace(body, TRUE) == ("checked", True)


@pytest.mark.parametrize("condition", [2, 0.5, None, "text"])
@pytest.mark.parametrize("position", [1, 2])
def test_a_check_of_no_truth_keeps_its_message_and_fails_in_plain_python(
    condition: object, position: int
) -> None:
    def body(tx: Any, x: Any) -> Any:
        handler = _Handler(_MESSAGE)
        given = [constant(None)] * (position - 1)
        with pytest.raises(compat.Unsupported):
            checks._without_message(position)(
                handler, None, tx, *given, constant(condition), message="m"
            )
        with pytest.raises(compat.Unsupported):
            checks._without_message(position)(
                handler, None, tx, *given, cond=constant(condition), message="m"
            )
        return len(handler.calls)

    assert during_trace(body, TRUE) == 2


@pytest.mark.parametrize(("gb_type", "is_mended"), [("another", True), (_MESSAGE, False)])
def test_other_graph_breaks_of_a_check_stay(gb_type: str, is_mended: bool) -> None:
    def body(tx: Any, x: Any) -> Any:
        handler = _Handler(gb_type)
        with pytest.raises(compat.Unsupported):
            checks._without_message(1)(handler, None, tx, "c", "m")
        return len(handler.calls)

    assert during_trace(body, TRUE, is_mended=is_mended) == 1


def test_a_check_without_a_handler_of_dynamo_has_none() -> None:
    assert checks._without_message(1)(None, None, None, "c", "m") is None


def test_the_message_is_the_last_parameter_of_every_check() -> None:
    for function, position in checks._CHECKS.items():
        assert list(inspect.signature(function).parameters)[position] == "message"


# torch.distributions with validation

D = torch.distributions


def _normal(x: Tensor) -> Any:
    d = D.Normal(x, x, validate_args=True)
    return d.log_prob(x), d.rsample()


def _categorical(x: Tensor) -> Any:
    d = D.Categorical(probs=x.abs(), validate_args=True)
    sample = d.sample()
    return sample, d.log_prob(sample), d.entropy()


def _bernoulli_of_no_truth(x: Tensor) -> Any:
    return D.Bernoulli(logits=x, validate_args=True).log_prob(x)


def _transformed(x: Tensor) -> Any:
    base = D.Independent(D.Normal(x, x.exp(), validate_args=True), 1, validate_args=True)
    d = D.TransformedDistribution(base, [D.TanhTransform()], validate_args=True)
    return d.log_prob(d.rsample())


def _in_an_arm(x: Tensor) -> Any:
    if x[0] > 0:
        return D.Gamma(x, 1.0, validate_args=True).log_prob(x)
    return x * 2


def _caught(x: Tensor) -> Any:
    try:
        return D.Uniform(x[1], x[0], validate_args=True).log_prob(x.mean())
    except ValueError as error:
        return str(error), x * 2


def _by_its_dependent_support(x: Tensor) -> Any:
    d = D.Uniform(torch.zeros(2), torch.ones(2), validate_args=True)
    return d.log_prob(x), d.sample()


@pytest.mark.parametrize("training", [False, True])
@pytest.mark.parametrize(
    "program",
    [
        _normal,
        _categorical,
        _bernoulli_of_no_truth,
        _transformed,
        _in_an_arm,
        _caught,
        _by_its_dependent_support,
    ],
)
def test_distributions_that_validate(program: Any, training: bool) -> None:
    def calls() -> list[Any]:
        values = ([1.0, 0.5], [2.0, -1.0], [0.0, 1.0], [-1.0, math.nan], [0.0, 0.0])
        return [call(torch.tensor(each)) for each in values]

    assert_equivalent(lambda: program, calls, training=training)


def test_what_is_true_of_all_elsewhere_is_a_tensor() -> None:
    def program(x: Tensor) -> Tensor:
        return torch._is_all_true(x > 0)

    found = bcmend.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
    assert found.equal(torch.tensor(True))


class _Scale:
    def __init__(self, factor: float) -> None:
        self.factor = factor


class _Scales(nn.Module):
    def __init__(self, *scales: _Scale) -> None:
        super().__init__()
        assert scales, "no scales"
        self.scales = scales


class _Sized:
    def __len__(self) -> int:
        return 0


def _of_a_list(x: Tensor, n: int) -> Tensor:
    scales = [_Scale(2.0)] * n
    if x.sum() > 0:
        x = x + 1
    assert scales, f"{n} scales"
    return x * scales[0].factor


def _in_a_constructor(x: Tensor, n: int) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    return x * len(_Scales(*(_Scale(2.0) for _ in range(n))).scales)


def _of_a_dictionary_in_an_arm(x: Tensor, n: int) -> Tensor:
    found = {each: _Scale(3.0) for each in range(n)}
    if x.sum() > 0:
        assert found
        x = x * found[0].factor
    return x - 1


def _of_tensors(x: Tensor, n: int) -> Tensor:
    parts = [x] * n
    if x.sum() > 0:
        x = x + 1
    assert parts, "no parts"
    return x + parts[0]


def _that_is_caught(x: Tensor, n: int) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    try:
        assert _Sized() if n == 0 else _Scale(1.0)
        x = x * 2
    except AssertionError:
        x = x - 3
    return x


_OF_OBJECTS = [
    _of_a_list,
    _in_a_constructor,
    _of_a_dictionary_in_an_arm,
    _of_tensors,
    _that_is_caught,
]


@pytest.mark.parametrize("program", _OF_OBJECTS)
@pytest.mark.parametrize("n", [0, 2])
def test_an_assertion_of_objects_is_that_of_eager_execution(program: Any, n: int) -> None:
    def calls() -> list[Any]:
        return [call(each, n) for each in (torch.ones(2), -torch.ones(2), torch.ones(2))]

    assert_equivalent(lambda: program, calls, fullgraph=False, graphs=None, recompiles=None)


@pytest.mark.usefixtures("dynamo_begun_anew")
@pytest.mark.parametrize("program", _OF_OBJECTS)
def test_an_assertion_of_objects_is_in_the_graph(program: Any) -> None:
    mended = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    for each in (torch.ones(2), -torch.ones(2)):
        torch.testing.assert_close(mended(each, 2), program(each, 2))
