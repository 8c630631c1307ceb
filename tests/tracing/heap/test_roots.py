"""Every root of the heap, beside every question who holds an object."""

from __future__ import annotations

import ast
import contextlib
import functools
import io
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.dynamo import compat
from bcmend.dynamo.values import Value, constant, example_of
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.heap import roots
from bcmend.tracing.lowering import shared_results
from bcmend.tracing.merging import lazy_phi
from bcmend.tracing.sites.refusal import Refusal, attempt
from bcmend.tracing.speculation import iterators
from bcmend.tracing.two_forms import augmented, holders
from tests.equivalence import fresh
from tests.tracing.plain_trace import calls_answered


class _Made:
    def __init__(self, kept: Any) -> None:
        self.kept = kept


HOLDER = _Made(None)
TABLE: dict[str, Any] = {}
KEPT: Any = None


def _noted(value: Any) -> Any:
    """Hand a value on, of which the test gets the model."""
    return value


def _put_in_a_record(value: Any) -> None:
    """Have the innermost arm's records hold a value, until the question is asked."""


def _ask() -> None:
    """Have the test ask its question here."""


# --- what holds a list ---------------------------------------------------------------------------


def _nothing(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    _noted([x + 1])
    _ask()
    return x


def _two_variables(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    one = other = _noted([x + 1])
    _ask()
    return x, one, other


def _a_variable_of_a_caller(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    kept = _noted([x + 1])
    _asked_in_another_frame()
    return x, kept


def _asked_in_another_frame() -> None:
    _ask()


def _an_operand(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    return _noted([x + 1]), _ask(), x


def _an_operand_of_a_caller(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    return _noted([x + 1]), _asked_in_another_frame(), x


def _a_list(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    kept = [_noted([x + 1])]
    _asked_in_another_frame()
    return x, kept


@contextlib.contextmanager
def _holding(value: Any) -> Iterator[None]:
    yield
    TABLE["seen"] = value


def _a_block(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    with _holding(_noted([x + 1])):
        _asked_in_another_frame()
    return x


def _a_variable_of_a_closure(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    kept = _noted([x + 1])

    def inner() -> Any:
        _ask()
        return kept

    return x, inner()


def _a_global(x: Tensor) -> Any:
    global KEPT
    print("recorded, so that there is something to mend")
    KEPT = _noted([x + 1])
    _asked_in_another_frame()
    return x


def _an_attribute_from_before(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    HOLDER.kept = _noted([x + 1])
    _asked_in_another_frame()
    return x


def _an_attribute_of_a_new_object(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    made = _Made(_noted([x + 1]))
    _asked_in_another_frame()
    return x, made.kept


def _a_container_from_before(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    TABLE["kept"] = _noted([x + 1])
    _asked_in_another_frame()
    return x


def _generated(value: Any) -> Iterator[Any]:
    yield 1
    yield value


def _the_frame_of_a_generator(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    generator = _generated(_noted([x + 1]))
    next(generator)
    _asked_in_another_frame()
    return x, next(generator)


def _an_exception(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    try:
        raise ValueError(_noted([x + 1]))
    except ValueError:
        _asked_in_another_frame()
    return x


def _what_the_other_arm_has_left(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    kept = None
    if x.sum() > 0:
        kept = _noted([x + 1])
    else:
        _asked_in_another_frame()
    return x, kept


def _a_live_in_of_an_arm(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    kept = _noted([x + 1])
    if x.sum() > 0:
        _asked_in_another_frame()
        x = x + len((kept, kept))
    return x, kept


def _a_hook(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    x.register_hook(functools.partial(_second, _noted([x + 1])))
    _asked_in_another_frame()
    return x * 2


def _second(held: Any, gradient: Tensor) -> Tensor:
    return gradient


def _a_record_of_an_arm(x: Tensor) -> Any:
    print("recorded, so that there is something to mend")
    if x.sum() > 0:
        _put_in_a_record(_noted([x + 1]))
        _asked_in_another_frame()
        x = x + 1
    return x


HOLD: Final[dict[str, Callable[[Tensor], Any]]] = {
    each.__name__[1:]: each
    for each in (
        _two_variables,
        _a_variable_of_a_caller,
        _an_operand,
        _an_operand_of_a_caller,
        _a_list,
        _a_block,
        _a_variable_of_a_closure,
        _a_global,
        _an_attribute_from_before,
        _an_attribute_of_a_new_object,
        _a_container_from_before,
        _the_frame_of_a_generator,
        _an_exception,
        _a_live_in_of_an_arm,
        _a_hook,
        _a_record_of_an_arm,
    )
}


# --- who asks ------------------------------------------------------------------------------------


def _ends_at_a_branch(tx: Any, model: Any) -> bool:
    return not iterators.end_here(tx, [model], [])


def _is_a_live_in_alone(tx: Any, model: Any) -> bool:
    return isinstance(attempt(lambda: holders.require_held_once(tx, [model], ())), Refusal)


def _is_beside_a_phi(tx: Any, model: Any) -> bool:
    return holders.are_held_beside(tx, [model], constant(None))


def _is_gone_over(tx: Any, model: Any) -> bool:
    return iterators.go_over(tx, model)


def _leaves_another_way(tx: Any, model: Any) -> bool:
    return not lazy_phi._is_handed_out(tx, model)


def _leaves(tx: Any, model: Any) -> bool:
    return storage_of(example_of(model)) in shared_results.leaving(tx)


def _shows_a_change_of_a_tensor(tx: Any, model: Any) -> bool:
    return augmented._hold(augmented._others(tx, "none"), {storage_of(example_of(model))})


def _its_tensor(tx: Any, made: Any) -> Any:
    return made.items[0]


Question = Callable[[Any, Any], bool]
#: What is held in place of the list, for questions about other things.
INSTEAD: Final[dict[Question, Callable[[Any, Any], Any]]] = {
    _is_gone_over: lambda tx, made: Value.build(tx, iter).call_function(tx, [made], {}),
    _shows_a_change_of_a_tensor: _its_tensor,
    _leaves: _its_tensor,
}
#: What each question leaves out, and why that is right.
LEAVES_OUT: Final[dict[Question, tuple[str, ...]]] = {
    roots.is_held: (),
    _ends_at_a_branch: (),
    _is_a_live_in_alone: (),
    _is_beside_a_phi: (),
    _is_gone_over: (),
    _shows_a_change_of_a_tensor: (),
    # What the frame itself has is returned, or ends with it; of other frames all ends.
    _leaves_another_way: (
        "two_variables",
        "a_variable_of_a_caller",
        "an_operand",
        "an_operand_of_a_caller",
        "a_list",
        "the_frame_of_a_generator",
    ),
    _leaves: (),
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[..., Any], Question], set[bool]]:
    def ask(program: Callable[..., Any], question: Question) -> set[bool]:
        models: list[Any] = []
        put: list[Any] = []
        found: set[bool] = set()

        def note(tx: Any, made: Any) -> Any:
            model = INSTEAD.get(question, lambda _, made: made)(tx, made)
            models.append(model)
            return model

        def put_in_a_record(tx: Any, model: Any) -> Any:
            if roots.RECORDS.of(tx.output):
                held = SimpleNamespace(inputs=compat.TupleVariable([model]))
                roots.RECORDS.of(tx.output)[-1].append(held)
                put.append(held)
            return constant(None)

        def answer(tx: Any) -> Any:
            if models:
                found.add(question(tx, models[-1]))
            for drafts in roots.RECORDS.of(tx.output):
                drafts[:] = [each for each in drafts if each not in put]
            return constant(None)

        torch._dynamo.reset()
        with (
            calls_answered(_noted, note),
            calls_answered(_put_in_a_record, put_in_a_record),
            calls_answered(_ask, answer),
            contextlib.redirect_stdout(io.StringIO()),
        ):
            try:
                bcmend.compile(fresh(program), backend="eager", fullgraph=True)(
                    torch.ones(2, requires_grad=True)
                )
            finally:
                bcmend.unpatch()
                torch._dynamo.reset()
        return found

    monkeypatch.setattr(HOLDER, "kept", None)
    monkeypatch.setitem(globals(), "KEPT", None)
    for name in ("kept", "seen"):
        monkeypatch.setitem(TABLE, name, None)
    return ask


@pytest.mark.parametrize("question", LEAVES_OUT, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("hold", HOLD)
def test_a_question_beside_a_root(hold: str, question: Question, asked: Any) -> None:
    found = asked(HOLD[hold], question)
    assert found, "nothing was asked"
    assert found == {hold not in LEAVES_OUT[question]}


@pytest.mark.parametrize("question", LEAVES_OUT, ids=lambda each: each.__name__.strip("_"))
@pytest.mark.parametrize("program", [_nothing, _what_the_other_arm_has_left])
def test_what_nothing_holds(program: Any, question: Question, asked: Any) -> None:
    assert asked(program, question) == {False}


# --- nobody else enumerates ----------------------------------------------------------------------


def _reads_of_frames(path: Path) -> set[str]:
    """Return the attributes of frames and effects, all of which a module goes through."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            whole = node.value.attr
            if whole in ("symbolic_locals", "store_attr_mutations") and node.attr in _WHOLE:
                found.add(whole)
    return found


_WHOLE: Final = ("items", "values")
#: Modules that go through all variables, or all that was stored, to ask something else than who
#: holds an object.
OTHERS: Final = {
    "numbers/number_inputs.py": {"store_attr_mutations"},  # which numbers are stored
    "output/object_snapshot.py": {"store_attr_mutations"},  # how objects are at a moment
    "output/streams.py": {"store_attr_mutations"},  # whether a stream is another one
    "speculation/arms.py": {"store_attr_mutations"},  # what an arm has stored
    "two_forms/holders.py": {"symbolic_locals"},  # by which names of the function
    "two_forms/hook_results.py": {"symbolic_locals"},  # under which name
}


def test_no_other_module_enumerates_roots() -> None:
    folder = Path(bcmend.__file__).parent / "tracing"
    found = {
        path.relative_to(folder).as_posix(): reads
        for path in sorted(folder.rglob("*.py"))
        if (reads := _reads_of_frames(path))
    }
    assert found == {"heap/roots.py": {"symbolic_locals", "store_attr_mutations"}, **OTHERS}
