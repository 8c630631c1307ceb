"""Tensors that operations of torch read numbers from: ``x.clamp(0.1, t)``.

Where an operation takes a number, torch reads it in a 0-d tensor before anything is computed. A
trace makes a number of its own of that, in the middle of the operation, which no graph holds. So
it is found out beforehand which arguments are read, by a call with tensors in their place, and
mended code is given the numbers, as if it had taken them out itself.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType
from typing import Any, Final, TypeAlias

import torch
from torch import Tensor

from bcmend.dynamo import compat
from bcmend.dynamo.values import Value, example_of, fake_mode_of
from bcmend.tracing.effects.operator_runs import stand_in
from bcmend.tracing.numbers import scalars
from bcmend.tracing.opaque import operator
from bcmend.tracing.sites import capture_mode
from bcmend.tracing.substitutes.autograd_leaf import is_plain

Given = dict[str, Value]

#: Where an argument is: its position, or its name.
_Place: TypeAlias = int | str

#: Functions of torch, which read their arguments as one parser does, or hand them on.
_KINDS: Final = (BuiltinFunctionType, MethodDescriptorType, FunctionType)

#: The arguments that are read, by the function and what it is given.
_READ: dict[Hashable, tuple[_Place, ...]] = {}

#: What stands for a number that is read.
_SOME: Final = 1


def taken(
    tx: compat.Tracer, function: Any, args: Sequence[Value], kwargs: Given
) -> tuple[Sequence[Value], Given]:
    """Return the arguments of a call, with numbers in place of the tensors that it reads."""
    places = _places_read(tx, function, args, kwargs)
    if not places:
        return args, kwargs
    numbers = {place: _number(tx, value) for place, value in _placed(args, kwargs, places)}
    given = [numbers.get(place, value) for place, value in enumerate(args)]
    return given, {key: numbers.get(key, value) for key, value in kwargs.items()}


def _placed(
    args: Sequence[Value], kwargs: Given, places: Iterable[_Place]
) -> Iterator[tuple[_Place, Value]]:
    for place in places:
        yield place, (args[place] if isinstance(place, int) else kwargs[place]).realize()


def _number(tx: compat.Tracer, value: Value) -> Value:
    assert isinstance(value, compat.TensorVariable)
    return scalars.take(tx, value) or value


def _places_read(
    tx: compat.Tracer, function: Any, args: Sequence[Value], kwargs: Given
) -> tuple[_Place, ...]:
    if not isinstance(function, _KINDS) or "out" in kwargs:
        return ()
    everywhere = [*range(len(args)), *kwargs]
    places = [place for place, each in _placed(args, kwargs, everywhere) if _may_be_read(each)]
    if not places or not capture_mode.in_mended_code(tx):
        return ()
    try:
        examples = [_example(each) for each in args]
        named = {key: _example(each) for key, each in kwargs.items()}
    except operator.NotWritten:
        return ()
    key = (function, _kind(examples), _kind(tuple(named.items())))
    if key not in _READ:
        # What it asks of sizes, for the numbers in place of others, holds for no call.
        with fake_mode_of(tx), operator.unlogged(), tx.output.shape_env.suppress_guards():
            _READ[key] = tuple(_read(function, examples, named, places))
    return _READ[key]


def _may_be_read(value: Value) -> bool:
    """Return whether a value is a tensor that torch takes for a number, and not for a truth."""
    if not is_plain(value):
        return False
    assert isinstance(value, compat.TensorVariable)
    example = example_of(value)
    is_number = example.dim() == 0 and not example.is_complex() and example.dtype is not torch.bool
    return is_number and not example.requires_grad and not _is_transformed(example)


def _is_transformed(example: Tensor) -> bool:
    return bool(compat.is_functorch_wrapped_tensor(example))


def _example(value: Value) -> Any:
    """Return a stand-in for an argument.

    Raises:
        NotWritten: there is none.
    """
    value = value.realize()
    if isinstance(value, compat.TensorVariable) and is_plain(value):
        if _is_transformed(example_of(value)):
            raise operator.NotWritten("a tensor of a transform")
        return example_of(value)
    if type(value) in (compat.TupleVariable, compat.ListVariable, compat.SizeVariable):
        return [_example(each) for each in value.items]  # type: ignore[attr-defined]
    if isinstance(value, compat.SymNodeVariable):
        return float(_SOME) if isinstance(value.sym_num, torch.SymFloat) else _SOME
    if value.is_python_constant():
        return value.as_python_constant()
    raise operator.NotWritten(type(value).__name__)


def _kind(example: Any) -> Hashable:
    """Return what torch's parser, and a function on fake tensors, may ask of an argument."""
    if isinstance(example, Tensor):
        return example.dtype, example.device, example.dim()
    if isinstance(example, (list, tuple)):
        return tuple(map(_kind, example))
    return type(example), example if isinstance(example, (str, bool)) else None


class _Reads(compat.TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Notes of which tensors only the number is read, and gives a number for them."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._read: set[int] = set()
        self._used: set[int] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten._local_scalar_dense.default:
            self._read.add(id(args[0]))
            return _some(args[0])
        if func.namespace != "prim":  # which asks where a tensor is
            self._used.update(map(id, compat.tree_leaves((args, kwargs))))
        return func(*args, **(kwargs or {}))

    def is_number(self, tensor: Tensor) -> bool:
        """Return whether nothing but the number in a tensor was asked for."""
        return id(tensor) in self._read and id(tensor) not in self._used


def _some(example: Tensor) -> float:
    return float(_SOME) if example.is_floating_point() else _SOME


def _read(
    function: Callable[..., Any],
    examples: Sequence[Any],
    named: dict[str, Any],
    places: Iterable[_Place],
) -> Iterator[_Place]:
    """Yield the arguments that a call reads, where it takes numbers just as well."""
    own = compat.tree_map(stand_in, [*examples])
    own_named = compat.tree_map(stand_in, named)
    given = {place: own[place] if isinstance(place, int) else own_named[place] for place in places}
    reads = _Reads()
    with reads:
        form = _form(function, own, own_named)
    read = [place for place, each in given.items() if reads.is_number(each)]
    for place in read:
        if isinstance(place, int):
            own[place] = _some(given[place])
        else:
            own_named[place] = _some(given[place])
    if read and form is not None and form == _form(function, own, own_named):
        yield from read


def _form(function: Callable[..., Any], args: Sequence[Any], named: dict[str, Any]) -> Any:
    """Return what is known of the result of a call on stand-ins; ``None`` where it fails."""
    try:
        results = compat.tree_leaves(function(*args, **named))
    except operator.FAILURES:  # it may fail for any number, or for this one
        return None
    return [_kind(each) if isinstance(each, Tensor) else type(each) for each in results]
