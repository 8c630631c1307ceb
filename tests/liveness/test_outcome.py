"""An outcome shows everything that a program does, and is the same for the same deeds."""

from __future__ import annotations

import random
import warnings
from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from bcmend.liveness import loading
from bcmend.liveness.outcome import LOGGER, outcome_of

Function = Callable[..., Any]


class _Own(ValueError):
    pass


class _Items(list[Any]):
    pass


def _raised(error: BaseException, cause: BaseException | None = None) -> Function:
    def body(x: Tensor, items: Any) -> Any:
        raise error from cause

    return body


def _attribute(of: Any, value: Any) -> Any:
    of.more = value
    return of


#: Functions of a tensor and a list, no two of which do the same.
DEEDS: dict[str, Function] = {
    "nothing": lambda x, items: None,
    "a tensor": lambda x, items: x + 1,
    "another value": lambda x, items: x + 2,
    "another type of numbers": lambda x, items: (x + 1).double(),
    "another shape": lambda x, items: (x + 1).reshape(1, -1),
    "other strides": lambda x, items: (x + 1).reshape(1, -1).t(),
    "an argument": lambda x, items: x,
    "a copy of an argument": lambda x, items: x.clone(),
    "a view of an argument": lambda x, items: x[:],
    "a list": lambda x, items: [],
    "the list": lambda x, items: items,
    "a tuple": lambda x, items: (),
    "a list of a class": lambda x, items: _Items(),
    "a list with an attribute": lambda x, items: _attribute(_Items(), 1),
    "a list that holds itself": lambda x, items: items.append(items),
    "a dictionary": lambda x, items: {"a": 1, "b": 2},
    "another order": lambda x, items: {"b": 2, "a": 1},
    "an ordered dictionary": lambda x, items: OrderedDict(a=1, b=2),
    "a queue": lambda x, items: deque(),
    "a set": lambda x, items: {1},
    "another set": lambda x, items: {2},
    "an iterator": lambda x, items: iter([1, 2]),
    "what is left of it": lambda x, items: iter([2]),
    "a truth": lambda x, items: True,
    "a number": lambda x, items: 1,
    "a float": lambda x, items: 1.0,
    "no number": lambda x, items: float("nan"),
    "negative zero": lambda x, items: -0.0,
    "zero": lambda x, items: 0.0,
    "a change in place": lambda x, items: x.add_(1),
    "a change of a list": lambda x, items: items.append(1),
    "an exception": _raised(ValueError("a")),
    "another class": _raised(_Own("a")),
    "other arguments": _raised(ValueError("a", 1)),
    "a cause": _raised(ValueError("a"), KeyError("b")),
    "an attribute of an exception": _raised(_attribute(ValueError("a"), 1)),
    "output": lambda x, items: print("a"),
    "other output": lambda x, items: print("a", end=""),
    "a record": lambda x, items: LOGGER.warning("a"),
    "another level": lambda x, items: LOGGER.error("a"),
    "a draw": lambda x, items: len(torch.rand(1)),
    "a draw of Python": lambda x, items: int(random.random()),
}


def _outcome(deed: Function) -> Any:
    torch.manual_seed(1)
    random.seed(1)
    return outcome_of(deed, deed, (torch.ones(2), []), training=False)


def test_other_deeds_have_other_outcomes() -> None:
    found = {name: _outcome(deed) for name, deed in DEEDS.items()}
    names = list(DEEDS)
    same = [
        (one, other)
        for place, one in enumerate(names)
        for other in names[place + 1 :]
        if found[one] == found[other]
    ]
    assert same == []


@pytest.mark.parametrize("name", DEEDS)
def test_the_same_deed_has_the_same_outcome(name: str) -> None:
    assert _outcome(DEEDS[name]) == _outcome(DEEDS[name])


def test_gradients_are_seen() -> None:
    def outcome(scale: float) -> Any:
        x = torch.ones(2, requires_grad=True)
        return outcome_of(len, lambda x: (x * scale).detach() + x * scale, (x,), training=True)

    assert outcome(1.0) == outcome(1.0) != outcome(2.0)


def test_state_of_a_function_and_of_a_module_is_seen() -> None:
    count = 0

    def body(by: int) -> None:
        nonlocal count
        count += by

    module = torch.nn.Linear(1, 1)

    def of_module() -> Any:
        return outcome_of(module, lambda: None, (), training=False)

    before = of_module()
    assert of_module() == before
    module.bias.data.add_(1)
    assert of_module() != before


def test_warnings_and_tracebacks_are_those_of_programs(tmp_path: Any) -> None:
    file = tmp_path / "warned.py"
    file.write_text("import warnings\n\ndef body():\n    warnings.warn('a')\n    raise KeyError\n")
    body: Any = loading.load(file)["body"]
    outcome = outcome_of(body, body, (), training=False)
    assert outcome[1] == (("warning", "UserWarning", "a", 4),)
    assert "('body', " in repr(outcome[0])

    def other() -> None:
        warnings.warn("a", stacklevel=1)

    assert outcome_of(other, other, (), training=False)[1] == ()
