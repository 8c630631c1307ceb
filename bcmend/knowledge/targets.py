"""What the target of a node is: which operator, and which others a function of Python may call."""

from __future__ import annotations

import builtins
import operator
import sys
from collections.abc import Iterator
from types import (
    BuiltinFunctionType,
    FunctionType,
    MethodDescriptorType,
    MethodType,
    WrapperDescriptorType,
)
from typing import Any, Final

import torch
from torch.nn import functional

from bcmend.bytecode.names_used import code_objects
from bcmend.knowledge.static_lookup import captured

_ATEN: Final = torch.ops.aten

#: The modules whose functions written in C are operators by the same name.
_OF_OPERATORS: Final = frozenset(
    ["torch", *(f"torch._C._{name}" for name in "nn fft linalg special sparse nested".split())]
)
#: The class of those of ``torch``; not all of them name their module.
_CLASS_OF_OPERATORS: Final = "_VariableFunctionsClass"
#: Packages whose functions written in C do nothing but give a value, if they are no operators.
_QUIET: Final = frozenset(["torch", "_operator", "math", "cmath"])
_QUIET_BUILTINS: Final = frozenset(
    map(
        vars(builtins).__getitem__,
        """
        abs all any bool complex divmod enumerate float getattr hasattr hash id int isinstance
        issubclass len list max min object pow range reversed round slice sorted str sum tuple type
        dict set frozenset zip
        """.split(),
    )
)
_DESCRIPTORS: Final = (MethodDescriptorType, WrapperDescriptorType)

#: Functions of the module ``operator``, and methods, that change their first argument.
_IN_PLACE: Final = frozenset(
    "iadd isub imul itruediv ifloordiv imod ipow iand ior ixor ilshift irshift".split()
)
CHANGING: Final[frozenset[Any]] = frozenset(
    [
        operator.setitem,
        torch.Tensor.__setitem__,
        *(getattr(operator, name) for name in _IN_PLACE),
        *filter(None, (getattr(torch.Tensor, f"__{name}__", None) for name in _IN_PLACE)),
    ]
)


def packet_of(target: Any) -> Any:
    """Return the operator, with all its overloads, behind a target; ``None`` if none is."""
    if hasattr(target, "overloadpacket"):
        return target.overloadpacket
    if hasattr(target, "overloads"):
        return target
    name = getattr(target, "__name__", "")
    return getattr(_ATEN, name, None) if _is_operator(target) and name[:2] != "__" else None


def _is_operator(target: Any) -> bool:
    if isinstance(target, BuiltinFunctionType):
        owner = target.__qualname__.rpartition(".")[0]
        return owner == _CLASS_OF_OPERATORS or target.__module__ in _OF_OPERATORS
    return is_method_in_c(target)


def is_method_in_c(target: Any) -> bool:
    """Return whether a target is a method of tensors that is written in C."""
    return isinstance(target, _DESCRIPTORS) and issubclass(torch.Tensor, target.__objclass__)


def overloads_of(target: Any) -> list[Any]:
    """Return the overloads that a call of a target may be; none if it is no operator."""
    packet = packet_of(target)
    if packet is None:
        return []
    if packet is not target and hasattr(target, "_schema"):
        return [target]
    return [getattr(packet, name) for name in packet.overloads()]


def changed_lists(target: Any) -> list[tuple[int, str]]:
    """Return position and name of each list of tensors that a call of an operator changes."""
    found = (each for overload in overloads_of(target) for each in _lists_of(overload))
    return sorted(set(found))


def _lists_of(overload: Any) -> list[tuple[int, str]]:
    return [
        (position, each.name)
        for position, each in enumerate(overload._schema.arguments)
        if each.alias_info is not None
        and each.alias_info.is_write
        and str(each.type) == "List[Tensor]"
        and not each.kwarg_only
    ]


def _changes_lists(target: Any) -> bool:
    packet = packet_of(target)
    return packet is not None and bool(_lists_of(getattr(packet, packet.overloads()[0])))


#: The functions of ``torch`` that change lists of tensors.
CHANGING_LISTS: Final = tuple(
    each
    for each in vars(torch).values()
    if isinstance(each, BuiltinFunctionType) and _changes_lists(each)
)


def is_quiet(target: Any) -> bool:
    """Return whether a target is one of torch's or Python's own that merely gives a value.

    Asked of what is no operator, and in no table.
    """
    if isinstance(target, _DESCRIPTORS):
        return is_method_in_c(target)
    if _is_operator(target):
        return True
    if _is_named_tuple(target):
        return True
    if isinstance(target, (type, BuiltinFunctionType, MethodType)):
        return target in _QUIET_BUILTINS or _package(target) in _QUIET
    return False


def _is_named_tuple(target: Any) -> bool:
    """Return whether a target is a class of named tuples, made as ``collections`` makes them."""
    if not (isinstance(target, type) and issubclass(target, tuple)):
        return False
    # a class in C, like `torch.Size`, has one of no module
    module = getattr(target.__new__, "__module__", None) or ""
    is_made_there = module.startswith("namedtuple_")
    return is_made_there and target.__init__ is object.__init__ and type(target) is type


def is_python_of_torch(target: Any) -> bool:
    """Return whether a target is a function of torch's that is written in Python."""
    return isinstance(target, FunctionType) and _package(target) == "torch"


def _package(target: Any) -> str:
    return str(getattr(target, "__module__", None) or "").partition(".")[0]


#: Where torch's functions find what they call, beside their own globals and their arguments.
_PLACES: Final = (
    *(sys.modules[name] for name in _OF_OPERATORS if name in sys.modules),
    *(functional, *torch.Tensor.__mro__[:-1], torch.Generator),
)


def called_by(function: FunctionType) -> Iterator[Any]:
    """Yield whatever a function of torch, and those of torch that it calls, may call.

    Goes by the names that the code uses, so that more is found than is called.
    """
    found, unread = {function}, [function]
    while unread:
        for callee in _named_in(unread.pop()):
            if is_python_of_torch(callee):
                unread.extend({callee} - found)
                found.add(callee)
            elif isinstance(callee, (BuiltinFunctionType, *_DESCRIPTORS)):
                yield callee


def _named_in(function: FunctionType) -> Iterator[Any]:
    yield from (value for _, value in captured(function))
    for code in code_objects(function.__code__):
        for name in code.co_names:
            yield function.__globals__.get(name)
            yield getattr(torch._VF, name, None)
            yield from (vars(place).get(name) for place in _PLACES)


def wrapped_by(target: Any) -> Any:
    """Return the function of ``torch._numpy`` that Dynamo has wrapped; ``None`` for others."""
    if type(target).__module__ != "torch._dynamo.utils":
        return None
    facts = getattr(target, "__dict__", {})
    if "method" in facts:
        arrays = vars(sys.modules["torch._numpy"])["ndarray"]
        return getattr(arrays, facts["method"], None)
    return facts.get("f", facts.get("op"))
