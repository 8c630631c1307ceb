"""On a torch that is not as recorded, a part of bcmend or all of it stands aside, and says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bcmend.bytecode import behavior, decode
from tests.dynamo.contract import changed_torch

#: What a block of ``with`` is entered by: an optional group of hooks stands in front of it.
ENTERS = decode.LOOKS_UP if behavior.WITH_KEEPS == 2 else decode.ENTERS_A_BLOCK
#: Another body of it.
OTHER_WITH = f"""
entered = symbolic_convert.InstructionTranslatorBase.{ENTERS}
def {ENTERS}(self, inst):
    return entered(self, inst)
symbolic_convert.InstructionTranslatorBase.{ENTERS} = {ENTERS}
"""
#: Another body of a method that every mended branch needs.
OTHER_SIDE_EFFECTS = """
loaded = side_effects.SideEffects.load_attr
def load_attr(self, *args, **kwargs):
    return loaded(self, *args, **kwargs)
side_effects.SideEffects.load_attr = load_attr
"""
#: The lines of the program's sites, from that of its definition.
FIRST_BRANCH, SECOND_BRANCH, OUTPUT = 1, 5, 10


def _sites(found: dict[str, Any]) -> dict[int, tuple[str, str]]:
    return {line: (status, reason) for line, status, reason, _ in found["sites"]}


def test_a_patch_release_that_is_equal_just_works(tmp_path: Path) -> None:
    # A program may have changed a setting of Dynamo's.
    found = changed_torch.run(tmp_path, "config.recompile_limit += 1")
    assert found["equal"] and found["warned"] == []
    assert {status for status, _ in _sites(found).values()} == {"mended"}
    assert found["seconds"] < 60  # it takes three on an idle core


def test_one_group_of_hooks_stands_aside_and_all_else_works(tmp_path: Path) -> None:
    found = changed_torch.run(tmp_path, OTHER_WITH)
    assert found["equal"] and found["patched"]
    sites = _sites(found)
    assert sites[FIRST_BRANCH][0] == "mended" and sites[OUTPUT][0] == "mended"
    assert sites[SECOND_BRANCH] == ("refused", "torch-differs")
    (detail,) = [detail for line, *_, detail in found["sites"] if line == SECOND_BRANCH]
    for part in (ENTERS, found["version"]):
        assert part in detail
    ((category, message),) = found["warned"]  # one for the process, although two are patched
    assert category == "UntestedTorch"
    for part in (ENTERS, found["version"], found["tested"]):
        assert part in message


def test_an_optional_method_may_be_gone(tmp_path: Path) -> None:
    name = "builtin.BuiltinVariable.call___build_class__"
    change = f"from torch._dynamo.variables import builtin\ndel {name}"
    found = changed_torch.run(tmp_path, change)
    assert found["equal"] and found["patched"]
    assert len(found["warned"]) == 1 and "call___build_class__" in found["warned"][0][1]


@pytest.mark.parametrize(
    ("change", "subject"),
    [
        (OTHER_SIDE_EFFECTS, "SideEffects.load_attr"),
        ("del exc.raise_observed_exception", "torch._dynamo.exc.raise_observed_exception"),
        (
            "misc.TextVariable = misc.StringFormatVariable\ndel misc.StringFormatVariable",
            "torch._dynamo.variables.misc.StringFormatVariable",
        ),
    ],
    ids=["body", "name", "class"],
)
def test_where_the_core_is_concerned_nothing_is_patched(
    change: str, subject: str, tmp_path: Path
) -> None:
    found = changed_torch.run(tmp_path, change)
    assert found["equal"] and not found["patched"] and found["error"] == ""
    for category, message in found["warned"]:
        assert category == "UntestedTorch"
        assert subject in message and "changes nothing" in message
        assert message.endswith(".") and ". " not in message, "one sentence"
    assert found["warned"]


def test_it_is_an_error_if_the_environment_says_so(tmp_path: Path) -> None:
    found = changed_torch.run(tmp_path, OTHER_WITH, BCMEND_UNTESTED_TORCH="error")
    assert found["error"].startswith("UntestedTorch: ")
    assert ENTERS in found["error"]
    assert found["equal"] and not found["patched"]


@pytest.mark.parametrize(
    ("change", "is_patched"),
    [
        (OTHER_SIDE_EFFECTS, True),
        ("del exc.raise_observed_exception", False),
    ],
    ids=["core", "name"],
)
def test_bcmend_goes_on_with_all_that_exists_if_the_environment_says_so(
    change: str, is_patched: bool, tmp_path: Path
) -> None:
    found = changed_torch.run(tmp_path, change, BCMEND_UNTESTED_TORCH="warn")
    assert found["patched"] is is_patched and found["equal"] and found["error"] == ""
    statuses = {status for status, _ in _sites(found).values()}
    assert statuses == ({"mended"} if is_patched else set())
