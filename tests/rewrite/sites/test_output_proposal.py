"""Which statements write something, and what of them is left for later."""

from __future__ import annotations

import functools
import logging
import sys
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from types import CodeType, FunctionType
from typing import Any

import pytest

from bcmend.bytecode.decode import decode
from bcmend.policy import Policy
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import mend
from bcmend.rewrite.sites.plan import OutputLowering, SiteRefusal
from tests.stand_ins import NothingToMend, installed, jumps_in, sites_of

logger = logging.getLogger(__name__)


class Later(NothingToMend):
    """Stores the records of output statements, to be delivered when asked."""

    def __init__(self) -> None:
        super().__init__()
        self.records: list[tuple[FunctionType, tuple[Any, ...]]] = []

    def recording(self, key: str, *receiver: object) -> bool:
        return True

    def record(  # type: ignore[override]
        self, key: str, action: FunctionType, inputs: tuple[Any, ...], *more: Any
    ) -> bool:
        self.records.append((action, inputs))
        return True

    def deliver(self) -> None:
        for action, inputs in self.records:
            action(*inputs)


def _outputs(function: FunctionType) -> list[Any]:
    return [site.decision for site in sites_of(function, ask=False) if site.kind == "output"]


def _print(x):
    print(x)


def _sys_write(x):
    sys.stderr.write(x)


def _logger(x):
    logger.info("x is %s", x)


def _logging(x):
    logging.warning(x)


def _warn(x):
    warnings.warn(x, stacklevel=2)


def _own_logger(self, x):
    self.log.debug(x, extra={"a": 1})


def _shadowed(print, x):
    print(x)


def _starred(x, y):
    print(*x, **y)


@pytest.mark.parametrize(
    "function", [_print, _sys_write, _logger, _logging, _warn, _own_logger, _starred, _shadowed]
)
def test_a_statement_that_writes(function: FunctionType) -> None:
    (decision,) = _outputs(function)
    assert isinstance(decision, OutputLowering)
    asks = decision.callee is not None
    assert asks is (function in (_own_logger, _logger, _shadowed))


def _append(x):
    x.append(1)


def _result_of_a_method_used(x):
    return x.log()


def _other_module(x):
    math.info(x)  # noqa: F821


def _global_of_another_kind(x):
    contextmanager(x)


@pytest.mark.parametrize("function", [_append, _result_of_a_method_used, _global_of_another_kind])
def test_a_statement_that_does_not(function: FunctionType) -> None:
    assert _outputs(function) == []


def _bound_on_one_way(x):
    print((y := x) if x else 0)
    return y


def _bound_in_a_cell(x):
    print(y := x)
    return lambda: y


def _lambda(x):
    print(sorted(x, key=lambda each: each + x[0]))


def _frame(x):
    print(locals())


def _conditional_receiver(self, other):
    (self or other).info("text")


def _behind_a_test(self, x):
    print(self.loss.item() if x else 0)


@pytest.mark.parametrize(
    ("function", "slug"),
    [
        (_bound_on_one_way, "output-shape"),
        (_bound_in_a_cell, "output-shape"),
        (_lambda, "output-shape"),
        (_behind_a_test, "output-shape"),
        (_frame, "frame-introspection"),
    ],
)
def test_a_refusal(function: FunctionType, slug: str) -> None:
    (decision,) = _outputs(function)
    assert isinstance(decision, SiteRefusal) and decision.slug == slug


# --- when what is evaluated ----------------------------------------------------------------------


class Traced:
    """An object whose attributes and methods say when they are asked."""

    def __init__(self, log: list[object], **attributes: object) -> None:
        self._log = log
        self._attributes = attributes

    def __getattr__(self, name: str) -> object:
        self._log.append(name)
        return self._attributes[name]

    def item(self) -> int:
        self._log.append("item")
        return 3

    def bump(self) -> int:
        self._log.append("bump")
        return 4

    def __bool__(self) -> bool:
        self._log.append("bool")
        return False


@contextmanager
def _delivered_later(function: FunctionType) -> Iterator[tuple[FunctionType, Later]]:
    primitives = Later()
    yield installed(function, primitives, ask=False), primitives


def test_plain_arguments_are_evaluated_at_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        print("a", x.bump(), x.value)
        x.bump()

    log: list[object] = []
    with _delivered_later(f) as (mended, later):
        mended(Traced(log, value=1))
        assert log == ["bump", "value", "bump"]
        assert capsys.readouterr().out == ""
        later.deliver()
        assert capsys.readouterr().out == "a 4 1\n"
        assert log == ["bump", "value", "bump"]


def test_a_number_is_taken_out_of_a_tensor_when_the_record_is_delivered(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def f(x):
        print(f"{x.part.item():>3}", x.part.item() + 1)
        x.bump()

    log: list[object] = []
    with _delivered_later(f) as (mended, later):
        mended(Traced(log, part=Traced(log)))
        assert log == ["part", "part", "bump"]
        later.deliver()
        assert log == ["part", "part", "bump", "item", "item"]
        assert capsys.readouterr().out == "  3 4\n"


def test_what_is_bound_to_a_variable_is_evaluated_at_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def f(x):
        y = "before"
        print(y, f"{(y := x.bump()):>2}", (z := (w := x.value) + 1), str(y), y)
        return y, z, w

    log: list[object] = []
    with _delivered_later(f) as (mended, later):
        assert mended(Traced(log, value=1)) == (4, 2, 1)
        assert log == ["bump", "value"] and capsys.readouterr().out == ""
        later.deliver()
        assert log == ["bump", "value"]
        assert capsys.readouterr().out == "before  4 2 4 4\n"


def test_comprehensions_wait_with_the_numbers_that_they_take(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def f(found, x):
        print({k: v.item() for k, v in found.items()}, [each.item() for each in x])
        x = "other"
        return x

    log: list[object] = []
    with _delivered_later(f) as (mended, later):
        assert mended({"a": Traced(log), "b": Traced(log)}, [Traced(log)]) == "other"
        assert log == [] and capsys.readouterr().out == ""
        later.deliver()
        assert log == ["item"] * 3
        assert capsys.readouterr().out == "{'a': 3, 'b': 3} [3]\n"


def _read_in_the_same_statement(each, x):
    print([str(each) for each in x], each)
    return each


def _bound_beside_it(each, x):
    print([str(each) for each in x], y := list(x), f"{y[0]:>3}", {each: each * 2 for each in y})
    return y


def _bound_by_both(each, x):
    print([str(y) for y in x], str(y := each), [str(y) for y in "ab"])
    return y


@pytest.mark.parametrize(
    "function", [_read_in_the_same_statement, _bound_beside_it, _bound_by_both]
)
def test_a_variable_of_a_comprehension_that_others_use(
    function: FunctionType, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = "outer", ["one", "two"]
    expected = function(*arguments)
    written = capsys.readouterr().out
    with _delivered_later(function) as (mended, later):
        assert mended(*arguments) == expected
        later.deliver()
    assert capsys.readouterr().out == written


def test_variables_are_read_at_their_place(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        print(str(x), end="!")
        x = "other"
        return x

    with _delivered_later(f) as (mended, later):
        assert mended("first") == "other"
        later.deliver()
        assert capsys.readouterr().out == "first!"


@pytest.mark.parametrize("flag", [0, 1])
def test_an_argument_behind_a_test_is_not_evaluated_before_it(
    flag: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(flag, x):
        print(flag or x.bump(), x.bump() if flag else "else", not (flag and x.bump()))

    log: list[object] = []
    f(flag, Traced(log))
    expected, calls = capsys.readouterr().out, list(log)
    log.clear()
    with _delivered_later(f) as (mended, later):
        mended(flag, Traced(log))
        assert log == calls
        later.deliver()
    assert capsys.readouterr().out == expected and log == calls


def test_an_attribute_of_what_may_be_none(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        print(x.part.real if x.part is not None else "none")

    for part in (None, 1.5):
        with _delivered_later(f) as (mended, later):
            mended(Traced([], part=part))
            later.deliver()
        later.records.clear()
    assert capsys.readouterr().out == "none\n1.5\n"


def test_a_variable_without_value_behind_a_test(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x, y):
        if x:
            z = 1
        print(z if x else y)

    for x in (0, 1):
        with _delivered_later(f) as (mended, later):
            mended(x, "y")
            later.deliver()
    assert capsys.readouterr().out == "y\n1\n"


def test_an_error_in_a_deferred_statement_names_its_line() -> None:
    def f(x):
        print(
            x.item() + "text",
        )

    with _delivered_later(f) as (mended, later):
        mended(Traced([]))
        with pytest.raises(TypeError) as caught:
            later.deliver()
    code = caught.traceback[-1].frame.code.raw
    assert code.co_filename == __file__ and code.co_name == "f"
    assert caught.traceback[-1].lineno + 1 == f.__code__.co_firstlineno + 2


def test_a_call_that_may_do_something_is_made_at_its_place(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def f(x, bump):
        print(str(bump()), f"{x.bump():>2}", x.mean().item())
        return bump()

    count = iter(range(10))
    log: list[object] = []
    with _delivered_later(f) as (mended, later):
        assert mended(Traced(log, mean=lambda: Traced(log)), lambda: next(count)) == 1
        assert log == ["bump"]
        later.deliver()
        assert log == ["bump", "mean", "item"]
        assert capsys.readouterr().out == "0  4 3\n"


def _calls_with_a_number(x, note):
    print(note(x.item()))
    return note(0)


def _calls_a_method(x, note):
    print("noted", note.__call__(x.item()), x.item())
    return note(0)


def _calls_in_a_comprehension(x, note):
    print([note(each.item()) for each in (x,)])
    return note(0)


def _calls_with_many(x, note):
    print(note(*[x.item()]))
    return note(0)


@pytest.mark.parametrize(
    "function",
    [_calls_with_a_number, _calls_a_method, _calls_in_a_comprehension, _calls_with_many],
)
def test_a_call_with_a_number_of_a_tensor_is_made_at_its_place(function: FunctionType) -> None:
    notes: list[int] = []
    with _delivered_later(function) as (mended, later):
        mended(Traced([]), notes.append)
        assert notes == [3, 0]
        later.deliver()
    assert notes == [3, 0]


IMPORTED = """
import warnings

def program(log):
    warnings.warn("first")
    log.append(1)
    return log
"""


def test_a_module_that_only_its_name_tells_is_loaded_without_the_slot_of_its_call() -> None:
    """CPython 3.11 fuses the load of an imported module with the NULL of the call that follows."""
    module = compile(IMPORTED, "m", "exec")
    code = next(each for each in module.co_consts if isinstance(each, CodeType))
    found = mend(code, Context("m", {}, Policy()))
    assert [type(site.decision) for _, site in found.sites] == [OutputLowering]


# --- calls whose result is used, and callees that a trace has to look at


class Chosen(Later):
    """Records what is called by a name that is known to write, as a trace would find out."""

    def __init__(self) -> None:
        super().__init__()
        self.asked_about: list[tuple[object, ...]] = []

    def recording(self, key: str, level: int, *question: object) -> bool:  # type: ignore[override]
        self.asked_about.append(question)
        return not question or question[0] is not None


@pytest.mark.parametrize("flag", [0, 1])
def test_none_takes_the_place_of_a_result_that_is_used(
    flag: int, capsys: pytest.CaptureFixture[str]
) -> None:
    def f(flag, x):
        y = print("a", x) or x + 1
        print("b") if flag else print("c", x)
        flag and print("d")
        return [print(each, end=";") for each in (y, x)], (lambda: print("e"))(), print()

    expected = f(flag, 1), capsys.readouterr().out
    with _delivered_later(f) as (mended, later):
        found = mended(flag, 1)
        assert capsys.readouterr().out == ""
        later.deliver()
    assert (found, capsys.readouterr().out) == expected


def _asked_about(function: FunctionType, *arguments: object) -> list[tuple[object, ...]]:
    primitives = Chosen()
    installed(function, primitives, ask=False)(*arguments)
    return primitives.asked_about


class Log:
    def __init__(self) -> None:
        self.written: list[object] = []

    def info(self, *arguments: object) -> None:
        self.written.append(arguments)

    def log(self, *arguments: object) -> None:
        self.written.append(arguments)


def test_a_trace_is_asked_about_the_object_that_has_the_method() -> None:
    def f(one, many, level):
        one.info("text")
        many[0].info("text", stack_info=True)
        getattr(one, "info")("text")  # noqa: B009
        one.log(level, "text")

    log = Log()
    log.info = lambda *arguments, **keywords: None  # type: ignore[method-assign]
    assert _asked_about(f, log, [log], 7) == [
        (log, "info", None, "", True),
        (log, "info", None, "the callers are written too", True),
        (log.info, "", None, "", True),
        (log, "log", 7, "", True),
    ]


def test_a_variable_that_is_called_is_asked_about() -> None:
    def f(say):
        say("text")

    said: list[str] = []
    with _delivered_later(f) as (mended, later):
        mended(said.append)
        assert said == []
        later.deliver()
    assert said == ["text"]


def test_an_item_that_is_called_is_asked_about_and_not_what_it_is_an_item_of() -> None:
    def f(table):
        table["one"]("text")
        _TABLE["other"]("text")

    assert _outputs(f) == []  # until Dynamo stops there
    context = Context("m", f.__globals__, Policy(), calls=frozenset(jumps_in(f.__code__)))
    instructions = decode(f.__code__).instructions
    asked_about = []
    for _, site in mend(f.__code__, context).sites:
        assert isinstance(site.decision, OutputLowering) and site.decision.callee is not None
        load = site.decision.callee.load
        asked_about.append([each.op for each in instructions[load.start : load.end]])
    subscript = ["LOAD_CONST", "BINARY_SUBSCR"]
    assert [ops[1:] for ops in asked_about] == [subscript, subscript]


_TABLE = {"other": list}


def test_the_names_of_keywords_stay_with_their_call(capsys: pytest.CaptureFixture[str]) -> None:
    def f(x):
        print(f"{x[0]} {1}", str(x))

    f("ab")
    expected = capsys.readouterr().out
    with _delivered_later(f) as (mended, later):
        mended("ab")
        later.deliver()
    assert capsys.readouterr().out == expected


def _exit_of_a_with(manager):
    with manager:
        pass


def _length_written(x):
    return sys.stdout.write(x)


def test_what_a_with_calls_at_its_end_is_no_statement() -> None:
    assert _outputs(_exit_of_a_with) == []


def test_a_result_that_is_no_none_is_refused_where_it_is_used() -> None:
    (decision,) = _outputs(_length_written)
    assert isinstance(decision, SiteRefusal) and decision.slug == "output-shape"


def _level_of_two(x):
    warnings.warn(x, stacklevel=2)


def _third_argument(x):
    warnings.warn(x, UserWarning, 3)


def _some_level(x, level):
    warnings.warn(x, stacklevel=level)


def _no_level(x):
    warnings.warn(x, UserWarning)  # noqa: B028


@pytest.mark.parametrize(
    ("function", "level"),
    [(_level_of_two, 2), (_third_argument, 3), (_some_level, -1), (_no_level, 1)],
)
def test_the_level_of_a_warning(function: FunctionType, level: int) -> None:
    (decision,) = _outputs(function)
    assert isinstance(decision, OutputLowering) and decision.stack_level == level


def _logs_what_it_handles(x):
    logger.exception(x)


def _logs_an_exception_by_a_keyword(x):
    logger.error("text", exc_info=x)


def _logs_by_keywords_from_anywhere(x):
    logger.error("text", **x)


def _prints_a_formatted_traceback(x):
    print(x, traceback.format_exc())


def _prints_a_traceback(x):
    traceback.print_exc()


def _logs_none(x):
    logger.error("text", exc_info=False)


def _prints_keywords_from_anywhere(x):
    print("text", **x)


@pytest.mark.parametrize(
    ("function", "shows"),
    [
        (_logs_what_it_handles, True),
        (_logs_an_exception_by_a_keyword, True),
        (_logs_by_keywords_from_anywhere, True),
        (_prints_a_formatted_traceback, True),
        (_prints_a_traceback, True),
        (_logs_none, False),
        (_prints_keywords_from_anywhere, False),
    ],
)
def test_whether_a_statement_may_show_tracebacks(function: FunctionType, shows: bool) -> None:
    (decision,) = _outputs(function)
    assert isinstance(decision, OutputLowering) and decision.shows_tracebacks is shows


@functools.lru_cache(None)
def _once(text):
    logger.warning(text)


@functools.lru_cache(None)
def _counted(text):
    logger.warning(text)
    return len(text)


def _calls_once(x):
    _once(x)


def _calls_counted(x):
    _counted(x)


def test_a_function_that_remembers_what_it_wrote_is_called_later() -> None:
    (decision,) = _outputs(_calls_once)
    assert isinstance(decision, OutputLowering)
    assert _outputs(_calls_counted) == []


def test_a_part_of_a_chained_comparison_is_not_evaluated_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    def f(b, c):
        print(not (0 < b == 5), f"{c!r:>3}")

    with _delivered_later(f) as (mended, later):
        mended(5, 1)
        later.deliver()
        assert capsys.readouterr().out == "False   1\n"
