"""On a torch that bcmend is not tested with, it says so and changes nothing."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest
import torch

import bcmend
from bcmend import releases
from bcmend.bytecode import behavior
from bcmend.dynamo.contract import recorded
from tests import new_process

#: As a release that is recorded, and that bcmend is not tested with.
RECORDED = recorded.Release("9.9.0", "0" * 40, pythons=(), facts={})

#: Calls the public functions on an untested release; prints what became of the program.
_SCRIPT = """
import json, sys, warnings
import torch
torch.__version__, torch.version.git_version = {version!r}, {build!r}
from bcmend.dynamo.contract import recorded
known = (*recorded.releases(), recorded.Release("9.9.0", "0" * 40, (), {{}}))
{before}
recorded.releases = lambda: known
import bcmend

def program(x):
    if x.sum() > 0:
        print("above")
        return x + 1
    return x - 1

class Model(torch.nn.Module):
    forward = lambda self, x: program(x)

code, names = program.__code__, set(globals())
skipped = list(torch._dynamo.trace_rules.SKIP_DIRS)
model = Model()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    same = bcmend.patch(model) is model
    after_patching = [[each.category.__name__, str(each.message), each.filename, each.lineno]
                      for each in caught]
    bcmend.unpatch(model)
    after_unpatching = len(caught)
    with bcmend.patched(program):
        inside = program.__code__ is code
    bcmend.report(model)
    bcmend.register_output("package.module.write")
    compiled = bcmend.compile(program, backend="eager")
    total = len(caught)
result = compiled(torch.ones(2)).tolist()
print(json.dumps({{
    "same": same,
    "warned": after_patching,
    "after_unpatching": after_unpatching,
    "total": total,
    "is_original": program.__code__ is code and inside,
    "names": sorted(name for name in set(globals()) - names if name.startswith("@")),
    "skipped": torch._dynamo.trace_rules.SKIP_DIRS == skipped,
    "modules": [name for name in sys.modules if name.startswith("bcmend.")],
    "result": result,
}}))
"""


#: As on a Python that is too new.
_ON_ANOTHER_PYTHON = """
from bcmend.bytecode import behavior
behavior.PYTHON, behavior.IS_KNOWN = "3.99", False
import dis
names = {"BEFORE_WITH", "LOAD_ASSERTION_ERROR"} & dis.opmap.keys()
gone = {name: dis.opmap.pop(name) for name in names}
import bcmend.api
dis.opmap.update(gone)
"""


def _run(version: str, build: str | None, before: str = "", **environment: str) -> dict[str, Any]:
    script = _SCRIPT.format(version=version, build=build, before=before)
    done = new_process.run("-c", script, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.fixture(scope="module")
def untested() -> dict[str, Any]:
    return _run(RECORDED.version, RECORDED.git_version)


def test_patching_warns_once_and_names_the_tested_releases(untested: dict[str, Any]) -> None:
    ((category, message, file, _),) = untested["warned"]
    assert category == "UntestedTorch"
    assert RECORDED.version in message
    for release in releases.TESTED:
        assert release in message
    assert message.endswith(".") and ". " not in message, "one sentence"
    assert file == "<string>", "the warning is attributed to the caller"


def test_patching_changes_nothing(untested: dict[str, Any]) -> None:
    assert untested["same"]
    assert untested["is_original"]
    assert untested["names"] == []
    assert untested["skipped"]
    assert untested["result"] == [2.0, 2.0]


def _assert_nothing_dynamic(found: dict[str, Any]) -> None:
    dynamic = ("bcmend.dynamo.compat", "bcmend.tracing", "bcmend.patching.installer")
    assert [name for name in found["modules"] if name.startswith(dynamic)] == []


def test_nothing_that_needs_private_torch_is_imported(untested: dict[str, Any]) -> None:
    _assert_nothing_dynamic(untested)


def test_each_public_function_that_would_mend_warns_and_unpatching_does_not(
    untested: dict[str, Any],
) -> None:
    assert untested["after_unpatching"] == len(untested["warned"])
    assert untested["total"] == 4  # patch, patched, report, compile


def test_a_tested_release_is_mended_without_a_warning() -> None:
    found = _run(torch.__version__, torch.version.git_version)
    assert found["warned"] == [] and found["total"] == 0
    assert not found["is_original"]
    assert "bcmend.dynamo.hooks" in found["modules"]


@pytest.mark.parametrize("chosen", ["refuse", "warn"])
def test_on_a_python_that_is_not_known_nothing_is_changed(chosen: str) -> None:
    here = torch.__version__, str(torch.version.git_version)
    found = _run(*here, _ON_ANOTHER_PYTHON, BCMEND_UNTESTED_TORCH=chosen)
    ((category, message, *_),) = found["warned"]
    assert category == "UntestedTorch" and "on Python 3.99; " in message
    assert message.endswith("and changes nothing on any other.")
    assert found["is_original"] and found["result"] == [2.0, 2.0]
    _assert_nothing_dynamic(found)


def test_a_release_is_tested_on_the_pythons_that_it_names(monkeypatch: pytest.MonkeyPatch) -> None:
    release = recorded.Release("9.9.0", "0" * 40, pythons=("3.98",), facts={})
    _pretend(monkeypatch, release)
    assert not releases.is_tested()
    monkeypatch.setattr(behavior, "PYTHON", "3.98")
    releases._standing.cache_clear()
    assert releases.is_tested()
    releases._standing.cache_clear()


def test_releases_that_are_tested_on_the_same_pythons_are_named_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pythons = ("3.11", "3.12", "3.13")
    monkeypatch.setattr(releases, "TESTED", {"2.13": pythons, "2.14": ("3.11",), "2.15": pythons})
    expected = "torch 2.13 and 2.15 on Python 3.11, 3.12 and 3.13 and torch 2.14 on Python 3.11"
    assert releases._tested() == expected


def test_an_untested_release_is_used_if_the_environment_says_so() -> None:
    found = _run(RECORDED.version, RECORDED.git_version, BCMEND_UNTESTED_TORCH="warn")
    assert found["total"] == 4 and {each[0] for each in found["warned"]} == {"UntestedTorch"}
    assert "is used" in found["warned"][0][1]
    assert not found["is_original"] and found["result"] == [2.0, 2.0]


def _pretend(monkeypatch: pytest.MonkeyPatch, release: recorded.Release) -> None:
    known = recorded.releases()
    monkeypatch.setattr(recorded, "releases", lambda: {*known, release})
    monkeypatch.setattr(torch, "__version__", release.version)
    monkeypatch.setattr(torch.version, "git_version", release.git_version)


def test_an_untested_release_is_an_error_if_the_environment_says_so(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    _pretend(monkeypatch, RECORDED)
    monkeypatch.setenv("BCMEND_UNTESTED_TORCH", "error")
    with pytest.raises(bcmend.UntestedTorch, match="changes nothing"):
        bcmend.patch(lambda x: x)


def test_another_word_in_the_environment_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    _pretend(monkeypatch, RECORDED)
    monkeypatch.setenv("BCMEND_UNTESTED_TORCH", "wran")
    with pytest.raises(bcmend.BcmendError, match=r"'wran'.* refuse, warn, error"):
        bcmend.patch(lambda x: x)


@pytest.mark.parametrize("release", recorded.releases(), ids=lambda each: each.version)
def test_a_recorded_release_is_known_by_its_build(
    release: recorded.Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    _pretend(monkeypatch, release)
    monkeypatch.setattr(torch, "__version__", f"{release.version}+cu126")
    assert releases.is_tested() is release.is_tested
    assert ("changes nothing" in releases.sentence()) is not release.is_tested


def test_the_tested_releases_are_those_that_are_marked() -> None:
    assert releases.TESTED
    for release in recorded.releases():
        assert (release.minor in releases.TESTED) is bool(release.pythons)


@pytest.mark.parametrize(
    ("tested", "words"),
    [
        ({"2.1": ("3.1",)}, "with torch 2.1 on Python 3.1."),
        (dict.fromkeys(("2.1", "2.2"), ("3.1", "3.2")), " 2.1 and 2.2 on Python 3.1 and 3.2."),
        (
            {"2.1": ("3.1",), "2.2": ("3.1",), "2.3": ("3.1", "3.2", "3.3")},
            "torch 2.1 and 2.2 on Python 3.1 and torch 2.3 on Python 3.1, 3.2 and 3.3.",
        ),
    ],
)
def test_the_tested_releases_are_one_part_of_the_sentence(
    tested: dict[str, tuple[str, ...]], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "TESTED", tested)
    monkeypatch.setattr(releases, "standing", lambda: releases.Standing(is_as_tested=True))
    assert releases.sentence().endswith(words)


def test_the_key_for_other_caches_is_that_of_code_and_policy() -> None:
    policies = [
        bcmend.Policy(),
        bcmend.Policy(output="keep"),
        bcmend.Policy(off=("a", "b")),
        bcmend.Policy(exclude=("a", "b")),
    ]
    keys = list(map(bcmend.cache_key, policies))
    assert len({*keys}) == len(policies)
    assert keys == list(map(bcmend.cache_key, policies)) and bcmend.cache_key() == keys[0]
    assert bcmend.cache_key(bcmend.Policy(off=frozenset("ba"))) == keys[2]
    with pytest.raises(bcmend.PolicyError):
        bcmend.cache_key("keep")  # type: ignore[arg-type]
