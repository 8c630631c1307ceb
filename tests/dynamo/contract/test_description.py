"""The recorded file of the running release is what the running torch and the present hooks give."""

from __future__ import annotations

import ast
import json
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from bcmend.dynamo import compat, hooks, operators
from bcmend.dynamo.contract import (
    comparison,
    description,
    difference,
    groups,
    names,
    recorded,
    written,
)
from bcmend.dynamo.contract.difference import Difference
from bcmend.dynamo.contract.recorded import Facts
from bcmend.patching import torch_check
from tests import new_process

COMMAND = "python -m tests.dynamo.contract"


@pytest.fixture(scope="module")
def present() -> Facts:
    return torch_check.described()


def test_the_file_of_the_running_release_is_up_to_date(present: Facts) -> None:
    release = recorded.of_build(torch.version.git_version)
    if release is None:
        pytest.skip(f"torch {torch.__version__} is not recorded; {COMMAND} does that")
    stale = difference_lines(comparison.differences(release.facts, present))
    assert stale == [], f"run {COMMAND} with torch {release.version}"


def difference_lines(found: list[Difference]) -> list[str]:
    return [f"{each.kind}: {each.subject}" for each in found]


def test_a_file_is_written_as_it_is_read(present: Facts, tmp_path: Path) -> None:
    release = recorded.Release("2.99.1", "1234", pythons=("3.11", "3.12"), facts=present)
    again = recorded.read(recorded.write(release, tmp_path))
    assert (again.version, again.git_version, again.pythons) == ("2.99.1", "1234", ("3.11", "3.12"))
    assert again.facts == present


def test_recorded_files_are_sorted() -> None:
    for file in recorded.FOLDER.glob("*.json"):
        assert file.stem == recorded.read(file).version
        sections = json.loads(file.read_text(encoding="utf-8"))
        for section in sections.keys() - {"torch"}:
            assert list(sections[section]) == sorted(sections[section])


def test_everything_that_is_replaced_is_described(present: Facts) -> None:
    declared = {each.target for each in (*hooks.REGISTRY.hooks, *hooks.REGISTRY.watches)}
    assert present[description.TARGETS].keys() == declared
    rows = {row.target for row in hooks.REGISTRY.rows if row.table != operators.OPERATORS}
    assert present[description.HANDLERS].keys() == rows


def test_every_class_and_function_of_the_adapter_is_described(present: Facts) -> None:
    private = [getattr(compat, each.name) for each in compat.symbols()]
    classes = {each.__name__ for each in private if isinstance(each, type)}
    assert classes <= present[description.CLASSES].keys()
    functions = {each.name for each in compat.symbols()} & present[description.FUNCTIONS].keys()
    assert {"unimplemented", "install_guard", "get_fake_value"} <= functions


def test_every_hook_of_the_package_is_declared_for_the_description() -> None:
    torch_check.declare_hooks()
    before = len(hooks.REGISTRY.hooks), len(hooks.REGISTRY.rows), len(hooks.REGISTRY.watches)
    for file in sorted(Path(hooks.__file__).parents[1].rglob("*.py")):
        module = ".".join(file.relative_to(Path(hooks.__file__).parents[2]).with_suffix("").parts)
        if not module.endswith("__main__"):
            __import__(module)
    after = len(hooks.REGISTRY.hooks), len(hooks.REGISTRY.rows), len(hooks.REGISTRY.watches)
    assert before == after


def test_the_description_does_not_depend_on_what_else_is_imported(present: Facts) -> None:
    script = (
        "import torch._inductor.compile_fx, torch._dynamo.compiled_autograd, torch.export\n"
        "import torch._dynamo.testing, torch.distributed.tensor, json\n"
        "from bcmend.patching import torch_check\n"
        "print(json.dumps(torch_check.described(), sort_keys=True))"
    )
    done = new_process.run("-c", script)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout.splitlines()[-1]) == json.loads(json.dumps(present))


# What is found to differ


def _other(self: Any, tx: Any, codegen: Any = None) -> None:
    """Differ from what torch has here."""


@pytest.fixture(scope="module")
def changed(present: Facts) -> list[Difference]:
    """Return the differences that a number of changes of torch make."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(compat.TensorVariable, "hash_impl", _other)
        patch.delattr(compat.PolyfilledFunctionVariable, "call_function")
        patch.delattr(compat.BuiltinVariable, "call___build_class__")
        entry = compat.dynamo_config._config["recompile_limit"]  # type: ignore[attr-defined]
        patch.setattr(entry, "default", entry.default + 1)
        patch.setattr(compat.ListVariable, "tp_getset", {"colour": None}, raising=False)
        place = {"__module__": compat.ListVariable.__module__}
        heirs = [
            type("StrangeListVariable", (compat.ListVariable,), place),
            type(
                "StrangeSource",
                (compat.GetItemSource,),
                {"__module__": compat.GetItemSource.__module__},
            ),
        ]
        for heir in heirs:
            patch.setattr(sys.modules[heir.__module__], heir.__name__, heir, raising=False)
        try:
            found = comparison.differences(present, description.describe())
        finally:
            every: Any = type(compat.VariableTracker).all_subclasses
            every.remove(heirs[0])
    return found


def _of(found: list[Difference], subject: str) -> dict[str, Difference]:
    return {each.kind: each for each in found if each.subject == subject}


def test_a_changed_method_is_found(changed: list[Difference]) -> None:
    found = _of(changed, "TensorVariable.hash_impl")
    assert found["body"].needed_by == ("bcmend.tracing.handlers.identity",)
    assert "bcmend.tracing.handlers.identity" in found["parameters"].needed_by
    assert (found["parameters"].before, found["parameters"].after) == (
        "self, tx",
        "self, tx, codegen=",
    )


def test_a_method_that_is_inherited_instead_is_found(changed: list[Difference]) -> None:
    moved = _of(changed, "PolyfilledFunctionVariable.call_function")["moved"]
    assert moved.before.endswith(".PolyfilledFunctionVariable")
    assert not moved.after.endswith(".PolyfilledFunctionVariable")


def test_a_method_that_is_gone_is_found(changed: list[Difference]) -> None:
    gone = _of(changed, "BuiltinVariable.call___build_class__")["missing"]
    assert gone.before and not gone.after
    assert gone.needed_by == ("bcmend.tracing.speculation.done_while_tracing",)


def test_a_default_of_a_setting_is_found(changed: list[Difference]) -> None:
    found = _of(changed, "recompile_limit")["settings"]
    assert int(found.after) == int(found.before) + 1
    assert found.needed_by


def test_a_new_table_is_found(changed: list[Difference]) -> None:
    found = _of(changed, "ListVariable")["tables"]
    assert "tp_getset.colour" in found.after


def test_a_new_model_concerns_nobody_and_another_new_class_does(changed: list[Difference]) -> None:
    model = _of(changed, "ListVariable")["subclasses"]
    assert model.after == "StrangeListVariable" and model.needed_by == ()
    source = _of(changed, "GetItemSource")["subclasses"]
    assert source.after == "StrangeSource" and source.needed_by


def test_nothing_else_differs(changed: list[Difference]) -> None:
    subjects = {each.subject.partition(".")[0] for each in changed}
    assert subjects == {
        *("TensorVariable", "PolyfilledFunctionVariable", "BuiltinVariable", "recompile_limit"),
        *("ListVariable", "GetItemSource"),
    }
    kinds = [difference.KINDS.index(each.kind) for each in changed]
    assert kinds == sorted(kinds)


# Names that are missing


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("from torch._dynamo.exc import Unsupported", []),
        ("from torch._dynamo.exc import NoSuch", ["torch._dynamo.exc.NoSuch"]),
        ("from torch._dynamo.nowhere import NoSuch", ["torch._dynamo.nowhere.NoSuch"]),
        ("from collections import NoSuch", []),
        ("X: Final = torch._C._no_such", ["torch._C._no_such"]),
        ("X: Final = (torch._C._get_nnpack_enabled, _C._no_such)", ["torch._C._no_such"]),
        ("X: Final = lambda: torch._C._no_such", []),
        (
            "try:\n  from torch._dynamo.exc import NoSuch\n"
            "except ImportError:\n  from torch._dynamo.exc import Unsupported as NoSuch",
            [],
        ),
        (
            "try:\n  from torch._dynamo.exc import NoSuch\n"
            "except ImportError:\n  from torch._dynamo.exc import NoSuchEither",
            ["torch._dynamo.exc.NoSuch"],
        ),
    ],
)
def test_names_that_are_missing(text: str, expected: list[str]) -> None:
    assert names.missing(text) == expected


def test_none_is_missing_here() -> None:
    assert names.missing() == []


# Hashes of bodies


def _hash(text: str) -> str:
    return written.hash_of(ast.parse(text).body[0])


BODY = "def f(x: int) -> int:\n    '''Text.'''\n    return x + 1"


@pytest.mark.parametrize(
    ("text", "is_same"),
    [
        ("def f(x):\n    return x + 1  # a comment", True),
        ("def f(x: float) -> float:\n    '''Another.'''\n    return (x\n        + 1)", True),
        ("def f(x):\n    return x + 2", False),
        ("def f(y):\n    return y + 1", False),
        ("@cache\ndef f(x):\n    return x + 1", False),
        ("def f(x=0):\n    return x + 1", False),
        ("def f(x):\n    x.y = 1\n    return x + 1", False),
    ],
)
def test_a_hash_changes_with_what_the_code_does(text: str, is_same: bool) -> None:
    assert (_hash(text) == _hash(BODY)) is is_same


def _wraps(function: Any) -> Any:
    def wrapper() -> None: ...

    wrapper.__wrapped__ = function  # type: ignore[attr-defined]
    return wrapper


def test_what_a_program_wraps_around_a_method_is_seen() -> None:
    method = compat.InstructionTranslatorBase.run
    wrapped = _wraps(method)
    assert written.function_behind(wrapped) is wrapped
    assert written.body(wrapped) != written.body(method)


def test_what_torch_wraps_around_a_method_is_not_its_body() -> None:
    method = compat.InstructionTranslatorBase.CALL
    inner = written.function_behind(method)
    assert inner is not method and inner is method.__wrapped__


def _with(facts: Facts, section: str, subject: str, fact: Any) -> Facts:
    changed = {name: found for name, found in facts[section].items() if name != subject}
    if fact is not None:
        changed[subject] = fact
    return {**facts, section: changed}


@pytest.mark.parametrize(
    ("section", "subject", "fact"),
    [
        ("classes", "StrangeMutation", {"module": "torch", "bases": ["MutationType"]}),
        ("classes", "MutationType", None),
        ("classes", "SubgraphTracer", {"module": "torch", "fields": ["colour"]}),
        ("settings", "new_setting", "True"),
        ("functions", "unimplemented", "torch(message)"),
    ],
)
def test_what_no_module_names_is_a_matter_of_the_core(
    section: str, subject: str, fact: Any, present: Facts
) -> None:
    found = comparison.differences(present, _with(present, section, subject, fact))
    assert {each.subject.partition(".")[0] for each in found} == {subject}
    assert groups.CORE in groups.concerned(found)
    assert all(each.needed_by for each in found)
