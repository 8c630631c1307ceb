"""What of bcmend can be done without, and which hooks stand aside."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import pytest

from bcmend.dynamo import hooks
from bcmend.dynamo.contract import aside, groups
from bcmend.dynamo.contract.difference import Difference
from bcmend.dynamo.hooks import Hook, Registry
from bcmend.patching import torch_check
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.speculation import unknown_models

ANY_ALL = "bcmend.tracing.handlers.any_all"
CORE = "bcmend.tracing.merging.merge"


def _optional() -> set[str]:
    return {module for modules in groups.OPTIONAL.values() for module in modules}


def test_an_optional_module_declares_hooks_and_nothing_else() -> None:
    torch_check.declare_hooks()
    declared = {each.module for each in hooks.REGISTRY.hooks}
    others = {each.module for each in (*hooks.REGISTRY.watches, *hooks.REGISTRY.rows)}
    for module in _optional():
        import_module(module)
        assert module in declared and module not in others


def test_a_module_that_is_not_listed_is_of_the_core() -> None:
    assert groups.group_of(CORE) == groups.CORE
    assert groups.group_of("bcmend.tracing.handlers.not_there") == groups.CORE


def test_a_difference_concerns_the_groups_of_all_that_need_it() -> None:
    both = Difference("A.b", "body", "1", "2", (ANY_ALL, CORE))
    nobody = Difference("A", "subclasses", "", "New", ())
    one = Difference("A.c", "body", "1", "2", (ANY_ALL,))
    group = groups.group_of(ANY_ALL)
    assert groups.concerned([both, nobody, one]) == {group: [both, one], groups.CORE: [both]}


class _Owner:
    def run(self, tx: Any) -> str:
        return "torch"


def _hooked(inner: Any, *arguments: Any) -> str:
    return "hooked"


def _other(inner: Any, *arguments: Any) -> str:
    return "other"


_hooked.__module__, _other.__module__ = "bcmend.optional", "bcmend.other"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Registry:
    found = Registry()
    found.hooks += [
        Hook(_Owner, "run", "a test", _hooked, None),
        Hook(_Owner, "gone", "a test", _hooked, None),
        Hook(_Owner, "lost", "a test", _other, None),
    ]
    monkeypatch.setattr(hooks, "REGISTRY", found)
    return found


def test_a_hook_that_stands_aside_says_where_and_runs_torchs_own(registry: Registry) -> None:
    reached: list[str] = []
    aside.set_aside({"bcmend.optional"}, reached.append)
    assert [each.name for each in registry.hooks] == ["run", "lost"]
    (hook, other) = registry.hooks
    assert hook.around(_Owner.run)(_Owner(), None) == "torch" and reached == ["_Owner.run"]
    assert other.around(_Owner.run)(_Owner(), None) == "other" and len(reached) == 1
    assert hook.module == "bcmend.optional"


def test_hooks_without_a_target_are_dropped(registry: Registry) -> None:
    aside.drop_missing()
    assert [each.name for each in registry.hooks] == ["run"]
    assert registry.hooks[0].around(_Owner.run)(_Owner(), None) == "hooked"


def test_a_changed_method_refuses_an_arm_and_nothing_else() -> None:
    unknown_models.come_to_changed("Outside.method")
    with pytest.raises(Refusal) as caught, unknown_models.none_met():
        unknown_models.come_to_changed("Inside.method")
    assert caught.value.slug == "torch-differs" and "Inside.method" in caught.value.detail


def test_a_refusal_that_torch_takes_for_an_answer_is_not_forgotten() -> None:
    with pytest.raises(Refusal, match=r"Inside\.method"), unknown_models.none_met():
        with pytest.raises(Refusal):
            unknown_models.come_to_changed("Inside.method")
    with unknown_models.none_met():
        pass
