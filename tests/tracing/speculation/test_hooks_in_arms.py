"""The trace of an arm ends where a hook is registered or removed; outside of arms it goes on."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo.handlers import PASS, Call
from bcmend.tracing.sites import nesting_limits
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation import hooks_in_arms


def _call(name: str, *args: Any) -> Call:
    return Call(SimpleNamespace(), name, None, args, {})  # type: ignore[arg-type]


@pytest.mark.parametrize("is_in_an_arm", [True, False])
def test_hooks_end_the_trace_of_an_arm(monkeypatch: pytest.MonkeyPatch, is_in_an_arm: bool) -> None:
    monkeypatch.setattr(nesting_limits, "is_in_an_arm", lambda tx: is_in_an_arm)
    asked = [
        (hooks_in_arms._registered, _call("register_hook", lambda gradient: None)),
        (hooks_in_arms._call_of_handle, _call("call_method", "remove", [], {})),
    ]
    for handler, call in asked:
        if is_in_an_arm:
            with pytest.raises(Refusal) as refused:
                handler(call)
            assert refused.value.slug == "arm-hook"
        else:
            assert handler(call) is PASS


def test_other_methods_of_a_handle_are_dynamos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nesting_limits, "is_in_an_arm", lambda tx: True)
    assert hooks_in_arms._call_of_handle(_call("call_method", "__enter__", [], {})) is PASS
