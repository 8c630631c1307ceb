"""What a record has to know of the exceptions that it shows."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from torch._dynamo.variables import ConstantVariable, ExceptionVariable, ListVariable, TupleVariable

from bcmend.tracing.output import exception_flow, shown_exceptions
from bcmend.tracing.output.exception_flow import ExceptionFacts
from bcmend.tracing.search.falsified import Falsified
from bcmend.tracing.sites.refusal import Refusal
from bcmend.tracing.sites.site_table import LiveSite


def _error(*args: object) -> ExceptionVariable:
    return ExceptionVariable(ValueError, tuple(map(ConstantVariable.create, args)), {})


def _tracer() -> Any:
    return SimpleNamespace(output=SimpleNamespace(side_effects=None), exn_vt_stack=[])


def _raise(tx: Any, error: ExceptionVariable, *, is_exact: bool, has_known_text: bool) -> None:
    exception_flow._table(tx)[error] = ExceptionFacts((), is_exact, has_known_text)


def _site() -> LiveSite:
    return LiveSite("module.f:1", "output", _error.__code__)


def test_a_record_of_a_trace_that_raised_nothing_stays_as_it_is() -> None:
    action, inputs = ConstantVariable.create(1), TupleVariable([_error()])
    found = shown_exceptions.as_of_now(_tracer(), _site(), action, inputs, shows_tracebacks=True)
    assert found == (action, inputs)


def test_a_record_without_exceptions_stays_as_it_is() -> None:
    tx, action = _tracer(), ConstantVariable.create(1)
    _raise(tx, _error(), is_exact=True, has_known_text=True)
    inputs = TupleVariable([ConstantVariable.create(2)])
    found = shown_exceptions.as_of_now(tx, _site(), action, inputs, shows_tracebacks=True)
    assert found == (action, inputs)


def test_an_exception_whose_text_is_not_known_has_the_site_withdrawn() -> None:
    tx, error, site = _tracer(), _error(), _site()
    _raise(tx, error, is_exact=True, has_known_text=False)
    inputs = TupleVariable([ListVariable([error])])
    with pytest.raises(Falsified):
        shown_exceptions.as_of_now(tx, site, error, inputs, shows_tracebacks=False)
    assert site.withdrawn == "output-shape"


def test_the_text_of_an_exception_that_was_never_raised_is_known() -> None:
    shown_exceptions._require_texts(_tracer(), [_error("text")])


def test_a_traceback_has_to_be_exact() -> None:
    tx, error = _tracer(), _error()
    _raise(tx, error, is_exact=False, has_known_text=True)
    with pytest.raises(Refusal, match="not traced"):
        shown_exceptions._rows(tx, [error])


def test_one_that_was_never_raised_has_no_traceback() -> None:
    assert shown_exceptions._rows(_tracer(), [_error()]) == []
