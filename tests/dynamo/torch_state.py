"""What torch has in its classes, modules and tables, so that two moments can be compared.

Imports nothing of bcmend, and knows nothing of what bcmend replaces.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

import torch

#: The modules whose classes and functions are looked at, beside ``torch`` itself.
_WHERE: Final = (
    "torch._dynamo",
    "torch._guards",
    "torch._subclasses",
    "torch._higher_order_ops",
    "torch._inductor.ir",
    "torch.fx.experimental.symbolic_shapes",
    "torch._functorch.partitioners",
    "torch.nn.modules.module",
    "torch._tensor",
)

#: Classes whose attributes count what was compiled; attributes that are numbers do so too.
_COUNTING: Final = ("GenerationTracker",)

_ABSENT: Final = object()

State = dict[tuple[str, str], Any]


def state() -> State:
    """Return every attribute of a class, function of a module, and entry of a table."""
    found: State = {}
    for name, module in sorted(sys.modules.items()):
        if (name == "torch" or name.startswith(_WHERE)) and type(module) is ModuleType:
            found.update(_of_module(name, module))
    found.update(_of_tables())
    return found


def _of_module(name: str, module: ModuleType) -> Iterator[tuple[tuple[str, str], Any]]:
    for attribute, value in list(vars(module).items()):
        if isinstance(value, type) and value.__module__ == name:
            for member, held in list(vars(value).items()):
                if not isinstance(held, int) and value.__name__ not in _COUNTING:
                    yield (f"{name}.{value.__qualname__}", member), held
        elif isinstance(value, FunctionType):
            yield (name, attribute), value
            yield (f"{name}.{attribute}", "__code__"), value.__code__


def _of_tables() -> Iterator[tuple[tuple[str, str], Any]]:
    dynamo: Any = torch._dynamo
    handlers = dynamo.variables.torch.TorchInGraphFunctionVariable._get_handlers()
    operators = dynamo.variables.higher_order_ops._hop_name_to_variable_class
    for table in ("handlers", "operators"):
        for key, value in (handlers if table == "handlers" else operators).items():
            yield (table, f"{key} {id(key)}"), value
    for position, directory in enumerate(dynamo.trace_rules.SKIP_DIRS):
        yield ("SKIP_DIRS", str(position)), directory
    yield ("SKIP_DIRS", "pattern"), dynamo.trace_rules.SKIP_DIRS_RE.pattern


def changed(before: State, after: State) -> list[tuple[str, str]]:
    """Return what is another object in ``after``, or is in one of the two alone."""
    return [
        key
        for key in before.keys() | after.keys()
        if before.get(key, _ABSENT) is not after.get(key, _ABSENT)
        and not (isinstance(before.get(key), str) and before[key] == after.get(key))
    ]
