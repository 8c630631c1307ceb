"""A plugin of pytest that writes what becomes of each test, and leaves out what is written.

The file is named by the environment. Where pytest-xdist runs the tests, the workers leave out, and
the process that collects their reports writes; the first worker writes what there is to run.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Final

import pytest

from tests.versions.record import (
    FAILED,
    NOT_RUN,
    PASSED,
    SKIPPED,
    Record,
    append,
    read,
    running,
)

#: The name of the variable.
FILE: Final = "BCMEND_VERSIONS_FILE"


def pytest_configure(config: pytest.Config) -> None:
    """Begin to write, if the environment names a file."""
    if FILE in os.environ:
        worker = getattr(config, "workerinput", {}).get("workerid", "")
        config.pluginmanager.register(Recording(Path(os.environ[FILE]), worker))


class Recording:
    """What is written of one run."""

    def __init__(self, path: Path, worker: str) -> None:
        self._path, self._worker = path, worker
        self._pair = running()
        self._begun: dict[str, tuple[str, float]] = {}

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Leave out the tests whose outcome is written; write the others as not run."""
        known = {test for pair, test in self._known() if pair == self._pair}
        left = [each for each in items if each.nodeid not in known]
        config.hook.pytest_deselected(items=[each for each in items if each.nodeid in known])
        items[:] = left
        if self._worker in ("", "gw0"):
            append(self._path, (Record(self._pair, each.nodeid, NOT_RUN) for each in left))

    def _known(self) -> set[tuple[object, str]]:
        return {key for key, found in read(self._path).items() if found.outcome != NOT_RUN}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Write what became of a test once it has been put away."""
        if self._worker:
            return
        before, seconds = self._begun.get(report.nodeid, ("", 0.0))
        outcome = outcome_of(before, report)
        self._begun[report.nodeid] = outcome, seconds + report.duration
        if report.when == "teardown":
            outcome, seconds = self._begun.pop(report.nodeid)
            append(self._path, [Record(self._pair, report.nodeid, outcome, round(seconds, 2))])


def outcome_of(before: str, report: pytest.TestReport) -> str:
    """Return what a test is after one more of its three parts; one that fails is enough."""
    if FAILED in (before, report.outcome):
        return FAILED
    return SKIPPED if SKIPPED in (before, report.outcome) else PASSED
