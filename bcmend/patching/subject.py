"""What can be patched, and what is refused before anything else happens.

No code of the user runs (`bcmend.knowledge.static_lookup`). Torch is looked up among the loaded
modules and never imported: where it is not loaded, no object can be an `nn.Module`.
"""

from __future__ import annotations

import functools
import inspect
import sys
from types import FunctionType, MethodType
from typing import Final

from bcmend.errors import UnsupportedObject
from bcmend.knowledge.static_lookup import ancestors, dictionary, is_a, qualified_name, read_slot

_ACCEPTED: Final = (
    "bcmend takes an nn.Module, a subclass of nn.Module, a Python function, a bound method, a "
    "functools.partial of one of these, or what torch.compile made of one of these"
)
#: Flags of code whose frame outlives the call.
SUSPENDING: Final = (
    inspect.CO_GENERATOR
    | inspect.CO_COROUTINE
    | inspect.CO_ASYNC_GENERATOR
    | inspect.CO_ITERABLE_COROUTINE
)


def module_classes() -> list[type]:
    """Return `nn.Module` alone, or nothing if torch is not loaded."""
    return _torch_classes("nn", "Module")


def uncompiled(obj: object) -> object:
    """Return the module or function in what `torch.compile` made; anything else unchanged."""
    compiled = _torch_classes("_dynamo.eval_frame", "OptimizedModule")
    while True:
        if _derives(type(obj), compiled):
            obj = dictionary(obj)["_modules"]["_orig_mod"]
        elif is_a(obj, FunctionType) and _COMPILED in obj.__dict__:
            obj = obj.__dict__[_COMPILED]
        else:
            return obj


#: What a function that ``torch.compile`` has made names the one that it was given by.
_COMPILED: Final = "_torchdynamo_orig_callable"


def path_of(obj: object) -> str:
    """Return the path at which messages about `obj` begin: its qualified name; "" for a module.

    Raises:
        UnsupportedObject: `obj` cannot be patched.
    """
    obj = uncompiled(obj)
    kind = type(obj)
    if _derives(kind, _script_classes()):
        raise UnsupportedObject(
            f"{qualified_name(kind)} is TorchScript and has no bytecode; {_ACCEPTED}"
        )
    if _derives(kind, module_classes()):
        return ""
    if is_a(obj, type):
        return _path_of_class(obj)
    if is_a(obj, functools.partial):
        return path_of(read_slot(obj, functools.partial, "func"))
    if is_a(obj, MethodType):
        return path_of(read_slot(obj, MethodType, "__func__"))
    if not is_a(obj, FunctionType):
        raise UnsupportedObject(
            f"cannot patch an object of type {qualified_name(kind)}; {_ACCEPTED}"
        )
    if obj.__code__.co_flags & SUSPENDING:
        raise UnsupportedObject(
            f"{obj.__qualname__} is a generator function or a coroutine function, whose "
            f"frame outlives the call; {_ACCEPTED}"
        )
    return obj.__qualname__


def title_of(obj: object) -> str:
    """Return what reports call an object. Raises as ``path_of`` does."""
    return path_of(obj) or type(uncompiled(obj)).__qualname__


def _path_of_class(cls: type) -> str:
    name = qualified_name(cls)
    if _derives(cls, _script_classes()):
        raise UnsupportedObject(f"the class {name} is TorchScript; {_ACCEPTED}")
    if not _derives(cls, module_classes()):
        raise UnsupportedObject(f"the class {name} is no subclass of nn.Module; {_ACCEPTED}")
    return name


def _torch_classes(module: str, *names: str) -> list[type]:
    """Return those classes of a submodule of torch that are loaded."""
    content = dictionary(sys.modules.get(f"torch.{module}"))
    return [content[name] for name in names if is_a(content.get(name), type)]


def _script_classes() -> list[type]:
    """Return the classes of TorchScript objects, which have no Python bytecode."""
    return _torch_classes("jit", "ScriptModule", "ScriptFunction")


def _derives(cls: type, bases: list[type]) -> bool:
    """Return whether a class derives from one of the bases; `issubclass` may run code."""
    return any(ancestor is base for ancestor in ancestors(cls) for base in bases)


def module_of(function: FunctionType) -> str:
    """Return the name of the module whose globals a function has; "" if they have no name."""
    return str(function.__globals__.get("__name__", ""))
