"""What stands in for calls is equal to them, and holds in patched code alone."""

from __future__ import annotations

import copy
import re
import warnings
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor
from torch._dynamo.exc import Unsupported
from torch.autograd import Variable

import bcmend
from bcmend.dynamo.handlers import PASS
from bcmend.dynamo.values import constant
from bcmend.knowledge.substitute_rows import Substitute
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes import dispatch
from tests.equivalence import assert_equivalent, call
from tests.tracing.in_trace import during_trace

Program = Callable[..., Any]


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    bcmend.unpatch()


def _whole(program: Program, *arguments: Any) -> Any:
    """Call a program, patched and compiled to one graph."""
    return bcmend.compile(program, backend="eager", fullgraph=True)(*arguments)


def _equal(program: Program, *inputs: Any, **options: Any) -> None:
    for backend in ("eager", "aot_eager"):
        assert_equivalent(
            lambda: program,
            lambda: copy.deepcopy(inputs),
            backend=backend,
            fullgraph=True,
            **options,
        )


def _slugs(program: Program) -> set[str | None]:
    return {site.refusal for site in bcmend.report(program).sites}


# Variable


@pytest.mark.parametrize("training", [False, True])
def test_variable(training: bool) -> None:
    def program(x: Tensor) -> tuple[Any, ...]:
        h = x * 2
        y = Variable(h)
        z = Variable(data=x, requires_grad=False)
        return y + h, y is h, y.requires_grad, y.is_leaf, z, Variable(h, False, False).dtype

    _equal(program, call(torch.ones(3)), call(torch.zeros(3)), training=training)


def test_variable_shares_memory_with_what_it_is_of() -> None:
    def program(x: Tensor) -> tuple[Tensor, Tensor]:
        y = Variable(x)
        y.mul_(3)
        return x + 1, y

    _equal(program, call(torch.ones(3)), training=False)


def test_what_is_an_instance_of_variable() -> None:
    def program(x: Tensor) -> tuple[bool, ...]:
        return (
            isinstance(x, Variable),
            isinstance(x.shape, Variable),
            isinstance([x], (list, Variable)),
            isinstance(x, (Variable, int)),
        )

    def with_tensors(x: Tensor) -> tuple[Tensor, tuple[bool, ...]]:
        return x * 2, program(x)

    _equal(with_tensors, call(torch.ones(3)), training=False)


class Marked(torch.Tensor):
    """A subclass, which ``Variable`` takes away."""


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda: Variable(torch.ones(3), volatile=True), "volatile"),
        (lambda: Variable(torch.ones(3).as_subclass(Marked)), "plain"),
        (lambda: Variable(torch.ones(3, dtype=torch.int64), requires_grad=True), "gradients"),
    ],
)
def test_variable_that_is_something_else_stays(make: Program, why: str) -> None:
    with pytest.raises(Unsupported), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        _whole(make)
    (site,) = bcmend.report(make).refused
    assert site.refusal == "no-equal-substitute" and why in site.detail


def test_only_patched_code_is_traced_otherwise() -> None:
    def program(x: Tensor) -> Tensor:
        return Variable(x) * 2

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        with pytest.raises(Unsupported):
            torch.compile(program, backend="eager", fullgraph=True)(torch.ones(2))
        assert torch.equal(_whole(program, torch.ones(2)), torch.full((2,), 2.0))
        bcmend.unpatch()
        torch._dynamo.reset()
        with pytest.raises(Unsupported):
            torch.compile(program, backend="eager", fullgraph=True)(torch.ones(2))


def test_the_report_names_the_call_and_a_policy_switches_it_off() -> None:
    def program(x: Tensor) -> Tensor:
        return Variable(x) * 2

    _whole(program, torch.ones(2))
    (site,) = bcmend.report(program).mended
    assert (site.kind, site.lowering) == ("call", "substitute")
    assert site.line == program.__code__.co_firstlineno + 1
    bcmend.unpatch()
    torch._dynamo.reset()
    kept = bcmend.patch(program, policy=bcmend.Policy(off=(site.name,)))
    with pytest.raises(Unsupported), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(kept, backend="eager", fullgraph=True)(torch.ones(2))


# requires_grad


def test_requires_grad() -> None:
    layer = torch.nn.Linear(3, 2)

    def program(x: Tensor) -> Tensor:
        h = x[None]
        h.requires_grad = True
        y = Variable(x + 1, requires_grad=True)
        return layer(h).relu() + layer(y)

    _equal(program, call(torch.tensor([1, 2, 3]).float()), training=False)
    torch._dynamo.reset()
    with torch.enable_grad():
        x = torch.tensor([1.0, 2.0, 3.0])
        result = bcmend.compile(program, backend="aot_eager", fullgraph=True)(x)
        assert result.requires_grad and not x.requires_grad
        assert torch.equal(result, program(x))
        result.sum().backward()
    compiled = layer.weight.grad
    layer.weight.grad = None
    program(x).sum().backward()
    assert compiled is not None and layer.weight.grad is not None
    assert torch.equal(compiled, layer.weight.grad)


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize(
    "make",
    [
        lambda x, wanted: torch.zeros_like(x, requires_grad=wanted),
        lambda x, wanted: torch.ones(3, requires_grad=wanted),
        lambda x, wanted: torch.full((3,), 2.0, requires_grad=wanted),
        lambda x, wanted: torch.rand(3, requires_grad=wanted),
        lambda x, wanted: torch.tensor([1.0, 2.0, 3.0], requires_grad=wanted),
    ],
)
def test_a_tensor_that_is_made_as_a_leaf(make: Any, training: bool) -> None:
    class Program(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(3, 2)

        def forward(self, x: Tensor) -> tuple[Tensor, bool, Tensor]:
            made = make(x, self.training)
            y = self.layer(x + made)
            return (y.relu() if y.sum() > 0 else -y), made.requires_grad, torch.rand(1)

    calls = lambda: [call(torch.ones(3)), call(-torch.ones(3))]  # noqa: E731
    assert_equivalent(Program, calls, training=training)


def test_a_leaf_that_is_made_and_told_from_others_stays() -> None:
    def program(x: Tensor) -> Any:
        made = torch.ones(3, requires_grad=True)
        return made * 2, x

    with torch.enable_grad():
        with pytest.raises(Unsupported):
            _whole(program, torch.ones(3))
        torch._dynamo.reset()
        found = torch.compile(program, backend="eager")(torch.ones(3))
        assert found[0].requires_grad


@pytest.mark.parametrize("form", ["computed from", "both", "a view"])
def test_a_leaf_that_can_be_told_stays(form: str) -> None:
    def program(x: Tensor) -> Any:
        h = x + 1
        view = h.view(-1)
        h.requires_grad = True
        return {"computed from": h * 2, "both": (h, h * 2), "a view": (h, view)}[form]

    with torch.enable_grad():
        with pytest.raises(Unsupported):
            _whole(program, torch.ones(3))
        assert _slugs(program) == {"no-equal-substitute"}
        torch._dynamo.reset()
        found = torch.compile(program, backend="eager")(torch.ones(3))
        expected = program(torch.ones(3))
        pairs = zip(_listed(found), _listed(expected), strict=True)
        assert all(one.requires_grad is other.requires_grad for one, other in pairs)


def _listed(found: Any) -> list[Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


@pytest.mark.parametrize("backend", ["eager", "aot_eager", "inductor"])
def test_a_leaf_that_only_leaves_the_graph_is_one_behind_it(backend: str) -> None:
    kept = torch.nn.Module()

    def program(x: Tensor) -> Any:
        h, y = x.detach().requires_grad_(), (x * 2).detach()
        y.requires_grad = True
        kept.latest = y
        print(y.requires_grad)
        return [h, x + 1, h]

    for requires_grad in (True, False):
        calls = lambda: [  # noqa: E731
            call(torch.arange(3.0, requires_grad=requires_grad))  # noqa: B023
        ]
        assert_equivalent(lambda: program, calls, backend=backend, training=requires_grad)
    bcmend.patch(program)
    with torch.enable_grad():
        found = torch.compile(program, backend=backend, fullgraph=True)(torch.ones(3))
    (found[0] * 3 + kept.latest * 5).sum().backward()
    assert found[0] is found[2] and torch.equal(found[0].grad, torch.full((3,), 3.0))
    assert torch.equal(kept.latest.grad, torch.full((3,), 5.0))


def test_the_flag_of_an_argument_is_kept_or_changed_in_front_of_the_graph() -> None:
    def program(x: Tensor) -> Tensor:
        x.requires_grad = True
        return x * 2

    for given in (torch.ones(3, requires_grad=True), torch.ones(3)):
        assert _whole(program, given).requires_grad
        assert given.requires_grad


def test_an_argument_that_was_changed_is_left_alone() -> None:
    def program(x: Tensor) -> Tensor:
        y = x + 1
        x.mul_(2)
        x.requires_grad = True
        return x * y

    with pytest.raises(Unsupported):
        _whole(program, torch.ones(3))
    plain = torch.ones(3)
    torch._dynamo.reset()
    assert torch.compile(program, backend="eager")(plain).requires_grad
    assert plain.requires_grad


# Checks


def test_check() -> None:
    def program(x: Tensor, low: float) -> Tensor:
        y = x * 2
        torch._check_with(ValueError, x.dim() == 1, lambda: f"{x}")
        torch._check_with(LookupError, (y > low).all().item(), lambda: f"{y.min()} of {y}")
        torch._check(int(x.sum()) < 9, lambda: f"{x.sum()} is large")
        return y + 1

    x = torch.tensor([1.0, 2.0])
    _equal(program, call(x, 0.0), call(-x, 0.0), call(x * 5, 0.0), training=False)


def test_check_that_fails_while_it_is_traced() -> None:
    def program(x: Tensor) -> Any:
        try:
            torch._check_type(x.dim() == 2, lambda: f"{x.shape} are too few")
        except TypeError as error:
            return x * 2, str(error), error.args
        return x

    _equal(program, call(torch.ones(3)), training=False)


@pytest.mark.parametrize("rows", [2, 3])
def test_assertion(rows: int) -> None:
    def program(x: Tensor) -> Any:
        y = x if x.sum() < 9 else -x
        try:
            torch._assert(len(x) == rows, f"{x.shape} is no shape of {rows}")
        except AssertionError as error:
            return y * 2, str(error), error.args
        return y + 1

    _equal(program, call(torch.ones(3)), training=False)


def test_check_of_a_tensor() -> None:
    def program(x: Tensor) -> Tensor:
        torch._check_tensor_all(x > 0, lambda: f"{x.min()} is not positive")
        torch._check_tensor_all_with(KeyError, (x < 9)[:2])
        return x * 2

    x = torch.tensor([1.0, 2.0])
    _equal(program, call(x), call(-x), call(x * 5), training=False)


def test_check_claims_the_size_of_what_is_made_of_a_number() -> None:
    def program(x: Tensor) -> Tensor:
        number = (x > 0).sum().item()
        torch._check(number >= 2, lambda: f"{number} of {x}")
        torch._check(number <= 3)
        return x.narrow(0, 0, number) * 2

    calls = [call(torch.arange(4.0) - less) for less in (0, 2, -1, 1)]
    _equal(program, *calls, training=False)


# What the user registers


def test_registered_functions_are_traced_as_their_replacements() -> None:
    @torch.compiler.disable
    def slow(x: Tensor, by: float = 2.0) -> Tensor:
        return x * by

    def program(x: Tensor) -> Tensor:
        return slow(x) + slow(x, by=3.0)

    bcmend.register_capture(slow, lambda x, by=2.0: x * by)
    _equal(program, call(torch.ones(3)), call(torch.zeros(3)))


def test_registered_methods_are_given_their_object() -> None:
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        @torch.compiler.disable
        def apply(self, x: Tensor) -> Tensor:
            return x * self.by

    one, other = Scale(2.0), Scale(3.0)

    def program(x: Tensor) -> Tensor:
        return one.apply(x) + other.apply(x)

    bcmend.register_capture(Scale.apply, lambda self, x: x * self.by)
    assert torch.equal(_whole(program, torch.ones(2)), torch.full((2,), 5.0))
    one.by = 7.0
    assert torch.equal(_whole(program, torch.ones(2)), torch.full((2,), 10.0))


def test_a_replacement_may_call_what_it_replaces() -> None:
    def halved(x: Tensor) -> Tensor:
        return x / 2

    def program(x: Tensor) -> Tensor:
        return halved(x)

    bcmend.register_capture(halved, lambda x: halved(x) + 0)
    _equal(program, call(torch.ones(3)), training=False)


def test_a_replacement_that_raises() -> None:
    def checked(x: Tensor, count: int) -> Tensor:
        if count > 2:
            raise KeyError("count", count)
        return x * count

    def program(x: Tensor) -> Any:
        try:
            return checked(x, 2), checked(x, 3)
        except KeyError as error:
            return x, error.args

    bcmend.register_capture(checked, lambda x, count: checked(x * 1, count))
    _equal(program, call(torch.ones(3)), training=False)


def test_a_replacement_may_use_what_is_around_it() -> None:
    weight = torch.ones(3)

    @torch.compiler.disable
    def scaled(x: Tensor) -> Tensor:
        return x * weight

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            return scaled(x)
        return x

    bcmend.register_capture(scaled, lambda x: x * weight)
    compiled = bcmend.compile(program, backend="eager", fullgraph=True)
    assert torch.equal(compiled(torch.ones(3)), torch.ones(3))
    weight.fill_(4)
    assert torch.equal(compiled(torch.ones(3)), torch.full((3,), 4.0))


def test_what_stands_behind_a_graph_break_is_substituted_too() -> None:
    def program(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return Variable(x) + 1

    inputs = [call(torch.ones(3)), call(torch.zeros(3))]
    assert_equivalent(lambda: program, lambda: inputs, fullgraph=False, graphs=2)
    compiled = bcmend.compile(program, backend="eager")
    compiled(torch.ones(3))
    (site,) = (each for each in bcmend.report(compiled).sites if each.kind == "call")
    assert (site.status, site.function) == ("mended", program.__qualname__)


# The protocol, called directly


def _answered(tx: Any, answer: Any, site: Any = None) -> Any:
    """Return what becomes of a call of a row that ``answer`` is asked for, and its site."""
    row = Substitute("package.function", "of this test")
    site = site or LiveSite("key", "call", tx.f_code)
    with (
        mock.patch.dict(dispatch.ANSWERS, {row.answer: answer}),
        mock.patch.object(site_table, "site_being_traced", return_value=site),
    ):
        return dispatch._given(tx, row, None, None), site


def test_a_value_is_given_and_noted() -> None:
    def body(tx: Any, x: Any) -> Any:
        found, site = _answered(tx, lambda call: call.tx is tx and constant(call.name))
        return found.as_python_constant(), site.outcome.lowering, site.outcome.refused

    assert during_trace(body, torch.ones(1)) == ("package.function", "substitute", {})


def test_a_refusal_is_passed_on_and_noted() -> None:
    def refuse(call: Any) -> Any:
        raise dispatch.unequal("it is green")

    def body(tx: Any, x: Any) -> Any:
        found, site = _answered(tx, refuse)
        return found, site.outcome.refused

    expected = PASS, {"no-equal-substitute": "package.function: it is green"}
    assert during_trace(body, torch.ones(1)) == expected


def test_pass_is_passed_on_and_not_noted() -> None:
    def body(tx: Any, x: Any) -> Any:
        found, site = _answered(tx, lambda call: PASS)
        return found, site.outcome.lowering, site.outcome.refused

    assert during_trace(body, torch.ones(1)) == (PASS, "", {})


def test_no_answer_is_asked_for_outside_of_patched_code() -> None:
    asked: list[Any] = []
    found = during_trace(
        lambda tx, x: _answered(tx, asked.append)[0], torch.ones(1), is_mended=False
    )
    assert found is PASS and not asked


def test_no_answer_is_asked_for_once_a_site_is_withdrawn() -> None:
    def body(tx: Any, x: Any) -> Any:
        _, site = _answered(tx, lambda call: PASS)
        with pytest.raises(Falsified):
            dispatch.withdraw(site, "it is green")
        return _answered(tx, lambda call: constant(1), site)[0], site.withdrawn

    expected = PASS, "no-equal-substitute"
    assert during_trace(body, torch.ones(1)) == expected


def test_a_call_that_is_not_in_the_table_is_passed_on() -> None:
    assert dispatch._given(None, None, len, None) is PASS  # type: ignore[arg-type]


def test_rows_are_found_by_callable_method_and_stop() -> None:
    def taken_over() -> None:
        pass

    row = Substitute("taken over", "host function")
    assert dispatch.take_over(taken_over, row) and not dispatch.take_over(taken_over, _ROW)

    def body(tx: Any, x: Any) -> Any:
        method = SimpleNamespace(obj=x, name="requires_grad_")
        values = [method, *(SimpleNamespace(fn=each) for each in (copy.copy, taken_over, len))]
        rows = [dispatch._row_of(tx, each) for each in values]
        return [found and found.name for found, _, _ in rows], rows[0][2] is x

    names = ["torch.Tensor.requires_grad_", "copy.copy", "taken over", None]
    assert during_trace(body, torch.ones(1)) == (names, True)


_ROW = Substitute("another", "host function")


def test_what_is_not_done_always_is_refused() -> None:
    root = SimpleNamespace(parent=None)
    for tracer, is_refused in ((root, False), (SimpleNamespace(parent=root), True)):
        tx: Any = SimpleNamespace(output=SimpleNamespace(current_tracer=tracer))
        found = attempt(lambda tx=tx: dispatch.require_always(tx, "called"))  # type: ignore[misc]
        assert isinstance(found, Refusal) is is_refused


MARKS = (re.compile("a"), re.compile("b"))


def test_a_method_of_a_class_written_in_c_is_looked_up() -> None:
    # Its descriptor wants to be told the class: CPython 3.11 crashes otherwise.
    def program(x: Tensor, text: str) -> tuple[Tensor, str]:
        for mark in MARKS:
            text = mark.sub("-", text)
        return (x if x.sum() > 0 else -x), text

    x = torch.tensor([1.0, -3.0])
    expected = program(x, "cab")
    bcmend.patch(program)
    found = torch.compile(program, backend="eager")(x, "cab")
    assert torch.equal(found[0], expected[0]) and found[1] == expected[1] == "c--"
