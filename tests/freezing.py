"""Frozen copies of nested values, their comparison, and who shares memory with whom.

Reads any value: tensors, arrays, containers, iterators, modules, functions with their cells, plain
objects. Produces `Frozen` values that nothing changes later, and the paths at which two of them
differ. What is frozen together is one root: an object that is met again is a reference to the first
place, so that "this result is that item of the state" is data like any other.
"""

from __future__ import annotations

import collections
import contextlib
import functools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from logging import Logger
from types import (
    BuiltinFunctionType,
    FunctionType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
)
from typing import Any

import numpy
import torch
from torch import Tensor

from bcmend.trials.frozen import is_bound, memory_of

# Bookkeeping of torch that says nothing about the program.
_NOT_STATE = frozenset(
    ["_is_torch_compile", "_compiled_call_impl", "_non_persistent_buffers_set", "__weakref__"]
)
_ITERATORS = tuple(
    type(iter(each)) for each in ([], (), "", range(0), enumerate(()), zip(), reversed([]))
)
_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True, slots=True, eq=False)
class Frozen:
    """A copy of a value.

    `kind` names its type; an atom has a `text`, a tensor its `data`, anything else its `parts`.
    """

    kind: str
    text: str = ""
    data: Tensor | None = None
    requires_grad: bool = False
    parts: Mapping[str, Frozen] | None = None


def freeze(value: object) -> Frozen:
    """Return a copy of `value`. An object met a second time is a reference to the first place."""
    return _frozen(value, "", {})


def _frozen(value: object, path: str, seen: dict[int, tuple[str, object]]) -> Frozen:
    kind = type(value).__qualname__
    if isinstance(value, Tensor):
        return Frozen(kind, data=value.detach().clone(), requires_grad=value.requires_grad)
    if isinstance(value, numpy.ndarray):
        return _frozen_array(value)
    if _is_atom(value):
        return Frozen(kind, text=_text_of(value))
    if id(value) in seen:
        return Frozen("reference", text=seen[id(value)][0])
    seen[id(value)] = (path, value)  # kept, so that the identity is not used again
    parts = {name: _frozen(part, f"{path}.{name}", seen) for name, part in _parts(value).items()}
    return Frozen(kind, text=getattr(value, "__qualname__", ""), parts=parts)


def _frozen_array(value: numpy.ndarray[Any, Any]) -> Frozen:
    """Return a copy of an array; `aliases` says which arrays are one or share memory."""
    kind, text = type(value).__qualname__, f"writeable {value.flags.writeable}"
    try:
        return Frozen(kind, text=text, data=torch.from_numpy(value.copy(order="K")))
    except TypeError:  # of no dtype of torch's
        return Frozen(kind, text=f"{text} {value.dtype} {value.shape} {value.tolist()!r}")


def _is_atom(value: object) -> bool:
    if value is None or isinstance(value, (ModuleType, Logger)):
        return True
    if isinstance(value, BuiltinFunctionType):
        return not is_bound(value)
    if isinstance(value, type):
        return value.__module__.partition(".")[0] in ("builtins", "torch", "logging")
    return type(value) in (bool, int, float, complex, str, bytes, range, slice) or isinstance(
        value, (torch.dtype, torch.device, torch.Size, torch.Generator, numpy.generic)
    )


def _text_of(value: object) -> str:
    if isinstance(value, (ModuleType, type, BuiltinFunctionType)):
        return value.__name__
    if isinstance(value, Logger):
        return value.name  # its handlers, and all the loggers above, are no part of a program
    return "" if isinstance(value, torch.Generator) else repr(value)


def _parts(value: Any) -> dict[str, object]:
    """What `value` is made of, in order, by a name for each part."""
    found: dict[str, object] = {}
    if isinstance(value, Mapping):
        found = {f"[{key!r}]": part for key, part in value.items()}
    elif isinstance(value, (set, frozenset)):
        found = {f"{{{part!r}}}": part for part in sorted(value, key=repr)}
    elif isinstance(value, (list, tuple, collections.deque)):
        found = {f"[{index}]": part for index, part in enumerate(value)}
    elif isinstance(value, bytearray):
        found = {"bytes": bytes(value)}
    elif isinstance(value, BaseException):
        found = {"args": value.args}
    elif type(value) in _ITERATORS:
        found = {"left": value.__reduce__()[1:]}
    elif isinstance(value, FunctionType):
        return _cells(value)
    elif isinstance(value, (BuiltinFunctionType, MethodType, functools.partial)):
        return _bound(value)
    elif isinstance(value, type):
        return {key: part for key, part in vars(value).items() if _is_data(key, part)}
    found.update(
        (key, part)
        for key, part in getattr(value, "__dict__", {}).items()
        if key not in _NOT_STATE and not key.endswith("_hooks") and key[:6] != "_torch"
    )
    found.update(_slots(value))
    return found


def _slots(value: object) -> dict[str, object]:
    found = {}
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if name.startswith("__"):
                name = f"_{base.__name__.lstrip('_')}{name}" if not name.endswith("__") else name
            slot = vars(base).get(name)
            if isinstance(slot, MemberDescriptorType):
                with contextlib.suppress(AttributeError):  # it is empty
                    found[name] = slot.__get__(value)
    return found


def _bound(value: Any) -> dict[str, object]:
    if isinstance(value, functools.partial):
        return {"function": value.func, "arguments": value.args, "keywords": value.keywords}
    of_python = isinstance(value, BuiltinFunctionType)  # its name is that of the function
    return {"function": None if of_python else value.__func__, "self": value.__self__}


def _cells(function: FunctionType) -> dict[str, object]:
    names = function.__code__.co_freevars
    cells = zip(names, function.__closure__ or (), strict=False)
    found = {name: cell.cell_contents for name, cell in cells if _is_filled(cell)}
    return {**found, **vars(function)}


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _is_data(name: str, part: object) -> bool:
    if name.startswith("__") or callable(part):
        return False
    return not hasattr(part, "__get__")


def frozen_differences(
    first: Frozen | None,
    second: Frozen | None,
    path: str,
    tolerance: float = 0.0,
    *,
    may_require_grad: bool = False,
) -> Iterator[str]:
    """Yield each place where `second` is not what `first` is, as "path: what differs".

    Values of tensors may differ by `tolerance`, absolutely and relatively; with
    `may_require_grad`, gradients may flow through a tensor of `second` alone.
    """
    if first is None or second is None:
        if first is not second:
            yield f"{path}: {_shown(first)} and {_shown(second)}"
    elif first.kind != second.kind or first.text != second.text:
        yield f"{path}: {_shown(first)} and {_shown(second)}"
    elif first.data is not None and second.data is not None:
        yield from _tensor_differences(first, second, path, tolerance, may_require_grad)
    elif first.parts is not None and second.parts is not None:
        if list(first.parts) != list(second.parts):
            yield f"{path}: parts {_only(first, second)} and {_only(second, first)}"
            return
        for name in first.parts:
            yield from frozen_differences(
                first.parts[name],
                second.parts[name],
                f"{path}.{name}",
                tolerance,
                may_require_grad=may_require_grad,
            )


def _only(first: Frozen, second: Frozen) -> list[str]:
    """The names of the parts that only `first` has; all of them where just the order differs."""
    one, other = first.parts or {}, second.parts or {}
    return [name for name in one if name not in other or one.keys() == other.keys()]


def _shown(value: Frozen | None) -> str:
    if value is None:
        return "nothing"
    if value.parts is not None and "['text']" in value.parts:
        texts = [f"{name[2:-2]} {_shown(value.parts[name])}" for name in value.parts]
        return "; ".join(texts)
    inside = "" if value.parts is None else ", ".join(map(_shown, value.parts.values()))
    return f"{value.kind} {value.text}{f'({inside})' if inside else ''}".strip()


def _tensor_differences(
    first: Frozen, second: Frozen, path: str, tolerance: float, may_require_grad: bool
) -> Iterator[str]:
    one, other = first.data, second.data
    assert one is not None and other is not None
    for aspect in ("dtype", "shape", "device", "layout"):
        left, right = getattr(one, aspect), getattr(other, aspect)
        if left != right:
            yield f"{path}: {aspect} {left} and {right}"
            return
    if one.stride() != other.stride():
        yield f"{path}: strides {one.stride()} and {other.stride()} of {tuple(one.shape)}"
    if first.requires_grad != second.requires_grad and not (
        may_require_grad and second.requires_grad
    ):
        yield f"{path}: requires_grad {first.requires_grad} and {second.requires_grad}"
    if not same_values(one, other, tolerance):
        yield f"{path}: values {one.flatten()[:8].tolist()} and {other.flatten()[:8].tolist()}"


def same_values(one: Tensor, other: Tensor, tolerance: float = 0.0) -> bool:
    """Return whether tensors of one dtype and shape have the same bits; any NaN equals any NaN."""
    if one.is_complex():
        one, other = torch.view_as_real(one), torch.view_as_real(other)
    if not one.is_floating_point():
        return torch.equal(one, other)
    if tolerance:
        return torch.allclose(one, other, rtol=tolerance, atol=tolerance, equal_nan=True)
    integer = _INTEGER_OF_SIZE[one.element_size()]
    same_bits = one.contiguous().view(integer) == other.contiguous().view(integer)
    return bool((same_bits | (one.isnan() & other.isnan())).all())


def tensors_in(value: object) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor inside `value` with its path, in order."""
    for path, found in _with_memory(value, "", set(), []):
        if isinstance(found, Tensor):
            yield path, found


def _with_memory(
    value: object, path: str, seen: set[int], kept: list[object]
) -> Iterator[tuple[str, Any]]:
    """Yield every tensor and every array inside `value` with its path, in order."""
    if isinstance(value, (Tensor, numpy.ndarray)):
        yield path, value
    elif not _is_atom(value) and id(value) not in seen:
        seen.add(id(value))
        parts = _parts(value)
        kept.append((value, parts))
        for name, part in parts.items():
            yield from _with_memory(part, f"{path}.{name}", seen, kept)


def aliases(roots: Mapping[str, object]) -> frozenset[tuple[str, str, str]]:
    """Return the pairs of paths that lead to one tensor or array ("same") or memory ("shared")."""
    found = [
        (f"{name}{path}", holder)
        for name, root in roots.items()
        for path, holder in _with_memory(root, "", set(), [])
    ]
    memory = [memory_of(holder) or id(holder) for _, holder in found]
    pairs = set()
    for position, (path, holder) in enumerate(found):
        for place, (other_path, other) in enumerate(found[position + 1 :], position + 1):
            if holder is other:
                pairs.add((path, other_path, "same"))
            elif memory[position] == memory[place]:
                pairs.add((path, other_path, "shared"))
    return frozenset(pairs)
