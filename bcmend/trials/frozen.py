"""Values as plain data that nothing changes later, and where two of them differ first.

What one `Freezer` is given is one root: of an object that is met again, and of a tensor or an array
whose memory is, it notes where it was met first. Left out is what mended code may do otherwise
(docs/deviations.md): that a merged tensor is a new one, the strides of dimensions of one item, that
a tensor requires gradients which needs none.
"""

from __future__ import annotations

import collections
import hashlib
import logging
import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy
import torch

_TEXTS: Final = (type(None), bool, int, float, complex, str, bytes, range, slice)
_OF_TORCH: Final = (torch.dtype, torch.device, torch.Size, torch.memory_format, torch.layout)
_NAMED: Final = (type, types.FunctionType, types.BuiltinFunctionType, types.ModuleType)
#: What torch keeps in every module, but for what the program sees of it, and what Lightning notes
#: on each that is compiled.
_BOOKKEEPING: Final = frozenset(
    {*vars(torch.nn.Module()), "_compiled_call_impl", "_is_torch_compile", "_compile_kwargs"}
    - {"training"}
)
_KEPT: Final = 1 << 20  # bytes of a tensor that are kept, to say by how much it differs
#: How what is met again is to what was met first.
OBJECT: Final = "is the object at"
TENSOR: Final = "is the tensor at"
MEMORY: Final = "shares memory with the tensor at"
_LONGEST: Final = 120  # characters of a value that is shown


@dataclass(frozen=True, slots=True)
class Text:
    """What has no parts."""

    kind: str
    text: str

    def __str__(self) -> str:
        return self.text if len(self.text) <= _LONGEST else f"{self.text[:_LONGEST]}..."


@dataclass(frozen=True, slots=True)
class Values:
    """A tensor or an array.

    ``data`` has its bytes, unless these are many and only their hash is of use.
    """

    kind: str
    dtype: str
    shape: tuple[int, ...]
    device: str
    stride: tuple[int, ...]
    requires_grad: bool
    digest: bytes
    data: bytes | None

    def __str__(self) -> str:
        return f"{self.kind} of {self.dtype.removeprefix('torch.')} {list(self.shape)}"


@dataclass(frozen=True, slots=True)
class Parts:
    """Anything else: what it is made of, by what leads there."""

    kind: str
    parts: _PartsOf

    def __str__(self) -> str:
        return f"{self.kind} of {len(self.parts)}"


@dataclass(frozen=True, slots=True)
class MetAgain:
    """What is met again in a root.

    ``places`` has for each path that leads to such an object what it is to what was met first, and
    the path that leads there.
    """

    places: Mapping[str, tuple[str, str]]

    def first_place(self, path: str) -> str:
        """Return the path at which what is at a path was met first."""
        kind, first = self.places.get(path, (MEMORY, path))
        return path if kind == MEMORY else first

    def first_with_memory(self, path: str) -> str:
        """Return the path at which memory was met first that a tensor at a path has."""
        place = self.first_place(path)
        return self.places.get(place, (MEMORY, place))[1]


Frozen: TypeAlias = Text | Values | Parts
_PartsOf: TypeAlias = tuple[tuple[str, Frozen], ...]


@dataclass(frozen=True, slots=True)
class FirstDifference:
    """Where two values differ first, and what is there."""

    where: str
    one: str
    other: str


class Freezer:
    """Makes plain data of values; what is met again is the same data."""

    def __init__(self, *, keeps_all: bool) -> None:
        self._keeps_all = keeps_all
        self._made: dict[int, Frozen] = {}
        self._places: dict[int, str] = {}
        self._memory: dict[int, str] = {}
        self._met_again: dict[str, tuple[str, str]] = {}
        self._kept: list[object] = []  # so that another object does not get the same identity

    def frozen(self, value: Any, path: str) -> Frozen:
        """Return a value, which ``path`` leads to, as plain data."""
        if isinstance(value, (torch.Tensor, numpy.ndarray)):
            self._note_memory(value, path)
            return _values(value, keeps_all=self._keeps_all)
        kind = type(value).__qualname__
        if type(value) in _TEXTS or isinstance(value, (*_OF_TORCH, numpy.generic)):
            return Text(kind, repr(value))
        if isinstance(value, logging.Logger):  # it reaches all others, which compiling changes
            return Text(kind, value.name)
        if isinstance(value, _NAMED) and not is_bound(value):
            return Text(kind, getattr(value, "__qualname__", value.__name__))
        if not self._is_met_again(value, path, OBJECT):
            self._made[id(value)] = Text(kind, "itself")  # where it holds itself
            parts = [
                (label, self.frozen(part, f"{path}{label}")) for label, part in list(_parts(value))
            ]
            self._made[id(value)] = Parts(kind, tuple(parts))
        return self._made[id(value)]

    def met_again(self) -> MetAgain:
        """Return what was met again in all that was made so far."""
        return MetAgain(self._met_again)

    def _is_met_again(self, value: object, path: str, kind: str) -> bool:
        if id(value) not in self._places:
            self._places[id(value)] = path
            self._kept.append(value)
            return False
        if type(value) is not tuple or value:  # the empty one is always one object
            self._met_again[path] = kind, self._places[id(value)]
        return True

    def _note_memory(self, value: Any, path: str) -> None:
        kind = TENSOR if isinstance(value, torch.Tensor) else OBJECT
        if self._is_met_again(value, path, kind):
            return
        memory = memory_of(value)
        if memory in self._memory:
            self._met_again[path] = MEMORY, self._memory[memory]
        elif memory is not None:
            self._memory[memory] = path


def memory_of(value: Any) -> int | None:
    """Return a number of the memory of a tensor or an array, None where it has none."""
    while isinstance(value, numpy.ndarray) and isinstance(
        value.base, (numpy.ndarray, torch.Tensor)
    ):
        value = value.base
    if isinstance(value, numpy.ndarray):
        return int(value.__array_interface__["data"][0]) if value.size else None
    try:
        return value.untyped_storage().data_ptr() or None
    except (RuntimeError, NotImplementedError):  # sparse, nested, of a class of its own
        return None


def is_bound(value: object) -> bool:
    """Return whether a value is a method of an object, also of one of Python's own classes."""
    owner = getattr(value, "__self__", None)
    is_method = isinstance(value, (types.MethodType, types.BuiltinFunctionType))
    return is_method and not isinstance(owner, (types.NoneType, type, types.ModuleType))


def _parts(value: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a value is made of, by what leads there."""
    left_out: frozenset[str] = frozenset()
    if isinstance(value, torch.nn.Module):
        left_out = _BOOKKEEPING
        for kind in ("_parameters", "_buffers", "_modules"):
            yield from ((f".{name}", part) for name, part in vars(value)[kind].items())
    elif isinstance(value, Mapping):
        yield from ((f"[{key!r:.40}]", part) for key, part in value.items())
    elif isinstance(value, (list, tuple, collections.deque)):
        yield from ((f"[{place}]", part) for place, part in enumerate(value))
    elif isinstance(value, (set, frozenset)):
        yield "{}", sorted(map(repr, value))
    elif is_bound(value):
        yield ".__name__", value.__name__
        yield ".__self__", value.__self__
    held = getattr(value, "__dict__", {})
    yield from ((f".{name}", part) for name, part in held.items() if name not in left_out)
    yield from _slots(value)


def _slots(value: Any) -> Iterator[tuple[str, Any]]:
    for base in type(value).__mro__:
        slots = vars(base).get("__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                yield f".{name}", getattr(value, name)


def _values(value: Any, *, keeps_all: bool) -> Frozen:
    kind = "a tensor" if isinstance(value, torch.Tensor) else "an array"
    try:
        tensor = torch.from_numpy(value.copy(order="K")) if kind == "an array" else value
        plain = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        plain = plain.reshape(-1) if plain.numel() else plain.new_empty(0)  # its step may be 0
        data = plain.view(torch.uint8).numpy().tobytes()
        stride = tensor.stride()
    except (RuntimeError, TypeError, NotImplementedError):  # sparse, nested, of a class of its own
        return Text(type(value).__qualname__, repr(value))
    shape = tuple(tensor.shape)
    reached = zip(shape, stride, strict=True) if tensor.numel() else ()
    return Values(
        kind,
        str(tensor.dtype),
        shape,
        str(tensor.device),
        tuple(step for size, step in reached if size > 1),
        tensor.requires_grad,
        hashlib.blake2b(data, digest_size=16).digest(),
        data if keeps_all or len(data) <= _KEPT else None,
    )


def first_difference(
    one: Frozen, other: Frozen, path: str, *, share: float
) -> FirstDifference | None:
    """Return where two values differ first; None where they are equal.

    Args:
        one: the reference.
        other: what is compared with it.
        path: what leads to both.
        share: by how much values of tensors may differ, as a share of the largest number; by four
            units in the last place at least, if at all.
    """
    return _Comparison(share).first(one, other, path)


def first_other_identity(one: MetAgain, other: MetAgain, *, joins: bool) -> FirstDifference | None:
    """Return the first place at which an object is met again in one of two roots alone.

    A tensor may be a new one in the second: a merged result is. It may not be one with a tensor, or
    share its memory, that it is apart from in the first.

    Args:
        one: the reference.
        other: what is compared with it.
        joins: tensors that share memory in the first may be one in the second.
    """
    for path in (*one.places, *other.places.keys() - one.places.keys()):
        first, second = one.places.get(path), other.places.get(path)
        if first == second or _may_differ(one, first, path, second, joins=joins):
            continue
        return FirstDifference(path, _told_identity(first), _told_identity(second))
    return None


def _may_differ(
    one: MetAgain,
    first: tuple[str, str] | None,
    path: str,
    second: tuple[str, str] | None,
    *,
    joins: bool,
) -> bool:
    """Return whether ``second`` says no more of a tensor than what is so in the reference."""
    if OBJECT in {each[0] for each in (first, second) if each is not None}:
        return False
    if second is None:
        return True
    kind, place = second
    if kind == TENSOR and not joins:
        return one.first_place(path) == one.first_place(place)
    return one.first_with_memory(path) == one.first_with_memory(place)


def _told_identity(one: tuple[str, str] | None) -> str:
    return "is met here first" if one is None else " ".join(one)


class _Comparison:
    def __init__(self, share: float) -> None:
        self._share = share
        self._equal: set[tuple[int, int]] = set()  # what has several holders is compared once

    def first(self, one: Frozen, other: Frozen, path: str) -> FirstDifference | None:
        """Return where two values differ first."""
        if isinstance(one, Values) and isinstance(other, Values):
            return _of_tensors(one, other, path, share=self._share)
        if not (isinstance(one, Parts) and isinstance(other, Parts)) or one.kind != other.kind:
            return (
                None
                if one == other
                else FirstDifference(path, _told(one, other), _told(other, one))
            )
        key = id(one), id(other)
        if key in self._equal:
            return None
        found = self._first_of_parts(one.parts, other.parts, path)
        if found is None:
            self._equal.add(key)
        return found

    def _first_of_parts(self, one: _PartsOf, other: _PartsOf, path: str) -> FirstDifference | None:
        for (label, part), (name, another) in zip(one, other, strict=False):
            if label != name:
                return FirstDifference(path, f"{label} comes next", f"{name} comes next")
            if found := self.first(part, another, f"{path}{label}"):
                return found
        if len(one) == len(other):
            return None
        more = one[len(other) :], other[len(one) :]
        first, second = (f"has {each[0][0]}" if each else "ends before" for each in more)
        return FirstDifference(path, first, second)


def _told(one: Frozen, other: Frozen) -> str:
    is_unclear = str(one) == str(other)
    return f"{one.kind} {one}" if is_unclear and not isinstance(one, Values) else str(one)


def _of_tensors(one: Values, other: Values, path: str, *, share: float) -> FirstDifference | None:
    for name in ("kind", "dtype", "shape", "device", "stride"):
        first, second = getattr(one, name), getattr(other, name)
        if first != second:
            return FirstDifference(path, f"{name} {first}", f"{name} {second}")
    if one.requires_grad and not other.requires_grad:
        return FirstDifference(path, "requires a gradient", "requires none")
    if one.digest == other.digest:
        return None
    if one.data is None or other.data is None:
        return FirstDifference(path, f"{one}", "other values")
    first, second = (_read(each, each.data or b"") for each in (one, other))
    if share and _are_close(first, second, share):
        return None
    return FirstDifference(path, *_first_other(first, second))


def _read(values: Values, data: bytes) -> torch.Tensor:
    dtype = getattr(torch, values.dtype.removeprefix("torch."))
    return torch.frombuffer(bytearray(data), dtype=dtype).reshape(values.shape)


def _are_close(one: torch.Tensor, other: torch.Tensor, share: float) -> bool:
    if not (one.is_floating_point() or one.is_complex()):
        return False
    finite = one[one.isfinite()].abs()
    largest = float(finite.max()) if finite.numel() else 0.0
    apart = max(share, 4 * torch.finfo(one.dtype).eps) * largest
    return torch.allclose(one, other, rtol=0.0, atol=apart, equal_nan=True)


def _first_other(one: torch.Tensor, other: torch.Tensor) -> tuple[str, str]:
    """Say what is at the first place at which tensors differ, and how far they differ at most."""
    size = one.element_size()
    bits, others = (each.reshape(-1).view(torch.uint8).reshape(-1, size) for each in (one, other))
    places = (bits != others).any(dim=1).nonzero().flatten()
    place = int(places[0])
    at = [int(each) for each in torch.unravel_index(places[0], one.shape)]
    most = (one.double() - other.double()).abs().max() if one.is_floating_point() else None
    apart = "" if most is None else f", at most {float(most):.3g} apart"
    where = f"at {at}" if at else "as a number"
    values = [each.reshape(-1)[place].item() for each in (one, other)]
    count = f"{len(places)} of {one.numel()} values differ{apart}"
    return f"{values[0]!r} {where}", f"{values[1]!r} {where}; {count}"
