"""Each exception is a BcmendError, and the built-in exception that a caller would expect."""

from __future__ import annotations

import pytest

import bcmend
from bcmend import errors


@pytest.mark.parametrize(
    ("own", "builtin"),
    [
        (errors.UnsupportedObject, TypeError),
        (errors.PolicyError, ValueError),
        (errors.NotPatched, ValueError),
        (errors.MissingInTorch, AttributeError),
    ],
)
def test_exception_can_be_caught_by_either_name(
    own: type[Exception], builtin: type[Exception]
) -> None:
    for expected in (errors.BcmendError, builtin):
        with pytest.raises(expected, match="what happened"):
            raise own("what happened")


def test_every_exported_name_is_an_exception_or_a_warning_of_bcmend() -> None:
    declared = {name: each for name, each in vars(errors).items() if isinstance(each, type)}
    assert {"UnsupportedObject", "UntestedTorch"} < declared.keys() < set(bcmend.__all__)
    assert all(issubclass(each, (errors.BcmendError, UserWarning)) for each in declared.values())
