"""What a user has registered, called directly."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch

from bcmend.dynamo import frames
from bcmend.dynamo.handlers import PASS
from bcmend.knowledge.substitute_rows import Substitute
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes import dispatch
from bcmend.tracing.substitutes.dispatch import ReplacedCall
from tests.tracing.in_trace import during_trace, trace

X = torch.tensor([1.0, 2.0])


def _doubled(*values: Any, plus: int = 0) -> Any:
    return values[-1] * 2 + plus, len(values)


class _Meter:
    def read(self) -> None:
        pass


def _call(tx: Any, *args: Any, function: Any = None, owner: Any = None) -> Any:
    row = Substitute("name", "call", replacement=_doubled)
    site = LiveSite("name", "call", _doubled.__code__)
    return dispatch._replaced(
        ReplacedCall(tx, "name", owner, args, {}, function, row=row, site=site)
    )


def test_the_replacement_is_traced_with_the_arguments() -> None:
    found, count = trace(lambda tx, x: _call(tx, x), X)
    assert torch.equal(found, X * 2) and count == 1


def test_the_owner_is_the_first_argument() -> None:
    assert trace(lambda tx, x: _call(tx, x, owner=x, function=_Meter.read), X)[1] == 2


def test_the_method_of_one_object_gets_no_owner() -> None:
    assert trace(lambda tx, x: _call(tx, x, owner=x, function=_Meter().read), X)[1] == 1


def test_inside_of_the_replacement_the_callable_is_what_it_was(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def body(tx: Any, x: Any) -> Any:
        frame = SimpleNamespace(f_code=_doubled.__code__)
        with monkeypatch.context() as patch:
            patch.setattr(frames, "being_traced", lambda tx: iter([frame]))
            return _call(tx, x)

    assert during_trace(body, X) is PASS
