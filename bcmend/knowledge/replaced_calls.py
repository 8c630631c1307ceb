"""Which calls have something equal traced in their place.

They are those of ``substitute_rows``, and callables with replacements that the user adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import (
    BuiltinFunctionType,
    ClassMethodDescriptorType,
    CodeType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
)
from typing import Any, Final

from bcmend.bytecode.names_used import code_objects, has_with
from bcmend.errors import CaptureError
from bcmend.knowledge.qualified_names import (
    Registered,
    is_qualified,
    missing_in,
    name_of,
    no_such,
    resolved,
)
from bcmend.knowledge.substitute_rows import TABLE, Substitute

#: In place of a callable: attributes of tensors that are stored to.
STORES: Final = frozenset(["requires_grad"])

_TENSOR: Final = "torch.Tensor."

_BY_LAST_NAME: Final = {
    last: [row for row in TABLE.values() if row.name.rpartition(".")[2] == last]
    for last in {name.rpartition(".")[2] for name in TABLE}
}

#: Layers of torch, which make parameters when they are made.
_LAYERS: Final = frozenset(
    "Linear Bilinear Embedding EmbeddingBag PReLU LayerNorm RMSNorm GroupNorm BatchNorm1d"
    " BatchNorm2d BatchNorm3d SyncBatchNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d Conv1d"
    " Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d MultiheadAttention RNN LSTM GRU"
    " RNNCell LSTMCell GRUCell Transformer TransformerEncoderLayer TransformerDecoderLayer"
    " AdaptiveLogSoftmaxWithLoss".split()
)

#: What code of torch's calls, and that of the user by the same name mostly of a tensor.
_CALLED_BY_TORCH: Final = frozenset(["clone"])

#: The names by which code may know what is substituted.
_OWN_NAMES: Final = (STORES | set(_BY_LAST_NAME) | _LAYERS) - _CALLED_BY_TORCH

#: What the user has added.
REGISTERED: Final[Registered[Substitute]] = Registered()


def register(target: object, traced: object, opaque: object = None) -> None:
    """Have calls of ``target`` captured; see ``bcmend.register_capture``."""
    if (traced is None) == (opaque is None):
        raise CaptureError("register_capture takes a target and one of traced=... and opaque=...")
    replacement = opaque if traced is None else traced
    if not callable(replacement):
        raise CaptureError(
            f"what stands in for a call is something to be called; got {replacement!r} of type "
            f"{type(replacement).__qualname__}"
        )
    if replacement is target:
        raise CaptureError(f"{target!r} cannot stand in for itself")
    if isinstance(target, str):
        if not is_qualified(target):
            raise CaptureError(
                "what is captured has a qualified name, such as 'package.module.function'; "
                f"got {target!r}"
            )
        if owner := missing_in(target):
            raise CaptureError(no_such(target, owner))
    elif not callable(target):
        raise CaptureError(
            "what is captured is a callable or the qualified name of one; "
            f"got {target!r} of type {type(target).__qualname__}"
        )
    answer = "call" if opaque is None else "opaque"
    REGISTERED.add(target, Substitute(name_of(target), answer, replacement=replacement))


def of_callable(value: Any) -> Substitute | None:
    """Return what stands in for calls of a callable; ``None`` if nothing does."""
    found = REGISTERED.of_object(value)
    if found is not None:
        return found
    name = _name_of(value)
    rows: list[Substitute] = [*REGISTERED.by_name.values(), *_BY_LAST_NAME.get(name, ())]
    for row in rows:
        if row.name.rpartition(".")[2] == name and _is_one(resolved(row.name), value):
            return row
    return None


def _is_one(known: Any, value: Any) -> bool:
    """Return whether two callables are one function, or one bound to the same object."""
    are_bound = type(known) is type(value) and type(value) in (MethodType, BuiltinFunctionType)
    return known is value or (are_bound and bool(known == value))


#: Types of callables that have a name; ``random.seed`` of numpy is a function of Cython's.
_NAMED: Final = (
    type,
    MethodType,
    FunctionType,
    BuiltinFunctionType,
    MethodDescriptorType,
    ClassMethodDescriptorType,
)
_OF_CYTHON: Final = "cython_function_or_method"


def _name_of(value: Any) -> str:
    """Return the name of a function, method or class, without calling an object of the user."""
    has_name = issubclass(type(value), _NAMED) or type(value).__name__ == _OF_CYTHON
    return str(value.__name__) if has_name else ""


def of_tensor_method(name: str) -> Substitute | None:
    """Return what stands in for a method of plain tensors."""
    return REGISTERED.by_name.get(_TENSOR + name) or TABLE.get(_TENSOR + name)


def may_substitute(code: CodeType, space: Mapping[str, object]) -> bool:
    """Return whether a function may call something that is substituted, or holds a lock.

    Goes by the names that it uses, and by what they stand for among its globals.
    """
    names = _OWN_NAMES | REGISTERED.last_names()
    return any(map(has_with, code_objects(code))) or any(
        name in names or of_callable(space.get(name)) is not None
        for each in code_objects(code)
        for name in (*each.co_names, *each.co_freevars, *each.co_varnames)
    )


def page() -> str:
    """Return the table as a page of the documentation, in Markdown."""
    parts = [
        "# Substitutes",
        "Calls that end the graph of stock `torch.compile`, and what is traced in their place in"
        " patched code. Where the condition does not hold, Dynamo does what it always does. The"
        " report has the reason then. Each row was asked for by a public program, which is named."
        " Programs made of its domain, at the borders of what its arguments may be, are compared"
        " with eager execution by `python -m tests.captures`. This page is the output of"
        " `python -m bcmend substitutes`.",
        "`bcmend.register_capture` adds others, and `bcmend.testing.check_capture` compares them.",
    ]
    rows: dict[tuple[str, str, str], list[str]] = {}
    for row in TABLE.values():
        rows.setdefault((row.becomes, row.condition, row.seen_in), []).append(f"`{row.name}`")
    lines = ["| call | becomes | where | seen in |", "|---|---|---|---|"]
    lines += [
        f"| {', '.join(names)} | {becomes} | {condition} | {seen_in} |"
        for (becomes, condition, seen_in), names in rows.items()
    ]
    return "\n\n".join([*parts, "\n".join(lines)]) + "\n"
