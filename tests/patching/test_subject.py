"""What can be patched is named, and anything else is refused without being run."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import Any, NoReturn

import pytest

from bcmend.errors import UnsupportedObject
from bcmend.patching.subject import path_of, uncompiled

torch = pytest.importorskip("torch")


class _Net(torch.nn.Module):  # type: ignore[misc, name-defined]
    def forward(self, x: Any) -> Any:
        return x


def _function(x: Any) -> Any:
    return x


def _generator() -> Iterator[int]:
    yield 1


async def _coroutine() -> int:
    return 1


async def _asynchronous_generator() -> AsyncIterator[int]:
    yield 1


class _Callable:
    def __call__(self, x: Any) -> Any:
        return x

    def items(self) -> Iterator[int]:
        yield 1


class _Explosive:
    def _explode(self, *arguments: object) -> NoReturn:
        raise AssertionError("code of the user ran")

    __class__ = property(_explode)  # type: ignore[assignment]
    __getattribute__ = _explode  # type: ignore[assignment]
    __repr__ = _explode  # type: ignore[assignment]
    __bool__ = _explode
    __hash__ = _explode  # type: ignore[assignment]


@pytest.mark.parametrize(
    ("accepted", "path"),
    [
        (_Net(), ""),
        (_Net, "_Net"),
        (_Net().forward, "_Net.forward"),
        (_function, "_function"),
        (_Callable().__call__, "_Callable.__call__"),
        (functools.partial(functools.partial(_function), 1), "_function"),
        (functools.partial(_Net()), ""),
    ],
)
def test_accepted_objects_have_a_path(accepted: object, path: str) -> None:
    assert path_of(accepted) == path


def test_a_compiled_module_stands_for_the_module() -> None:
    net = _Net()
    compiled = torch.compile(net, backend="eager")
    assert uncompiled(compiled) is net
    assert path_of(compiled) == ""
    assert uncompiled(net) is net


@pytest.mark.parametrize(
    ("refused", "named"),
    [
        (None, "NoneType"),
        (3, "int"),
        ("text", "str"),
        (len, "builtin_function_or_method"),
        ([].append, "builtin_function_or_method"),
        (torch.relu, "builtin_function_or_method"),
        (torch.zeros(1), "Tensor"),
        (functools.partial(len), "builtin_function_or_method"),
        (functools.lru_cache(_function), "_lru_cache_wrapper"),
        (property(_function), "property"),
        (_Callable(), "_Callable"),
        (_Callable, "_Callable"),
        (int, "int"),
        (torch.Tensor, "Tensor"),
        (torch.jit.ScriptModule, "ScriptModule"),
        (_Explosive(), "_Explosive"),
        (_generator, "_generator"),
        (_coroutine, "_coroutine"),
        (_asynchronous_generator, "_asynchronous_generator"),
        (_Callable().items, "_Callable.items"),
        (functools.partial(_generator), "_generator"),
        (_generator(), "generator"),
        (torch, "module"),
    ],
    ids=lambda value: value if type(value) is str else "",
)
def test_anything_else_is_refused_with_what_is_accepted(refused: object, named: str) -> None:
    with pytest.raises(UnsupportedObject) as caught:
        path_of(refused)
    message = str(caught.value)
    assert named in message
    assert "takes an nn.Module" in message


@pytest.mark.filterwarnings("ignore")
def test_script_objects_are_refused() -> None:
    script_function = torch._C.ScriptFunction
    traced = torch.jit.trace(_Net(), torch.zeros(1))
    for refused in (traced, torch.jit.trace(_function, torch.zeros(1))):
        with pytest.raises(UnsupportedObject, match="TorchScript"):
            path_of(refused)
    assert script_function is type(torch.jit.trace(_function, torch.zeros(1)))
