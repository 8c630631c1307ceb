"""An operator that calls a function of torch with numbers that the data decide.

Such a number is a 0-d tensor, or a symbolic integer, until the operator runs: the function then
gets what eager execution gives it, chooses its kernels by it, and raises what it raises there. The
backward calls the function again. Which function, and where its arguments are, is text, so that
graphs with the operator can be written to a cache.
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import json
import logging
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.dynamo import compat, operators
from bcmend.errors import CaptureError
from bcmend.knowledge import effects
from bcmend.knowledge.effects import EffectFacts
from bcmend.tracing.deopt import raised_errors
from bcmend.tracing.effects.operator_runs import storage_of
from bcmend.tracing.opaque.hidden_sizes import ALIKE

_FAKE_LOG: Final = logging.getLogger("torch._subclasses.fake_tensor")

#: Where functions are looked for, and how their names begin.
_NAMESPACES: Final = {
    "": torch,
    "nn.functional.": torch.nn.functional,
    "linalg.": torch.linalg,
    "special.": torch.special,
    "Tensor.": torch.Tensor,
}

#: What the numbers are taken for, one after the other, while their values are not known.
_FIRST_AND_STEP: Final = (
    (0.5, 0.25), (2.0, 1.0), (0.75, -0.125), (1.0, 0.0), (0.0, 0.0), (-1.0, 0.5), (3.0, -1.0),
)  # fmt: skip

# What an argument is, in the text of a form.
_TENSOR: Final = "tensor"
_FLOAT: Final = "float"
_INTEGER: Final = "integer"
_SIZE: Final = "size"
_CONSTANT: Final = "constant"
_NAME: Final = "name"
_TUPLE: Final = "tuple"
_LIST: Final = "list"

_CONSTANTS: Final = (type(None), bool, int, float, str)
_NAMED: Final = (torch.dtype, torch.layout, torch.memory_format)


#: What functions raise for numbers that they do not take, and for symbolic ones.
FAILURES: Final = (RuntimeError, ValueError, IndexError, TypeError, ZeroDivisionError)


class NotWritten(Exception):
    """A form cannot hold an argument."""


@functools.cache
def _names() -> dict[int, str]:
    """Return the names of what is called, by the ``id`` of each."""
    found = {id(compat._nn_pad): "nn.functional.pad"}  # which calls it
    for start, owner in _NAMESPACES.items():
        for name, value in inspect.getmembers_static(owner, callable):
            found.setdefault(id(getattr(owner, name, value)), f"{start}{name}")
    return found


def name_of(function: Any) -> str:
    """Return the name by which a function or method is found; empty where it has none."""
    name = _names().get(id(function), "")
    is_found = name != "" and (_function(name) is function or function is compat._nn_pad)
    return name if is_found else ""


#: Functions that are no torch's own, and what is run in their place on fake tensors, by name.
_REGISTERED: Final[dict[str, tuple[Callable[..., Any], Callable[..., Any]]]] = {}


def registered(function: Callable[..., Any], fake: Callable[..., Any]) -> str:
    """Return the name by which the operator finds a function of the user.

    A graph in a cache calls, in another process, what has the name there: so the name holds the
    code of both.
    """
    for name, known in _REGISTERED.items():
        if known == (function, fake):
            return name
    code = [getattr(getattr(each, "__code__", None), "co_code", b"") for each in (function, fake)]
    place = f"{getattr(function, '__module__', '')}.{getattr(function, '__qualname__', '')}"
    name = f"{_OF_USERS}{place}.{hashlib.blake2b(b''.join(code), digest_size=8).hexdigest()}"
    if name in _REGISTERED:  # of another function with that code, which no other process may find
        name = f"{name}.{uuid.uuid4().hex}"
    _REGISTERED[name] = function, fake
    return name


_OF_USERS: Final = "registered:"


def _function(name: str) -> Callable[..., Any]:
    found: Any = functools.reduce(getattr, name.split("."), torch)
    return found  # type: ignore[no-any-return]


@dataclass(slots=True)
class Form:
    """Where the arguments of a call are, and those that are no constants.

    Attributes:
        tensors: those that the call is given.
        floats, integers: numbers that depend on data.
        sizes: other symbolic integers.
    """

    tensors: list[Any] = field(default_factory=list)
    floats: list[Any] = field(default_factory=list)
    integers: list[Any] = field(default_factory=list)
    sizes: list[Any] = field(default_factory=list)

    def tensor(self, value: Any) -> list[Any]:
        """Return the part of a tensor."""
        return _placed(_TENSOR, self.tensors, value)

    def number(self, value: Any, *, is_float: bool) -> list[Any]:
        """Return the part of a number that depends on data."""
        places = self.floats if is_float else self.integers
        return _placed(_FLOAT if is_float else _INTEGER, places, value)

    def size(self, value: Any) -> list[Any]:
        """Return the part of a symbolic integer."""
        return _placed(_SIZE, self.sizes, value)


def _placed(kind: str, places: list[Any], value: Any) -> list[Any]:
    places.append(value)
    return [kind, len(places) - 1]


def constant(value: Any) -> list[Any]:
    """Return the part of a constant.

    Raises:
        NotWritten: text cannot hold it.
    """
    if type(value) in _CONSTANTS:
        return [_CONSTANT, value]
    if type(value) in _NAMED:
        return [_NAME, str(value).removeprefix("torch.")]
    raise NotWritten(type(value).__name__)


def sequence(parts: list[Any], *, is_tuple: bool) -> list[Any]:
    """Return the part of a tuple or list."""
    return [_TUPLE if is_tuple else _LIST, parts]


def text(parts: Sequence[Any], named: dict[str, Any]) -> str:
    """Return the text of the arguments of a call."""
    return json.dumps([list(parts), named])


@dataclass(frozen=True, slots=True)
class Values:
    """What a call is given that is no constant, at the places that its form has."""

    tensors: Sequence[Tensor]
    floats: Sequence[float]
    integers: Sequence[int]
    sizes: Sequence[int]

    def argument(self, part: Sequence[Any]) -> Any:
        """Return the argument that a part of a form stands for."""
        kind, value = part
        if kind in (_TUPLE, _LIST):
            items = map(self.argument, value)
            return tuple(items) if kind == _TUPLE else list(items)
        if kind == _CONSTANT:
            return value
        if kind == _NAME:
            return getattr(torch, value)
        places = {
            _TENSOR: self.tensors,
            _FLOAT: self.floats,
            _INTEGER: self.integers,
            _SIZE: self.sizes,
        }
        return places[kind][value]


def _called(name: str, form: str, given: Values, *, is_traced: bool = False) -> Any:
    parts, named = json.loads(form)
    arguments = map(given.argument, parts)
    keywords = {key: given.argument(each) for key, each in named.items()}
    if name.startswith(_OF_USERS):
        return _REGISTERED[name][is_traced](*arguments, **keywords)
    function = ALIKE.get(name) if is_traced else None
    return (function or _function(name))(*arguments, **keywords)


def _listed(result: Any) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)


@contextmanager
def unlogged() -> Iterator[None]:
    """Keep what torch logs of failures on fake tensors in this thread out of its log."""
    thread = threading.get_ident()

    def is_of_another(record: logging.LogRecord) -> bool:
        return record.thread != thread

    _FAKE_LOG.addFilter(is_of_another)
    try:
        yield
    finally:
        _FAKE_LOG.removeFilter(is_of_another)


def tried(name: str, form: str, given: Values) -> list[Any]:
    """Return what a call gives for several values of its numbers, as far as it gives anything.

    Of the floats and integers in ``given`` only the number of them counts.
    """
    found = []
    with unlogged():
        for first, step in _FIRST_AND_STEP:
            floats = [first + step * place for place in range(len(given.floats))]
            integers = [int(2 * (first + step * place)) for place in range(len(given.integers))]
            with suppress(*FAILURES):  # no such number may be given
                values = Values(given.tensors, floats, integers, given.sizes)
                found.append(_called(name, form, values, is_traced=True))
    return found


def asks_in_backward(name: str, form: str, given: Values) -> bool:
    """Return whether a call asks nothing about symbolic numbers, and its backward does."""
    try:
        results = _listed(_called(name, form, given))
    except FAILURES:  # whoever makes the call sees to that
        return False
    recorded = [each for each in results if each.requires_grad]
    leaves = [each for each in given.tensors if each.requires_grad]
    try:
        torch.autograd.grad(recorded, leaves, recorded, allow_unused=True)
    except compat.GuardOnDataDependentSymNode:
        return True
    except FAILURES:
        return False
    return False


def _run(name: str, form: str, *given: Any) -> list[Tensor]:
    tensors, floats, integers, sizes, records = given
    values = Values(tensors, [each.item() for each in floats], integers, sizes)
    with torch.set_grad_enabled(records):  # some have other kernels where autograd records
        if name.startswith(_OF_USERS):
            return _run_registered(name, form, values)
        return _listed(_called(name, form, values))


def _run_registered(name: str, form: str, values: Values) -> list[Tensor]:
    """Call a function of the user, and require of it what ``register_capture`` asks for."""
    counted = [each for each in values.tensors if not each.is_inference()]
    versions = [each._version for each in counted]
    try:
        result = _called(name, form, values)
    except Exception as error:
        raised_errors.note_of_a_function(error)
        raise
    results = list(result) if isinstance(result, (tuple, list)) else [result]
    memory = set(map(storage_of, values.tensors))
    does = "" if versions == [each._version for each in counted] else "changed an argument"
    for each in results:
        if not isinstance(each, Tensor):
            does = f"returned {each!r}"
        elif storage_of(each) in memory:
            does = "returned a view of an argument"
    if does:
        raise CaptureError(
            f"{_REGISTERED[name][0]!r} was registered with opaque=...: it has to return new tensors"
            f" and to change nothing, and it {does}"
        )
    return results


def _fake(name: str, form: str, *given: Any) -> list[Tensor]:
    *values, _ = given
    return _listed(tried(name, form, Values(*values))[0])


def _keep(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.name, ctx.form, tensors, floats, *ctx.numbers, ctx.records = inputs
    ctx.count = len(tensors)
    ctx.is_needed = [each.requires_grad for each in tensors]
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *floats)


def _gradients(ctx: Any, gradients: Sequence[Tensor | None]) -> tuple[Any, ...]:
    tensors, floats = ctx.saved_tensors[: ctx.count], ctx.saved_tensors[ctx.count :]
    given = ctx.name, ctx.form, tensors, floats, *ctx.numbers, ctx.records
    of_tensors = operators.gradients_where_needed(_BACKWARD, gradients, ctx.is_needed, *given)
    # Torch takes a list of numbers for one value, and an empty one for a list.
    of_numbers: list[Any] = [None if each else [] for each in ctx.numbers]
    return None, None, of_tensors, [None] * len(floats), *of_numbers, None


def _backward(
    gradients: Sequence[Tensor],
    places: Sequence[int],
    is_needed: Sequence[bool],
    name: str,
    form: str,
    tensors: Sequence[Tensor],
    *numbers: Any,
) -> list[Tensor]:
    return operators.gradients_again(
        lambda own: _run(name, form, own, *numbers), tensors, is_needed, places, gradients
    )


def _fake_backward(
    gradients: Sequence[Tensor],
    places: Sequence[int],
    is_needed: Sequence[bool],
    name: str,
    form: str,
    tensors: Sequence[Tensor],
    *numbers: Any,
) -> list[Tensor]:
    return operators.like_needed(tensors, is_needed)


_CALL: Final = (
    "str name, str form, Tensor[] tensors, Tensor[] floats, SymInt[] integers, SymInt[] sizes,"
    " bool records) -> Tensor[]"
)


def _define(signature: str, run: Any, fake: Any, keep: Any, backward: Any) -> Any:
    operator = operators.define(signature, run, fake, has_effect=False, autograd=(keep, backward))
    effects.declare(operator, EffectFacts(is_expensive=True))
    return operator


_BACKWARD: Final = _define(
    f"call_backward(Tensor[] gradients, int[] places, bool[] is_needed, {_CALL}",
    _backward,
    _fake_backward,
    operators.keep_nothing,
    operators.no_backward("a call that is handed numbers out of tensors"),
)
CALL: Final = _define(f"call({_CALL}", _run, _fake, _keep, _gradients)
