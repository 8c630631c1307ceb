"""The plugin of pytest: fixtures and a marker, which `bcmend.testing` has as functions.

pytest imports it in every project of an environment in which bcmend is installed. So it imports
torch, and the rest of bcmend, only for tests that use it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

import pytest

if TYPE_CHECKING:
    from bcmend.reports.verdict import Verdict

_MARKER: Final = "graph_breaks"
_USE: Final = "@pytest.mark.graph_breaks(max=2)"


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker."""
    text = "what the test compiles may have so many graph breaks, all together"
    config.addinivalue_line("markers", f"{_MARKER}(max): {text}")


@pytest.fixture
def one_graph() -> Callable[..., None]:
    """Return `bcmend.testing.assert_one_graph`, which is called as the model is."""
    from bcmend.testing import assert_one_graph

    return assert_one_graph


@pytest.fixture
def same_as_eager() -> Callable[..., Verdict]:
    """Return `bcmend.testing.assert_same_as_eager`, which is called as the model is."""
    from bcmend.testing import assert_same_as_eager

    return assert_same_as_eager


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have a test with a wrong marker be an error, before anything is set up for it."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return
    if marker.args or marker.kwargs.keys() != {"max"}:
        raise _failed(f"the marker takes max=... alone: {_USE}")
    from bcmend.errors import CallError
    from bcmend.testing.limits import require_limit

    try:
        require_limit(marker.kwargs["max"])
    except CallError as error:
        raise _failed(f"@pytest.mark.{error}") from None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    """Count the graph breaks of a test that has the marker."""
    marker = item.get_closest_marker(_MARKER)
    if marker is None:
        return (yield)
    from bcmend.testing import graph_breaks

    has_passed = False
    try:
        with graph_breaks(**marker.kwargs):
            found = yield
            has_passed = True
    except AssertionError as error:
        if has_passed:
            raise _failed(str(error)) from None
        raise  # which the test has raised
    return found


def _failed(text: str) -> BaseException:
    """Return what fails a test with a text alone: no line of the test has to do with it."""
    return pytest.fail.Exception(text, pytrace=False)
