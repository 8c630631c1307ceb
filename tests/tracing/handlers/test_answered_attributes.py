"""Code of the program that answers for attributes is asked as often as in eager execution."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend
from bcmend.tracing.handlers.answered_attributes import asks_the_program
from tests.equivalence import assert_equivalent, call

pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


class Inner:
    def __init__(self) -> None:
        self.v = 1.0


class Missing:
    """Raises for every attribute that it lacks."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log

    def __getattr__(self, name: str) -> Any:
        self.__dict__["log"].append(name)
        raise AttributeError(name)


class Default(Missing):
    """Has a value for every attribute that it lacks."""

    def __getattr__(self, name: str) -> Any:
        self.__dict__["log"].append(name)
        return 2.0


class Wrapper:
    """Reads and stores attributes of another object."""

    def __init__(self, log: list[Any], inner: Any = None) -> None:
        self.__dict__["log"] = log
        self.__dict__["inner"] = Inner() if inner is None else inner

    def __getattr__(self, name: str) -> Any:
        self.log.append(("get", name))
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        self.log.append(("set", name))
        setattr(self.inner, name, value)


def _wrapped_twice(log: list[Any]) -> Wrapper:
    return Wrapper(log, Wrapper(log))


def _wrapped_module(log: list[Any]) -> Wrapper:
    inner = torch.nn.Linear(3, 3)
    inner.v = 2.0  # type: ignore[assignment]
    return Wrapper(log, inner)


class Property:
    """Computes the attribute."""

    def __init__(self, log: list[Any]) -> None:
        self.log = log
        self.kept = 1.0

    @property
    def v(self) -> float:
        self.log.append("v")
        return self.kept

    @v.setter
    def v(self, value: float) -> None:
        self.log.append("set v")
        self.kept = value


class Raising(Property):
    """Computes an attribute, and fails."""

    @property
    def v(self) -> float:
        self.log.append("v")
        raise AttributeError("v")

    @v.setter
    def v(self, value: float) -> None:
        self.log.append("set v")


class Cached(Missing):
    @functools.cached_property
    def v(self) -> float:
        self.log.append("computed")
        return 3.0


class _Descriptor:
    def __get__(self, owner: Any, kind: Any = None) -> Any:
        owner.log.append("get")
        if len(owner.log) % 2:
            raise AttributeError("v")
        return 4.0

    def __set__(self, owner: Any, value: Any) -> None:
        owner.log.append("set")


class Described:
    v = _Descriptor()

    def __init__(self, log: list[Any]) -> None:
        self.log = log


class Module(torch.nn.Module):
    """Passes on what a wrapped module has, as containers of modules do."""

    def __init__(self, log: list[Any]) -> None:
        super().__init__()
        self.log = log
        self.module = torch.nn.Linear(3, 3)
        self.module.v = 2.0  # type: ignore[assignment]

    def __getattr__(self, name: str) -> Any:
        if name in ("v", "missing"):
            self.log.append(name)
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


KINDS: dict[str, Callable[[list[Any]], Any]] = {
    "missing": Missing,
    "default": Default,
    "wrapper": Wrapper,
    "wrapped twice": _wrapped_twice,
    "wrapped module": _wrapped_module,
    "property": Property,
    "raising property": Raising,
    "cached property": Cached,
    "descriptor": Described,
    "module": Module,
}


def _asked(owner: Any, x: Tensor) -> Tensor:
    y = x * 2 if hasattr(owner, "v") else x
    if x.sum() > 0:
        y = y + 1
    return y


def _asked_in_an_arm(owner: Any, x: Tensor) -> Tensor:
    if x.sum() > 0 and hasattr(owner, "v"):
        x = x * 2
    return x + 1


def _read_with_a_default(owner: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x + 1
    return x + getattr(owner, "v", 7) + getattr(owner, "missing", 5)


def _read_with_a_default_in_an_arm(owner: Any, x: Tensor) -> Tensor:
    if x.sum() > 0:
        x = x * getattr(owner, "v", 7)
    return x - 1


def _asked_then_stored(owner: Any, x: Tensor) -> Tensor:
    if hasattr(owner, "v"):
        owner.v = owner.v + 1
    if x.sum() > 0:
        x = x * 2
    return x + getattr(owner, "v", 0)


def _handled(owner: Any, x: Tensor) -> Tensor:
    try:
        x = x * owner.missing
    except AttributeError:
        x = x + 1
    return x * 2 if x.sum() > 0 else x


def _asked_in_turns(owner: Any, x: Tensor) -> Tensor:
    for name in ("v", "w", "v"):
        is_there = hasattr(owner, name)
        if x.sum() > 0:
            x = x + is_there
    return x


PROGRAMS = [
    _asked,
    _asked_in_an_arm,
    _read_with_a_default,
    _read_with_a_default_in_an_arm,
    _asked_then_stored,
    _handled,
    _asked_in_turns,
]


def _signs() -> list[Any]:
    return [call(torch.full((3,), sign)) for sign in (1.0, -1.0, 1.0, 1.0)]


def _of_a_closure(program: Any, owner: Any) -> Any:
    def run(x: Tensor) -> Any:
        return program(owner, x)

    return run


class _Holder(torch.nn.Module):
    def __init__(self, program: Any, owner: Any) -> None:
        super().__init__()
        self.program, self.owner = program, owner

    def forward(self, x: Tensor) -> Any:
        return self.program(self.owner, x)


@pytest.mark.parametrize("place", [_of_a_closure, _Holder])
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("kind", KINDS)
def test_it_is_asked_as_often(kind: str, program: Any, place: Any) -> None:
    def make() -> Any:
        log: list[Any] = []
        made = place(program, KINDS[kind](log))
        made.log = log
        return made

    assert_equivalent(make, _signs, fullgraph=False, graphs=None, recompiles=None, may_copy=True)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
@pytest.mark.parametrize("kind", ["missing", "wrapper", "property", "module"])
def test_a_question_in_an_arm_is_in_the_graph(kind: str, backend: str) -> None:
    def make() -> Any:
        log: list[Any] = []
        made = _of_a_closure(_asked_in_an_arm, KINDS[kind](log))
        made.log = log
        return made

    assert_equivalent(make, _signs, backend=backend, graphs=None, recompiles=None, may_copy=True)


OWNER: Any = None


def _of_a_global(x: Tensor) -> Tensor:
    return _asked_in_an_arm(OWNER, x) + getattr(OWNER, "missing", 1)


def test_an_object_in_a_global_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    def outcomes(run: Any) -> list[Any]:
        log: list[Any] = []
        monkeypatch.setitem(globals(), "OWNER", Default(log))
        return [(run(torch.full((2,), sign)).tolist(), list(log)) for sign in (1.0, -1.0, 1.0)]

    expected = outcomes(_of_a_global)
    assert outcomes(torch.compile(bcmend.patch(_of_a_global), backend="eager")) == expected


class Changing:
    """Answers without a trace."""

    def __getattr__(self, name: str) -> Any:
        if name != "v":
            raise AttributeError(name)
        return 5.0


class Lacking:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(name)


@pytest.mark.parametrize("kind", [Changing, Lacking, lambda: Property([])])
@pytest.mark.parametrize(
    "program", [_asked, _asked_in_an_arm, _read_with_a_default, _read_with_a_default_in_an_arm]
)
def test_what_answers_is_guarded(kind: Any, program: Any) -> None:
    def outcomes(run: Any) -> list[Any]:
        owner, found = kind(), []
        steps = [
            lambda: None,
            lambda: setattr(owner, "v", 3.0),
            lambda: setattr(owner, "missing", 8.0),
            lambda: vars(owner).pop("v", None),
            lambda: vars(owner).pop("missing", None),
            lambda: setattr(owner, "kept", 6.0),
        ]
        for step in steps:
            step()
            for sign in (1.0, -1.0):
                try:
                    found.append(run(owner, torch.full((2,), sign)).tolist())
                except AttributeError as error:
                    found.append(str(error))
        return found

    expected = outcomes(program)
    assert outcomes(torch.compile(bcmend.patch(program), backend="eager")) == expected


def test_a_class_that_gets_the_attribute_is_noticed() -> None:
    def outcomes(run: Any) -> list[Any]:
        class Kind(Lacking):
            pass

        owner, x = Kind(), torch.ones(2)
        found = [run(owner, x).tolist()]
        Kind.v = 9.0  # type: ignore[attr-defined]
        found.append(run(owner, x).tolist())
        return found

    expected = outcomes(_read_with_a_default_in_an_arm)
    compiled = torch.compile(bcmend.patch(_read_with_a_default_in_an_arm), backend="eager")
    assert outcomes(compiled) == expected


class Slotted:
    __slots__ = ("v",)

    def __getattr__(self, name: str) -> Any:
        return 2


class Asking:
    def __getattribute__(self, name: str) -> Any:
        return object.__getattribute__(self, name)


@pytest.mark.parametrize(
    ("make", "name", "is_asked"),
    [
        (Inner, "v", False),
        (Inner, "missing", False),
        (lambda: Default([]), "v", True),
        (lambda: Default([]), "log", True),
        (lambda: Default([]), "__init__", False),
        (lambda: Property([]), "v", True),
        (lambda: Property([]), "missing", False),
        (lambda: Described([]), "v", True),
        (lambda: Cached([]), "v", False),
        (Slotted, "v", False),
        (Slotted, "missing", True),
        (Asking, "missing", True),
        (torch.nn.Module, "missing", False),
        (lambda: Module([]), "missing", True),
    ],
)
def test_whether_code_of_the_program_answers(make: Any, name: str, is_asked: bool) -> None:
    assert asks_the_program(make(), name) is is_asked


class _Counted(type):
    asked = 0

    def __len__(cls) -> int:
        _Counted.asked += 1
        return 0


class _Kind(metaclass=_Counted):
    def double(self, x: Tensor) -> Tensor:
        return x * 2


def test_a_class_is_not_asked_for_its_truth() -> None:
    def program(x: Tensor) -> Tensor:
        y = _Kind.double(None, x)  # type: ignore[arg-type]
        return y + 1 if x.sum() > 0 else y

    compiled = torch.compile(bcmend.patch(program), backend="eager", fullgraph=True)
    for x in (torch.ones(2), -torch.ones(2)):
        assert torch.equal(compiled(x), program(x))
    assert _Counted.asked == 0


class Settings(dict[str, Any]):
    """A dictionary that answers for attributes with its items, as settings of models often are."""

    def __getattr__(self, name: str) -> Any:
        try:
            return self[name]
        except KeyError:
            raise AttributeError(name) from None


def test_a_dictionary_answers_for_attributes() -> None:
    def program(x: Tensor, settings: Settings) -> Any:
        if x.sum() > settings.limit:
            x = x * settings.scale
        else:
            settings["count"] = settings.get("count", 0) + 1
        return x + 1, getattr(settings, "missing", 3)

    def calls() -> list[Any]:
        ways = [{}, {"limit": 5.0}, {"scale": 3.0}, {"missing": 4}, {}]
        given = [Settings({"limit": 1.0, "scale": 2.0, **each}) for each in ways]
        return [call(torch.ones(3) * sign, each) for each in given for sign in (1, -1)]

    assert_equivalent(lambda: program, calls, graphs=None, recompiles=None)
