"""Methods of bcmend's models have the names by which Dynamo calls them."""

from __future__ import annotations

import builtins
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.dynamo.models import methods, stable_names
from tests.dynamo.models import names_in_use

CONSTANTS = {
    name: value for name, value in vars(methods).items() if name.isupper() and name[0] != "_"
}
ELSEWHERE = (
    *(builtins, compat.CatchErrorsWrapper, compat.ShapeEnv),
    *(compat.builder, compat.convert_frame, compat.export_trace, compat.object_protocol),
    *(compat.effects_of_operators, compat.partitioners),
    *(compat.symbolic_convert, compat.user_defined, compat.package.DiskDynamoCache),
)


@pytest.mark.parametrize("name", CONSTANTS)
def test_torch_has_the_methods(name: str) -> None:
    value = CONSTANTS[name]
    given = [value] if isinstance(value, str) else list(value)
    known = {name for each in names_in_use.of_dynamo().values() for name in each.names}
    if name.endswith("_SLOT") or name in ("BINARY_NUMBER_SLOTS", "DIVISION_SLOTS"):
        given = [f"{each}_impl" for each in given]
    known |= frozenset[str]().union(*stable_names.OF_SOME_RELEASES.values())
    assert [each for each in given if not _is_there(each, known)] == []


def _is_there(name: str, known: set[str]) -> bool:
    return name in known or any(hasattr(each, name) for each in ELSEWHERE)


class _Base:
    @methods.implements(methods.LENGTH)
    def _of_dynamo(self, tx: Any) -> Any:
        return "Dynamo's"


class _Counted(_Base):
    @methods.implements(methods.LENGTH, methods.LENGTH_METHOD)
    def _length(self, tx: Any) -> Any:
        return "ours", tx


def test_a_method_is_found_by_its_own_name_and_by_those_of_dynamo() -> None:
    made: Any = _Counted()
    names = ("_length", methods.LENGTH, methods.LENGTH_METHOD)
    assert [getattr(made, each)(1) for each in names] == [("ours", 1)] * 3
    assert getattr(super(_Counted, made), methods.LENGTH)(1) == "Dynamo's"


@methods.without_models_in("held")
class _Model(compat.VariableTracker):
    def __init__(self, held: Any, seen: Any) -> None:
        super().__init__()
        self.held, self.seen = held, seen


def test_dynamo_looks_for_no_models_in_a_declared_field() -> None:
    inner, other = compat.ConstantVariable(1), compat.ConstantVariable(2)
    found: list[Any] = []
    compat.VariableTracker.visit(found.append, _Model(inner, other))
    assert other in found and inner not in found


def test_the_model_of_an_operator_calls_what_it_is_given() -> None:
    model = methods.operator_model("a_test", lambda self, *given: given)
    assert issubclass(model, compat.TorchHigherOrderOperatorVariable)
    assert model.__name__ == "A_TestVariable"
    assert model.call_function(None, 1, 2) == (1, 2)  # type: ignore[attr-defined]
