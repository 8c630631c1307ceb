"""The entries of the database, with samples of arguments, drawing from the generator of torch."""

from __future__ import annotations

import itertools
import sys
import types
import unittest
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch.utils import _pytree as pytree

#: Dtypes, those that are tried first in front.
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)


@dataclass(frozen=True)
class Sample:
    """The arguments of one call; positional ones are a list, so that they can be replaced."""

    arguments: list[Any]
    keywords: dict[str, Any]

    def copied(self) -> Sample:
        return self.mapped(lambda each: each.detach().clone())

    def mapped(self, change: Callable[[torch.Tensor], Any]) -> Sample:
        """Return the sample with something else for each tensor."""

        def changed(value: Any) -> Any:
            return change(value) if isinstance(value, torch.Tensor) else value

        return Sample(*pytree.tree_map(changed, (self.arguments, self.keywords)))

    @property
    def tensors(self) -> list[torch.Tensor]:
        leaves = pytree.tree_leaves((self.arguments, self.keywords))
        return [each for each in leaves if isinstance(each, torch.Tensor)]

    def __str__(self) -> str:
        def shown(tensor: torch.Tensor) -> str:
            return f"<{str(tensor.dtype)[6:]} {list(tensor.shape)}>"

        found = self.mapped(shown)
        return f"{found.arguments} {found.keywords}"


@dataclass(frozen=True)
class Entry:
    """A function of the database, under a name of its own."""

    name: str
    info: Any

    @property
    def ways(self) -> dict[str, Callable[..., Any]]:
        """How it is called: as a function, as a method, in place."""
        found = {
            "function": self.info.op,
            "method": self.info.method_variant,
            "in place": self.info.inplace_variant,
        }
        return {name: each for name, each in found.items() if each is not None}

    def samples(self, at_most: int) -> list[Sample]:
        """Return the first samples, on tensors of the first dtype that it supports."""
        supported = self.info.supported_dtypes("cpu")
        dtype = next((each for each in (*_DTYPES, *supported) if each in supported), None)
        if dtype is None:
            return []
        torch.manual_seed(1)
        found = self.info.sample_inputs("cpu", dtype, requires_grad=False)
        return [
            Sample([each.input, *each.args], dict(each.kwargs))
            for each in itertools.islice(found, at_most)
        ]


@cache
def entries() -> tuple[Entry, ...]:
    """Return the whole database."""
    if "expecttest" not in sys.modules:  # torch's tests want it; nothing of it is used here
        stand_in: Any = types.ModuleType("expecttest")
        stand_in.TestCase = unittest.TestCase
        sys.modules["expecttest"] = stand_in
    scripted: Any = [
        (each, each.__call__) for each in (torch._C.ScriptFunction, torch._C.ScriptMethod)
    ]
    from torch.testing._internal.common_methods_invocations import op_db

    # The import has functions of its own call what TorchScript has compiled.
    for kind, call in scripted:
        kind.__call__ = call
    # The import forbids the whole process to set a flag of a back end.
    torch.backends.flags_frozen.__globals__["__allow_nonbracketed_mutation_flag"] = True
    for module in list(sys.modules.values()):
        # Random functions are called under a seed there, and the generator is put back.
        if module.__name__.startswith("torch.testing.") and hasattr(module, "wrapper_set_seed"):
            module.wrapper_set_seed = _plainly  # type: ignore[attr-defined]
    return tuple(_named(op_db))


def _plainly(function: Any, *arguments: Any, **keywords: Any) -> Any:
    return function(*arguments, **keywords)


def _named(infos: Any) -> Iterator[Entry]:
    seen: dict[str, int] = {}
    for info in infos:
        name = ".".join(filter(None, (info.name, info.variant_test_name)))
        seen[name] = number = seen.get(name, 0) + 1
        yield Entry(name if number == 1 else f"{name}-{number}", info)
