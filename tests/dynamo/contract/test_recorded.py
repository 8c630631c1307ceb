"""The releases that are recorded, and which one a version is compared with."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch

from bcmend.dynamo.contract import recorded

KNOWN = [
    recorded.Release(version, f"build of {version}", pythons=("3.11",), facts={})
    for version in ("2.13.0", "2.13.1", "2.15.0")
]


@pytest.fixture(autouse=True)
def known(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if "version" in request.fixturenames:
        monkeypatch.setattr(recorded, "releases", lambda: tuple(KNOWN))


@pytest.mark.parametrize(
    ("version", "nearest"),
    [
        ("2.12.1", "2.13.0"),
        ("2.13.0", "2.13.0"),
        ("2.13.2", "2.13.1"),
        ("2.13.0a0+git1234567", "2.13.0"),
        ("2.14.1", "2.13.1"),
        ("2.15.0+cu132", "2.15.0"),
        ("2.15.1", "2.15.0"),
        ("2.130.0", "2.15.0"),
        ("3.0", "2.15.0"),
        ("2.9.0.dev20260101+cpu", "2.13.0"),
    ],
)
def test_the_nearest_release(version: str, nearest: str) -> None:
    assert recorded.nearest(version).version == nearest


@pytest.mark.parametrize("version", ["2.13.1", "2.15.0"])
def test_a_release_is_found_by_its_build_and_by_its_version(version: str) -> None:
    found = recorded.of_version(version)
    assert found is not None and recorded.of_build(f"build of {version}") is found
    assert recorded.of_build("another") is None and recorded.of_version("2.14.0") is None


def test_a_build_belongs_to_one_release() -> None:
    builds = [each.git_version for each in recorded.releases()]
    assert len(builds) == len(set(builds))


#: Prints how long it takes to know that a recorded build is one, and what of Dynamo was imported.
SCRIPT = """
import sys, time
import torch, bcmend
before = {name for name in sys.modules if name.startswith("torch.")}
began = time.perf_counter()
from bcmend import releases
releases.is_used()
print(time.perf_counter() - began)
print(*sorted(name for name in sys.modules if name.startswith("torch.") and name not in before))
print(releases.standing().finding)
"""


@pytest.mark.skipif(
    recorded.of_build(torch.version.git_version) is None, reason="this torch is not recorded"
)
def test_a_recorded_build_is_known_at_once() -> None:
    for _ in range(3):  # the machine may be busy
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
        )
        seconds, imported, finding = done.stdout.split("\n")[:3]
        assert imported == "" and finding == "None"
        if float(seconds) < 0.05:
            return
    pytest.fail(f"it took {seconds} seconds")
