"""Comparison of two nested model outputs, bit for bit or within a tolerance.

Reads any nesting of tensors, containers and plain objects (model outputs, key-value caches) and
produces the paths at which the two differ, each with what differs there.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields, is_dataclass

import torch
from torch import Tensor

_INTEGER_OF_SIZE = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_bits(first: Tensor, second: Tensor) -> bool:
    """Return whether tensors of one dtype and shape have the same bits; any NaN equals any NaN."""
    if first.is_complex():
        return same_bits(torch.view_as_real(first), torch.view_as_real(second))
    if not first.is_floating_point():
        return torch.equal(first, second)
    integer = _INTEGER_OF_SIZE[first.element_size()]
    bits_agree = first.contiguous().view(integer) == second.contiguous().view(integer)
    both_nan = first.isnan() & second.isnan()
    return bool((bits_agree | both_nan).all())


def largest_difference(first: Tensor, second: Tensor) -> float:
    """The largest absolute difference of two tensors of one shape; NaN where just one is NaN."""
    if first.numel() == 0:
        return 0.0
    wide = torch.complex128 if first.is_complex() else torch.float64
    gap = (first.detach().to(wide) - second.detach().to(wide)).abs()
    equal = (first == second) | ((first != first) & (second != second))
    return float(torch.where(equal, torch.zeros_like(gap), gap).max())


def _is_within(first: Tensor, second: Tensor, tolerance: float) -> bool:
    """Return whether floats differ by no more than a share of the largest finite one, or of one."""
    if not (tolerance and (first.is_floating_point() or first.is_complex())):
        return False
    finite = first[first.isfinite()].abs()
    largest = max(1.0, float(finite.max())) if finite.numel() else 1.0
    return largest_difference(first, second) <= tolerance * largest


def _tensor_difference(first: Tensor, second: Tensor, tolerance: float) -> str | None:
    for aspect in ("dtype", "shape", "device", "requires_grad"):
        left, right = getattr(first, aspect), getattr(second, aspect)
        if left != right:
            return f"{aspect} {left} and {right}"
    first, second = first.detach(), second.detach()
    if same_bits(first, second) or _is_within(first, second, tolerance):
        return None
    return f"values differ by up to {largest_difference(first, second):g}"


def _parts(value: object) -> Mapping[object, object] | None:
    """What a container or object is made of, by key, index or attribute; None for an atom."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return dict(enumerate(value))
    if is_dataclass(value) and not isinstance(value, type):
        return {field.name: getattr(value, field.name) for field in fields(value)}
    if type(value).__module__ == "builtins" or isinstance(value, (type, torch.dtype, torch.device)):
        return None
    return getattr(value, "__dict__", None)


def differences(
    first: object,
    second: object,
    path: str = "output",
    tolerance: float = 0.0,
    _seen: frozenset[int] = frozenset(),
) -> Iterator[str]:
    """Each place where `second` is not what `first` is, as "path: what differs".

    Floats of a tensor may differ by `tolerance`, a share of the largest of them or of one.
    """
    if type(first) is not type(second):
        yield f"{path}: type {type(first).__name__} and {type(second).__name__}"
    elif isinstance(first, Tensor) and isinstance(second, Tensor):
        found = _tensor_difference(first, second, tolerance)
        if found is not None:
            yield f"{path}: {found}"
    elif id(first) not in _seen:
        yield from _differences_inside(first, second, path, tolerance, _seen | {id(first)})


def _differences_inside(
    first: object, second: object, path: str, tolerance: float, seen: frozenset[int]
) -> Iterator[str]:
    left, right = _parts(first), _parts(second)
    if left is None or right is None:
        if callable(first) or first == second or (first != first and second != second):
            return
        yield f"{path}: {first!r} and {second!r}"
    elif list(left) != list(right):
        yield f"{path}: parts {list(left)} and {list(right)}"
    else:
        for key in left:
            yield from differences(left[key], right[key], f"{path}[{key!r}]", tolerance, seen)
