"""Which hooks are called: what is declared is exchanged for what notes its calls, for a while.

The registry knows nothing of it, and a hook costs what it costs where nobody counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import wraps
from types import FunctionType
from typing import Any, Final

from bcmend.dynamo import handlers, hooks
from bcmend.dynamo.models import methods
from bcmend.errors import BcmendError
from bcmend.patching import torch_check

_OF_TENSORS: Final = "a method of tensors"
_EXCHANGED: Final = ("hooks", "watches", "rows", "subclasses", "caches")


@dataclass(frozen=True, slots=True, eq=False)
class CallTarget:
    """What torch has to call: a hook, a row of a table, or a handler of a method of tensors."""

    target: str
    purpose: str


#: By the name of a hooked method: what a call is about, of its arguments and the chain's next.
_ABOUT: Final[dict[str, Callable[..., object]]] = {
    methods.CALL_METHOD: lambda inner, variable, tx, name, *others: name,
    methods.BINARY_OPERATION: lambda inner, tx, one, other, slot: slot,
    methods.INSERT_OPERATION: lambda inner, variable, *others: variable.fn.__name__,
}


@dataclass(slots=True)
class Calls:
    """All that torch has to call, and what it has called since ``begin``.

    Attributes:
        about: the targets of hooks that many things go through, each with what a call was about,
            such as "TensorVariable.call_method:tolist".
    """

    subjects: list[CallTarget] = field(default_factory=list)
    called: set[CallTarget] = field(default_factory=set)
    about: set[str] = field(default_factory=set)

    def begin(self) -> None:
        """Forget what was called, and what Dynamo has found out about builtins since."""
        self.called, self.about = set(), set()
        hooks.REGISTRY.caches = {}

    def noting(self, target: str, purpose: str, function: Callable[..., Any]) -> Any:
        """Return a function that notes its calls."""
        subject = CallTarget(target, purpose)
        self.subjects.append(subject)
        return self._noting(subject, function)

    def _noting(self, subject: CallTarget, function: Callable[..., Any]) -> Any:
        @wraps(function)
        def noted(*arguments: Any, **keywords: Any) -> Any:
            self.called.add(subject)
            return function(*arguments, **keywords)

        return noted

    def hook(self, hook: hooks.Hook) -> hooks.Hook:
        """Return a hook that notes its calls, if anything can call it here."""
        if methods.is_of_another_python(hook.owner, hook.name):
            return hook
        function, about = hook.function, _ABOUT.get(hook.name)
        if about is not None:
            function = self._noting_what(hook.target, about, function)
        return replace(hook, function=self.noting(hook.target, hook.purpose, function))

    def _noting_what(self, target: str, about: Callable[..., object], function: Any) -> Any:
        @wraps(function)
        def noted(*arguments: Any, **keywords: Any) -> Any:
            self.about.add(f"{target}:{about(*arguments, **keywords)}")
            return function(*arguments, **keywords)

        return noted

    def row(self, row: hooks.TableEntry) -> hooks.TableEntry:
        """Return a row of a table whose entry notes its calls."""
        subject = CallTarget(row.target, row.purpose)
        self.subjects.append(subject)

        def make(before: Any) -> Any:
            made = row.make(before)
            if not isinstance(made, type):
                return self._noting(subject, made)
            methods = {
                name: self._noting(subject, method)
                for name, method in vars(made).items()
                if isinstance(method, FunctionType)
            }
            return type(made.__name__, (made,), {"__module__": made.__module__, **methods})

        return replace(row, make=make)


@contextmanager
def counted() -> Iterator[Calls]:
    """Have all that torch has to call noted in a block.

    Raises ``BcmendError`` while anything is patched, for that would stay as it is in place.
    """
    torch_check.declare_hooks()
    registry, of_tensors = hooks.REGISTRY, handlers.TENSOR_METHODS
    if registry.depth or registry.armed or registry.watching:
        raise BcmendError("calls of hooks cannot be counted while anything is patched")
    before = {name: getattr(registry, name) for name in _EXCHANGED}
    methods = dict(of_tensors)
    calls = Calls()
    registry.hooks = list(map(calls.hook, registry.hooks))
    registry.watches = list(map(calls.hook, registry.watches))
    registry.rows = list(map(calls.row, registry.rows))
    registry.subclasses, registry.caches = {}, {}
    for name, rows in methods.items():
        of_tensors[name] = [
            (place, calls.noting(f"Tensor.{name}", _OF_TENSORS, handler)) for place, handler in rows
        ]
    try:
        yield calls
    finally:
        for name, value in before.items():
            setattr(registry, name, value)
        of_tensors.update(methods)
