"""The differences of two releases as a list of what to look at, and where."""

from __future__ import annotations

import pytest
import torch

from bcmend import cli
from bcmend.dynamo.contract import porting_list, recorded
from bcmend.dynamo.contract.difference import Difference
from bcmend.patching import torch_check

CORE = "bcmend.tracing.merging.merge"
ADAPTER = "bcmend.dynamo.models.containers"
OPTIONAL = "bcmend.tracing.handlers.any_all"


def _titles(lines: list[str]) -> list[str]:
    return [line.strip().partition(" ")[0] for line in lines if line.startswith("\n")]


def test_the_adapter_and_the_core_come_first_and_what_nobody_needs_last() -> None:
    found = [
        Difference("A", "subclasses", "", "New", ()),
        Difference("B.run", "body", "1", "2", (OPTIONAL,)),
        Difference("C.run", "body", "1", "2", (CORE,)),
        Difference("D", "missing", "torch.d", "", (ADAPTER, CORE)),
    ]
    titles = _titles(list(porting_list.lines(found)))
    assert titles[:3] == [ADAPTER, CORE, OPTIONAL] and len(titles) == 4


def test_within_a_module_the_most_important_comes_first() -> None:
    kinds = ("body", "settings", "subclasses", "parameters", "missing")
    found = [Difference(f"{kind}s", kind, "x", "y", (CORE,)) for kind in kinds]
    lines = [line for line in porting_list.lines(found) if line.startswith("  ")]
    assert [line.strip().partition(":")[0] for line in lines] == list(reversed(kinds))


@pytest.mark.parametrize(
    ("kind", "before", "after", "parts", "absent"),
    [
        ("parameters", "self", "self, tx", ("self -> self, tx",), ()),
        ("fields", "old", "new", ("gone: old", "new: new"), ("->",)),
        ("subclasses", "", "New", ("new: New",), ("gone",)),
        ("missing", "torch.a", "", ("gone: torch.a",), ("new:",)),
        ("body", "1234", "5678", (), ("1234", "5678")),
    ],
)
def test_a_line_says_what_it_was_and_is(
    kind: str, before: str, after: str, parts: tuple[str, ...], absent: tuple[str, ...]
) -> None:
    (_, line, also) = porting_list.lines([Difference("A", kind, before, after, (ADAPTER, CORE))])
    assert line.startswith(f"  {kind}: A")
    assert all(part in line for part in parts) and not any(part in line for part in absent)
    assert "tracing.merging.merge" in also


def test_the_running_release_differs_in_nothing_from_its_own_file(
    capsys: pytest.CaptureFixture[str],
) -> None:
    release = recorded.of_build(torch.version.git_version)
    if release is None:
        pytest.skip("this torch is not recorded")
    assert cli.main(["doctor", "--against", release.version]) == 0
    assert capsys.readouterr().out.startswith("no differences ")


def test_two_recorded_releases_differ_in_what_is_known_to_differ(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    new, old = recorded.of_version("2.15.0"), recorded.of_version("2.13.0")
    assert new is not None and old is not None
    monkeypatch.setattr(torch_check, "described", lambda: new.facts)
    assert cli.main(["doctor", "--against", "2.13.0"]) == 1
    text = capsys.readouterr().out
    # From the notes on what torch 2.15 changes.
    for part in (
        "ComputedLazyConstantVariable",
        "computed_lazy_constant_max_nodes",
        "tp_getset.args",
        "ValueAndAttributeMutationNew",
        "gone: _base_vt",
    ):
        assert part in text


def test_a_name_that_is_missing_is_all_that_is_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    (release, *_) = recorded.releases()
    monkeypatch.setattr(torch_check, "missing", lambda: ("torch._dynamo.exc.NoSuch",))
    lines = list(torch_check.porting_list(release))
    assert lines[0].startswith("1 difference") and "bcmend.dynamo.compat" in lines[1]
    assert "torch._dynamo.exc.NoSuch" in lines[2]


def test_an_unknown_release_is_an_error_that_names_the_known_ones(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert cli.main(["doctor", "--against", "1.0.0"]) == 2
    error = capsys.readouterr().err
    assert "1.0.0" in error
    assert all(each.version in error for each in recorded.releases())


def test_doctor_says_whether_the_contract_holds(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    release = recorded.of_build(torch.version.git_version)
    if release is None:
        pytest.skip("this torch is not recorded")
    assert cli.main(["doctor"]) == 0
    assert f"as recorded of torch {release.version}" in capsys.readouterr().out.splitlines()[1]
    described = torch_check.described()
    monkeypatch.setattr(torch_check, "described", lambda: {**described, "settings": {"new": "1"}})
    assert cli.main(["doctor"]) == 0
    assert f"--against {release.version}" in capsys.readouterr().out.splitlines()[1]
