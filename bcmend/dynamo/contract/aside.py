"""Hooks that are not in force, since torch has not what they stand in front of, or another one."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any

from bcmend.dynamo import hooks
from bcmend.dynamo.hooks import Hook


def set_aside(modules: Collection[str], reached: Callable[[str], None]) -> None:
    """Have the hooks that some modules declare call ``reached``, and then torch's own method.

    ``reached`` is given their target. Hooks without a target in this torch are dropped.
    """
    drop_missing(modules)
    for declared in (hooks.REGISTRY.hooks, hooks.REGISTRY.watches):
        declared[:] = [
            _only_saying(each, reached) if each.module in modules else each for each in declared
        ]


def _only_saying(hook: Hook, reached: Callable[[str], None]) -> Hook:
    def say(inner: Any, *arguments: Any, **keywords: Any) -> Any:
        reached(hook.target)
        return inner(*arguments, **keywords)

    say.__module__ = hook.module
    return replace(hook, function=say)


def drop_missing(modules: Collection[str] | None = None) -> None:
    """Forget the hooks without a target in this torch: those of some modules, or all of them."""
    for declared in (hooks.REGISTRY.hooks, hooks.REGISTRY.watches):
        declared[:] = [
            each
            for each in declared
            if not (each.is_missing and (modules is None or each.module in modules))
        ]
