"""The comparison with eager execution can fail, in each thing that it compares."""

from __future__ import annotations

import collections
import logging
import sys
import warnings
from collections.abc import Callable
from typing import Any

import numpy
import pytest
import torch
from torch import Tensor

from tests.equivalence import assert_equivalent, call, run_compiled, run_eagerly
from tests.observation import Observation, differences, observe

Program = Callable[[Tensor], Any]

logger = logging.getLogger("tests.equivalence")
logger.setLevel(logging.DEBUG)


class Failure(Exception):
    """An exception with an attribute."""

    def __init__(self, text: str, detail: int) -> None:
        super().__init__(text)
        self.detail = detail


def _raise(error: BaseException, cause: BaseException | None = None) -> None:
    raise error from cause


def _raise_in_a_handler(text: str, context: str | None, *, hides: bool = False) -> None:
    """Raise two exceptions, always at the same lines."""
    error = _with_context(ValueError(text), None if context is None else KeyError(context))
    error.__suppress_context__ = hides
    raise error


def _with_context(error: BaseException, context: BaseException | None) -> BaseException:
    error.__context__ = context
    return error


def _draw(x: Tensor) -> Tensor:
    torch.rand(1)
    return x * 2


class Holder(torch.nn.Module):
    """A module whose parts a program can change."""

    def __init__(self, change: Callable[[Any, Tensor], Any]) -> None:
        super().__init__()
        self.register_buffer("buffer", torch.zeros(3))
        self.weight = torch.nn.Parameter(torch.ones(3))
        self.items, self.label = [1], "a"
        self.change = change

    def forward(self, x: Tensor) -> Any:
        return self.change(self, x)


def _observed(program: Any, *, training: bool = False) -> Observation:
    torch.manual_seed(0)
    x = torch.tensor([1.0, 2.0, 3.0], requires_grad=training)
    holder = program if isinstance(program, Holder) else None
    return observe(program, (x,), {}, holder, training=training)


def _changed_in_place(x: Tensor) -> Tensor:
    x.add_(1)
    return x * 1


def _first_view(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y[:2]


def _separate(x: Tensor) -> tuple[Tensor, Tensor]:
    y = x * 2
    return y, y[:2].clone()


RESULTS = {
    "bits": (lambda x: x * 2, lambda x: x * 2 + 1e-6),
    "sign of zero": (lambda x: x * 0.0, lambda x: x * -0.0),
    "dtype": (lambda x: x * 2, lambda x: (x * 2).double()),
    "shape": (lambda x: x * 2, lambda x: (x * 2)[None]),
    "strides": (lambda x: torch.ones(2, 2), lambda x: torch.ones(2, 2).t()),
    "structure": (lambda x: (x * 2,), lambda x: [x * 2]),
    "length": (lambda x: [x * 2], lambda x: [x * 2, 1]),
    "key": (lambda x: {"a": x * 2}, lambda x: {"b": x * 2}),
    "order of keys": (lambda x: {"a": 1, "b": 2}, lambda x: {"b": 2, "a": 1}),
    "number": (lambda x: 1, lambda x: 2),
    "type of number": (lambda x: 1, lambda x: True),
    "none": (lambda x: x * 2, lambda x: None),
}
STATES = {
    "argument": (lambda x: (x + 1) * 1, _changed_in_place),
    "buffer": (
        Holder(lambda self, x: x),
        Holder(lambda self, x: self.buffer.add_(1) * 0 + x),
    ),
    "item": (Holder(lambda self, x: None), Holder(lambda self, x: self.items.append(2))),
    "attribute": (
        Holder(lambda self, x: None),
        Holder(lambda self, x: setattr(self, "label", "b")),
    ),
    "new attribute": (
        Holder(lambda self, x: None),
        Holder(lambda self, x: setattr(self, "other", 1)),
    ),
}
EVENTS = {
    "text": (lambda x: print("a"), lambda x: print("b")),
    "end of line": (lambda x: print("a"), lambda x: print("a", end="")),
    "stream": (lambda x: print("a"), lambda x: print("a", file=sys.stderr)),
    "order": (
        lambda x: (print("a"), logger.info("b")),
        lambda x: (logger.info("b"), print("a")),
    ),
    "log message": (lambda x: logger.info("a"), lambda x: logger.info("b")),
    "log level": (lambda x: logger.info("a"), lambda x: logger.warning("a")),
    "logger": (lambda x: logger.warning("a"), lambda x: logging.warning("a")),
    "warning": (
        lambda x: warnings.warn("a", stacklevel=1),
        lambda x: warnings.warn("b", stacklevel=1),
    ),
    "category": (
        lambda x: warnings.warn("a", UserWarning, stacklevel=1),
        lambda x: warnings.warn("a", FutureWarning, stacklevel=1),
    ),
}
EXCEPTIONS = {
    "raised at all": (lambda x: None, lambda x: _raise(ValueError("a"))),
    "type": (lambda x: _raise(ValueError("a")), lambda x: _raise(TypeError("a"))),
    "message": (lambda x: _raise(ValueError("a")), lambda x: _raise(ValueError("b"))),
    "arguments": (lambda x: _raise(ValueError("1")), lambda x: _raise(ValueError(1))),
    "attribute": (lambda x: _raise(Failure("a", 1)), lambda x: _raise(Failure("a", 2))),
    "cause": (
        lambda x: _raise(ValueError("a"), KeyError("b")),
        lambda x: _raise(ValueError("a"), KeyError("c")),
    ),
    "context": (lambda x: _raise_in_a_handler("a", "b"), lambda x: _raise_in_a_handler("a", "c")),
    "context at all": (
        lambda x: _raise_in_a_handler("a", "b"),
        lambda x: _raise_in_a_handler("a", None),
    ),
    "context of the cause": (
        lambda x: _raise(ValueError("a"), _with_context(KeyError("b"), OSError("c"))),
        lambda x: _raise(ValueError("a"), _with_context(KeyError("b"), OSError("d"))),
    ),
    "hiding of the context": (
        lambda x: _raise_in_a_handler("a", "b"),
        lambda x: _raise_in_a_handler("a", "b", hides=True),
    ),
}


def _cases(table: dict[str, tuple[Any, Any]]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize(("one", "other"), table.values(), ids=table.keys())


def _aspects(one: Observation, other: Observation, **allowed: Any) -> set[str]:
    return {each.partition(":")[0].partition(".")[0] for each in differences(one, other, **allowed)}


@_cases({**RESULTS, **EVENTS, **EXCEPTIONS})
def test_a_program_is_equal_to_itself(one: Program, other: Program):
    for program in (one, other):
        assert list(differences(_observed(program), _observed(program))) == []


@_cases(RESULTS)
def test_results_are_compared(one: Program, other: Program):
    assert "result" in _aspects(_observed(one), _observed(other))


@_cases(STATES)
def test_state_is_compared(one: Program, other: Program):
    assert "state" in _aspects(_observed(one), _observed(other))


@_cases(EVENTS)
def test_output_is_compared(one: Program, other: Program):
    assert "events" in _aspects(_observed(one), _observed(other))


@_cases(EXCEPTIONS)
def test_exceptions_are_compared(one: Program, other: Program):
    assert "raised" in _aspects(_observed(one), _observed(other))


def test_the_line_of_an_exception_is_compared():
    def program(x: Tensor) -> None:
        if x.sum() > 0:
            raise ValueError("a")
        raise ValueError("a")

    ahead = observe(program, (torch.ones(1),), {}, None, training=False)
    behind = observe(program, (-torch.ones(1),), {}, None, training=False)
    found = [each for each in differences(ahead, behind) if each.startswith("raised")]
    assert len(found) == 1 and "where" in found[0]


def test_the_place_of_a_log_record_and_of_a_warning_is_compared():
    def program(x: Tensor, speak: Callable[..., None]) -> None:
        if x.sum() > 0:
            speak("a")
        else:
            speak("a")

    for speak in (logger.warning, warnings.warn):
        ahead = observe(program, (torch.ones(1), speak), {}, None, training=False)
        behind = observe(program, (-torch.ones(1), speak), {}, None, training=False)
        assert "events" in _aspects(ahead, behind)


def test_memory_shared_by_results_is_compared():
    one, other = _observed(_first_view), _observed(_separate)
    assert _aspects(one, other) == {"aliases"}
    assert _aspects(one, other, may_copy=True) == set()
    assert _aspects(other, one, may_copy=True) == {"aliases"}


def _twice(other: Program) -> Observation:
    def program(x: Tensor) -> tuple[Tensor, Any]:
        y = x * 2
        return y, other(y)

    return _observed(program)


def test_results_may_be_one_object_where_a_back_end_joins_what_shares_memory():
    joined, sharing, apart = _twice(lambda y: y), _twice(Tensor.detach), _twice(Tensor.clone)
    assert _aspects(sharing, joined) == {"aliases"}
    assert _aspects(sharing, joined, may_join=True) == set()
    assert _aspects(joined, sharing, may_join=True) == {"aliases"}
    assert _aspects(apart, joined, may_join=True) == {"aliases"}


def _row(holder: Any) -> list[Any]:
    return holder.items  # type: ignore[no-any-return]


def _copied_row(holder: Any) -> list[Any]:
    return [*holder.items]


def _keeps(holder: Any, kept: Any) -> Any:
    holder.kept = kept
    return kept


def _slotted(value: int) -> Any:
    class Slotted:
        __slots__ = ("value",)

    found = Slotted()
    found.value = value  # type: ignore[attr-defined]
    return found


IDENTITIES: dict[str, tuple[Any, Any]] = {
    "a result that is in the state": (lambda h, x: _row(h), lambda h, x: _copied_row(h)),
    "a part of a result": (lambda h, x: {"a": (_row(h),)}, lambda h, x: {"a": (_copied_row(h),)}),
    "one list twice": (lambda h, x: [_row(h)] * 2, lambda h, x: [_row(h), _copied_row(h)]),
    "a tuple": (lambda h, x: _keeps(h, (x.sum(),)), lambda h, x: (*_keeps(h, (x.sum(),)),)),
    "a deque": (
        lambda h, x: _keeps(h, collections.deque([1])),
        lambda h, x: _keeps(h, collections.deque([1])).copy(),
    ),
    "an array": (
        lambda h, x: _keeps(h, numpy.ones(2)),
        lambda h, x: _keeps(h, numpy.ones(2)).copy(),
    ),
    "memory of arrays": (
        lambda h, x: _keeps(h, numpy.ones(2))[:1],
        lambda h, x: _keeps(h, numpy.ones(2))[:1].copy(),
    ),
    "memory of an array and a tensor": (
        lambda h, x: _keeps(h, x.numpy()),
        lambda h, x: _keeps(h, x.clone().numpy()),
    ),
}
CONTENTS: dict[str, tuple[Any, Any]] = {
    "items of a deque": (lambda h, x: collections.deque([1]), lambda h, x: collections.deque([2])),
    "items of an array": (lambda h, x: numpy.zeros(2), lambda h, x: numpy.ones(2)),
    "dtype of an array": (lambda h, x: numpy.zeros(2), lambda h, x: numpy.zeros(2, dtype="f4")),
    "a scalar of numpy": (lambda h, x: numpy.float64(1), lambda h, x: numpy.float64(2)),
    "bytes": (lambda h, x: bytearray(b"a"), lambda h, x: bytearray(b"b")),
    "a slot": (lambda h, x: _slotted(1), lambda h, x: _slotted(2)),
    "what an iterator has left": (lambda h, x: iter([1]), lambda h, x: iter([1, 2])),
    "arguments of an exception that is kept": (
        lambda h, x: ValueError(1),
        lambda h, x: ValueError(2),
    ),
}


@_cases({**IDENTITIES, **CONTENTS})
def test_which_objects_are_one_and_what_they_hold_is_compared(one: Any, other: Any):
    first, second = _observed(Holder(one)), _observed(Holder(other))
    assert _aspects(first, _observed(Holder(one))) == set()
    assert _aspects(first, second) & {"result", "state", "aliases"}


COUNTED: list[int] = []
NAMED = {"count": 0}


def _counts(more: int) -> Any:
    def make() -> Program:
        def program(x: Tensor) -> Tensor:
            COUNTED.append(more)
            NAMED["count"] += more
            return x + 1

        return program

    return make


def test_globals_are_compared_and_begin_anew_with_each_run():
    one, again, other = (
        run_eagerly(_counts(more), _vectors, training=False, patched=False) for more in (1, 1, 2)
    )
    assert all(_aspects(*each) == set() for each in zip(one, again, strict=True))
    assert _aspects(one[0], other[0]) == {"state"}
    assert COUNTED == [] and NAMED == {"count": 0}


def test_a_result_that_is_an_argument_is_compared():
    assert "aliases" in _aspects(_observed(lambda x: x), _observed(lambda x: x * 1))


def test_gradients_of_arguments_are_compared():
    one = _observed(lambda x: x * 2, training=True)
    other = _observed(lambda x: x + x.detach(), training=True)
    assert _aspects(one, other) == {"gradient of "}


def test_gradients_of_parameters_are_compared():
    one = Holder(lambda self, x: x * 2 + self.weight)
    other = Holder(lambda self, x: x * 2 + self.weight**3)
    assert "gradient of weight" in _aspects(
        _observed(one, training=True), _observed(other, training=True)
    )


def test_a_gradient_of_zeros_where_there_is_none_has_to_be_allowed():
    one = _observed(Holder(lambda self, x: x * 2), training=True)
    other = _observed(Holder(lambda self, x: x * 2 + self.weight * 0), training=True)
    assert "gradient of weight" in _aspects(one, other)
    assert "gradient of weight" not in _aspects(one, other, zero_gradients=True)
    assert "gradient of weight" in _aspects(other, one, zero_gradients=True)


def test_another_gradient_is_never_allowed():
    one = _observed(Holder(lambda self, x: x * 2), training=True)
    other = _observed(Holder(lambda self, x: x * 2 + self.weight), training=True)
    assert "gradient of weight" in _aspects(one, other, zero_gradients=True)


def test_whether_gradients_flow_is_compared():
    one = _observed(lambda x: (x * 2).detach(), training=True)
    other = _observed(lambda x: x * 2, training=True)
    assert "result" in _aspects(one, other)
    assert "result" not in _aspects(one, other, zero_gradients=True)
    assert "result" in _aspects(other, one, zero_gradients=True)


def test_random_numbers_drawn_are_compared():
    one, other = _observed(lambda x: x * 2), _observed(_draw)
    assert _aspects(one, other) == {"random_state"}
    assert _aspects(one, other, any_random_state=True) == set()


def test_values_within_the_tolerance_are_accepted():
    one, other = _observed(lambda x: x * 2), _observed(lambda x: x * 2 + 1e-6)
    assert _aspects(one, other, tolerance=1e-5) == set()
    assert _aspects(one, other, tolerance=1e-9) == {"result"}


def test_not_a_number_is_equal_to_itself_only():
    nan, one = _observed(lambda x: x * float("nan")), _observed(lambda x: x)
    assert "result" not in _aspects(nan, _observed(lambda x: x * float("nan")))
    assert "result" in _aspects(nan, one)


def _vectors() -> list[Any]:
    return [call(torch.tensor([1.0, 2.0])), call(torch.tensor([-1.0, 2.0]))]


def _make_honest() -> Program:
    def program(x: Tensor) -> Tensor:
        return x * 2

    return program


def _make_different_when_compiled() -> Program:
    def program(x: Tensor) -> Tensor:
        if torch.compiler.is_compiling():
            return x * 3
        return x * 2

    return program


def _make_silent_when_compiled() -> Program:
    def program(x: Tensor) -> Tensor:
        if not torch.compiler.is_compiling():
            print("spoken")
        return x * 2

    return program


def _make_broken() -> Program:
    def program(x: Tensor) -> Tensor:
        x = x * 2
        torch._dynamo.graph_break()
        return x + 1

    return program


def _make_recompiling() -> Program:
    counter = [0]

    def program(x: Tensor) -> Tensor:
        counter.append(len(counter))
        return x * len(counter)

    return program


def test_an_equivalent_program_passes():
    found = assert_equivalent(_make_honest, _vectors)
    assert (found.graphs, found.recompiles) == (1, 0)


@pytest.mark.parametrize("make", [_make_different_when_compiled, _make_silent_when_compiled])
@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_a_program_that_differs_when_compiled_fails(make: Callable[[], Program], backend: str):
    with pytest.raises(AssertionError, match="compiled: call 0"):
        assert_equivalent(make, _vectors, backend=backend)


def test_a_program_that_differs_when_patched_fails():
    made: list[int] = []

    def make() -> Program:
        made.append(1)
        scale = len(made)

        def program(x: Tensor) -> Tensor:
            return x * scale

        return program

    with pytest.raises(AssertionError, match="patched, in eager execution: call 0"):
        assert_equivalent(make, _vectors)


def test_a_graph_break_fails():
    with pytest.raises(AssertionError, match="Unsupported"):
        assert_equivalent(_make_broken, _vectors)
    with pytest.raises(AssertionError, match="2 graphs, not 1"):
        assert_equivalent(_make_broken, _vectors, fullgraph=False)
    assert_equivalent(_make_broken, _vectors, fullgraph=False, graphs=2)


def test_a_recompile_fails():
    with pytest.raises(AssertionError, match="compiled after the first call"):
        assert_equivalent(_make_recompiling, _vectors, graphs=None)
    assert_equivalent(_make_recompiling, _vectors, graphs=None, recompiles=None)


def test_the_counting_backend_counts_what_was_compiled():
    assert run_compiled(_make_honest, _vectors, backend="aot_eager").graphs == 1
    assert run_compiled(_make_broken, _vectors, fullgraph=False).graphs == 2


def test_whose_method_one_is_is_seen() -> None:
    def of_the_first(holder: Any, x: Tensor) -> Tensor:
        holder.rows = [1], [1]
        holder.put = holder.rows[0].append
        return x

    def of_the_second(holder: Any, x: Tensor) -> Tensor:
        holder.rows = [1], [1]
        holder.put = holder.rows[1].append
        return x

    one, other = (_observed(Holder(each)) for each in (of_the_first, of_the_second))
    assert _aspects(one, other) == {"state"}
