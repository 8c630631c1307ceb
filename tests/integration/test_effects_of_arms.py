"""Effects of Python's library in arms: each program in eager execution and mended."""

from __future__ import annotations

import itertools
import logging
import warnings
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from tests.differences_of_torch import TEXTS_ARE_TRACED
from tests.equivalence import Comparison, assert_equivalent, call

SIDES = (1.0, -1.0, 2.0, 3.0, -2.0)


def _compare(make: Callable[[], Any], *, training: bool = False) -> tuple[str | None, ...]:
    """Compare a program that may break the graph; return why its sites were refused."""
    found = assert_equivalent(
        make,
        lambda: [call(torch.tensor([side, side])) for side in SIDES],
        fullgraph=False,
        graphs=None,
        recompiles=None,
        training=training,
    )
    return _refusals(found)


def _refusals(found: Comparison) -> tuple[str | None, ...]:
    assert found.report is not None
    return tuple(each.refusal for each in found.report.sites if each.status != "planned")


# --- containers ----------------------------------------------------------------------------------


def _set_on_both_sides() -> Any:
    members = {1, 2, 3}

    def program(x: Tensor) -> Tensor:
        nonlocal members
        if x.sum() > 0:
            x = x * 2
            members ^= {1, 9}
        else:
            members.symmetric_difference_update({1, 9})
        return x + 1

    return program


def test_a_set_loses_the_member_that_both_sides_take() -> None:
    assert _compare(_set_on_both_sides) == (None,)


@pytest.mark.parametrize("kind", [dict, OrderedDict])
def test_a_dictionary_whose_last_item_is_taken_is_guarded(kind: type) -> None:
    def make() -> Any:
        numbers = kind(a=1, b=2, c=3, d=4, e=5, f=6)

        def program(x: Tensor) -> Tensor:
            if x.sum() > 0:
                x = x * 2
            numbers.popitem()
            return x + 1

        return program

    assert _compare(make) == (None,)


class _Holder:
    """Has a container that is first met in an arm."""

    def __init__(self, held: Any) -> None:
        self.held = held


class _Numbers(list[int]):
    """A list of a class of its own."""


def _take_first(held: Any) -> None:
    held.popitem(last=False)


def _take_last(held: Any) -> None:
    held.pop()


@pytest.mark.parametrize(
    ("make_held", "take"),
    [
        (lambda: OrderedDict.fromkeys(range(9), 0), _take_first),
        (lambda: _Numbers(range(9)), _take_last),
    ],
    ids=["OrderedDict", "list of a class of its own"],
)
def test_a_container_that_is_first_met_in_an_arm_is_changed_on_its_side_only(
    make_held: Callable[[], Any], take: Callable[[Any], None]
) -> None:
    def make() -> Any:
        holder = _Holder(make_held())

        def program(x: Tensor) -> Tensor:
            for number in range(2):
                if x.sum() < number:
                    break
                take(holder.held)
            return x + 1

        return program

    assert _compare(make)


# --- generators ----------------------------------------------------------------------------------


def _noting(log: list[object]) -> Iterator[int]:
    try:
        for number in range(4):
            log.append(number)
            yield number
    finally:
        log.append("end")


def _left_suspended() -> Any:
    log: list[object] = []

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            for number in _noting(log):
                if number == 1:
                    break
        return x

    return program


def _read_to_its_end() -> Any:
    log: list[object] = []

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            for number in _noting(log):
                x = x + number
        return x * 2

    return program


def test_a_generator_that_is_left_suspended_is_closed() -> None:
    assert "arm-effects" in _compare(_left_suspended)


def test_a_generator_that_is_read_to_its_end_is_merged() -> None:
    assert _compare(_read_to_its_end) == (None,)


class _Heir(dict[str, Any]):
    """A dictionary with attributes."""


def test_no_guard_sees_an_attribute_of_a_dictionary() -> None:
    def make() -> Any:
        kept = _Heir()

        def program(x: Tensor) -> Tensor:
            if x.sum() > 0:
                kept.held = x + 1  # type: ignore[attr-defined]
            return x * 2

        program.kept = kept  # type: ignore[attr-defined]
        return program

    assert _compare(make) == ("arms-differ",)


class _Doubling(dict[str, Any]):
    """Changes itself by other methods than those of a dictionary."""

    def __setitem__(self, key: str, value: Any) -> None:
        super().__setitem__(key, value)
        super().__setitem__(f"{key}{key}", value * 2)

    def update(self, other: Any) -> None:  # type: ignore[override]
        for key in other:
            self[key] = other[key]


class _Appending(list[Any]):
    """Appends everything twice."""

    def append(self, value: Any) -> None:
        super().append(value)
        super().append(value)


@pytest.mark.parametrize(
    ("kind", "change"),
    [
        (_Heir, lambda held, x: held.update(a=x)),
        (_Doubling, lambda held, x: held.__setitem__("a", x)),
        (_Doubling, lambda held, x: held.update({"a": x})),
        (_Appending, lambda held, x: held.append(x)),
        (_Appending, lambda held, x: held.extend([x])),
    ],
)
def test_methods_that_a_class_has_replaced_are_those_of_the_class(kind: Any, change: Any) -> None:
    def program(x: Tensor) -> Any:
        held = kind()
        if x.sum() > 0:
            change(held, x + 1)
        change(held, x * 3)
        return x, list(held.items() if isinstance(held, dict) else held)

    _compare(lambda: program)


def test_what_makes_missing_items_is_of_one_side() -> None:
    def make() -> Any:
        kept: defaultdict[str, Any] = defaultdict(list)

        def program(x: Tensor) -> Any:
            made: defaultdict[str, Any] = defaultdict(list)
            if x.sum() > 0:
                made.default_factory = kept.default_factory = None
            else:
                kept.default_factory = dict
            try:
                found: Any = len(kept["a"])
                del kept["a"]
            except KeyError:
                found = "none"
            return x * 2, found, made.default_factory

        return program

    assert "arm-effects" in _compare(make)


# --- texts ---------------------------------------------------------------------------------------


class _Counting:
    """Counts how often its text is made."""

    def __init__(self) -> None:
        self.count = 0

    def __str__(self) -> str:
        self.count += 1
        return f"text {self.count}"


@pytest.mark.parametrize("in_a_list", [False, True])
def test_the_text_of_an_object_is_made_on_its_side_only(in_a_list: bool) -> None:
    def make() -> Any:
        counting, texts, holder = _Counting(), ["none"], _Holder("none")

        def stored(x: Tensor) -> Tensor:
            if x.sum() > 0:
                holder.held = f"{counting}"
            return x + 1

        def appended(x: Tensor) -> Tensor:
            if x.sum() > 0:
                texts.append(f"{counting}")
            return x + 1

        return appended if in_a_list else stored

    assert ("arm-effects" in _compare(make)) is not TEXTS_ARE_TRACED


# --- output that the call sees -------------------------------------------------------------------


def _caught_in_an_arm() -> Any:
    counts: list[int] = []

    def program(x: Tensor) -> Tensor:
        if x.sum() > 0:
            with warnings.catch_warnings(record=True) as found:
                warnings.warn("caught", stacklevel=1)
            counts.append(len(found))
        return x + 1

    return program


def _filtered() -> Any:
    def program(x: Tensor) -> Tensor:
        x = x + 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            warnings.warn("filtered", stacklevel=1)
        if x.sum() > 0:
            x = x * 2
        return x

    return program


@pytest.mark.parametrize("make", [_caught_in_an_arm, _filtered])
def test_a_warning_meets_the_filters_of_its_block(make: Callable[[], Any]) -> None:
    _compare(make)


def test_a_warning_outside_of_such_a_block_is_deferred() -> None:
    def make() -> Any:
        def program(x: Tensor) -> Tensor:
            if x.sum() > 0:
                warnings.warn("positive", stacklevel=1)
            return x + 1

        return program

    assert _compare(make) == (None, None)


class _Noting(logging.Handler):
    """Counts, in a list that it is not given."""

    def emit(self, record: logging.LogRecord) -> None:
        _SEEN.append(record.getMessage())


class _Shouting(logging.Formatter):
    """Counts what it formats."""

    def format(self, record: logging.LogRecord) -> str:
        _SEEN.append("format")
        return super().format(record)


_SEEN: list[str] = []


def _with_a_filter(logger: logging.Logger) -> None:
    logger.addFilter(lambda record: _SEEN.append("filter") or True)


def _with_a_handler(logger: logging.Logger) -> None:
    logger.addHandler(_Noting())


def _with_a_formatter(logger: logging.Logger) -> None:
    logger.addHandler(logging.StreamHandler())
    logger.handlers[0].setFormatter(_Shouting())


@pytest.mark.parametrize("prepare", [_with_a_filter, _with_a_handler, _with_a_formatter])
def test_what_a_logger_calls_may_change_what_the_call_reads(
    prepare: Callable[[logging.Logger], None],
) -> None:
    def make() -> Any:
        _SEEN.clear()
        logger = logging.getLogger(f"of_{prepare.__name__}")
        logger.filters.clear()
        logger.handlers.clear()
        prepare(logger)

        def program(x: Tensor) -> Tensor:
            logger.warning("seen")
            if x.sum() > 0:
                x = x * 2
            return x + len(_SEEN)

        return program

    assert "cannot-snapshot" in _compare(make)


# --- torch ---------------------------------------------------------------------------------------


def _backward_that_notes() -> Any:
    log: list[int] = []

    class Doubling(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: Any, gradient: Tensor) -> Tensor:
            log.append(1)
            return gradient * 2

    def program(x: Tensor) -> tuple[Tensor, int]:
        if x.sum() > 0:
            y = Doubling.apply(x)
        else:
            y = x - 1
        return y, len(log)

    return program


def test_what_a_backward_changes_is_no_effect_of_its_arm() -> None:
    assert "arm-effects" in _compare(_backward_that_notes, training=True)


@pytest.mark.parametrize("is_inner", [True, False])
def test_tensors_of_an_inference_mode_stay_such(is_inner: bool) -> None:
    def make() -> Any:
        kept: dict[str, Tensor] = {"a": torch.ones(2)}
        states: list[bool] = []

        def inside(x: Tensor) -> None:
            if x.sum() > 0:
                with torch.inference_mode():
                    kept["a"] = x * 2

        def outside(x: Tensor) -> None:
            with torch.inference_mode():
                kept["a"] = x * 3 if x.sum() > 0 else x * 2

        def program(x: Tensor) -> bool:
            (inside if is_inner else outside)(x)
            states.append(kept["a"].is_inference())
            return states[-1]

        return program

    assert ("arm-setting" in _compare(make)) is is_inner


def test_an_arm_that_gives_a_function_other_defaults_is_left() -> None:
    def make() -> Any:
        def added(*, by: int = 1) -> int:
            return by

        def program(x: Tensor) -> Tensor:
            if x.sum() > 0:
                added.__kwdefaults__["by"] = 5  # type: ignore[index]
            return x + 1

        return lambda x: (program(x), added())  # Dynamo itself reads the defaults of before

    assert "arm-effects" in _compare(make)


# --- containers that one branch makes and the next ones change -----------------------------------


class _Kept:
    def __init__(self) -> None:
        self.groups: dict[str, list[int]] = {}


def _appended_in_a_loop() -> Any:
    kept: dict[str, list[int]] = {}

    def program(x: Tensor) -> Tensor:
        for number in range(3):
            if x[number] > 0:
                kept.setdefault("y", []).append(number)
        return x * 2

    program.kept = kept  # type: ignore[attr-defined]
    return program


def _appended_one_after_the_other() -> Any:
    kept = _Kept()

    def program(x: Tensor) -> Tensor:
        if x[0] > 0:
            made = kept.groups.setdefault("y", [])
            made.append(1)
        if x[1] > 0:
            kept.groups.setdefault("y", []).append(2)
        if x[2] > 0:
            kept.groups.setdefault("y", []).append(3)
        return x * 2

    program.kept = kept.groups  # type: ignore[attr-defined]
    return program


@pytest.mark.parametrize("make", [_appended_in_a_loop, _appended_one_after_the_other])
def test_what_later_branches_append_to_a_list_that_an_arm_made_is_there(
    make: Callable[[], Any],
) -> None:
    inputs = [torch.tensor(sides) for sides in itertools.product((1.0, -1.0), repeat=3)]
    program = make()
    expected = []
    for x in inputs:
        program(x)
        expected.append(repr(program.kept))
        program.kept.clear()
    bcmend.patch(program)
    compiled = torch.compile(program, backend="eager", fullgraph=True)
    for x, seen in zip(inputs, expected, strict=True):
        compiled(x)
        assert repr(program.kept) == seen
        program.kept.clear()
    bcmend.unpatch()
