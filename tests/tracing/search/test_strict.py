"""In strict mode, an error inside bcmend is told from one of others by its innermost frame."""

from __future__ import annotations

import pytest
from torch.fx import Graph

from bcmend.policy import Policy
from bcmend.tracing.effects import operator_runs
from bcmend.tracing.search import strict
from bcmend.tracing.search.strict import InternalError, require_foreign
from tests import own_faults


def _raised_inside() -> Exception:
    try:
        Policy().touches(1)  # type: ignore[arg-type]
    except AttributeError as error:
        return error
    raise AssertionError("nothing was raised")


def _raised_here() -> Exception:
    try:
        raise KeyError("here")
    except KeyError as error:
        return error


def test_an_error_inside_bcmend_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    error = _raised_inside()
    with pytest.raises(InternalError, match="AttributeError") as caught:
        require_foreign(error)
    assert caught.value.__cause__ is error


def test_an_error_of_others_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    require_foreign(_raised_here())
    require_foreign(KeyError("never raised"))


def test_what_a_function_in_c_raises_is_no_error_of_its_caller(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    node = Graph().call_function(len, (3,))
    with pytest.raises(TypeError, match="has no len") as caught:
        operator_runs.call_target(node.target, node.args, node.kwargs)
    with pytest.raises(InternalError):
        require_foreign(caught.value)
    require_foreign(caught.value, *operator_runs.CALLERS)


def test_an_error_behind_a_caller_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", True)
    with pytest.raises(ValueError, match="a fault") as caught:
        own_faults.fault()
    assert strict.is_own(caught.value, *operator_runs.CALLERS, own_faults.fault)


def test_nothing_is_raised_outside_of_strict_mode(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(strict, "IS_ON", False)
    require_foreign(_raised_inside())


def test_an_internal_error_is_not_taken_for_a_failure_of_the_program() -> None:
    assert not issubclass(InternalError, Exception)
