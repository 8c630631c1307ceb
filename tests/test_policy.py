"""A policy validates itself, and answers about modules and sites."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from bcmend.errors import PolicyError
from bcmend.policy import DEFAULT, Policy


@pytest.mark.parametrize(
    ("field", "allowed"),
    [
        ("branch", ["auto", "where", "cond"]),
        ("output", ["defer", "keep", "drop"]),
        ("guards", ["defer", "keep"]),
        ("untaken_gradients", ["none", "zeros"]),
        ("one_sided", ["break", "exit"]),
    ],
)
def test_choices_are_accepted_and_anything_else_is_named(field: str, allowed: list[str]) -> None:
    for value in allowed:
        assert getattr(Policy(**{field: value}), field) == value  # type: ignore[arg-type]
    for wrong in ("sometimes", "inline", "", None, True, ["auto"]):
        with pytest.raises(PolicyError) as caught:
            Policy(**{field: wrong})  # type: ignore[arg-type]
        message = str(caught.value)
        assert field in message
        assert repr(wrong) in message
        assert all(repr(value) in message for value in allowed)


@pytest.mark.parametrize("field", ["include", "exclude", "off"])
def test_a_bare_string_is_refused_with_the_tuple_to_write(field: str) -> None:
    with pytest.raises(PolicyError, match=r"write \('torch\.nn',\)"):
        Policy(**{field: "torch.nn"})  # type: ignore[arg-type]


@pytest.mark.parametrize("field", ["include", "exclude", "off"])
@pytest.mark.parametrize("wrong", [None, 3, ["mymodel"], {"mymodel": 1}, ("mymodel", 3), ("",)])
def test_other_collections_and_entries_are_refused(field: str, wrong: Any) -> None:
    with pytest.raises(PolicyError, match=field):
        Policy(**{field: wrong})


def test_only_off_takes_a_frozenset() -> None:
    assert Policy(off=frozenset({"a", "b"})).is_off("b")
    with pytest.raises(PolicyError, match="include"):
        Policy(include=frozenset({"a"}))  # type: ignore[arg-type]


def test_policy_is_immutable_hashable_and_keyword_only() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        DEFAULT.branch = "cond"  # type: ignore[misc]
    assert hash(Policy(branch="cond")) == hash(Policy(branch="cond"))
    assert DEFAULT == Policy()
    with pytest.raises(TypeError):
        Policy("cond")  # type: ignore[misc]


@pytest.mark.parametrize(
    "module",
    [
        *("__main__", "mymodel", "mymodel.layers", "torchvision.ops", "transformers.models.t5"),
        *("transformers.loss.loss_utils", "transformers.utils.import_utils"),
    ],
)
def test_user_modules_are_touched(module: str) -> None:
    assert DEFAULT.touches(module)


@pytest.mark.parametrize(
    "module",
    [
        *("torch", "torch.nn.functional", "functorch.dim", "torchgen.model"),
        *("collections.abc", "functools", "logging", "sys", "builtins"),
        *("numpy.linalg", "triton.language", "sympy", "networkx", "rich.table"),
        *("packaging.version", "huggingface_hub.file_download", "tqdm.auto"),
        *("bytecode", "xdis", "bcmend", "bcmend.tracing", "pytest", "_pytest.python"),
    ],
)
def test_libraries_that_are_no_model_code_are_left_alone(module: str) -> None:
    assert not DEFAULT.touches(module)


@pytest.mark.parametrize("module", ["torchvision", "bcmendx", "numpy_like", "jsonlines"])
def test_a_name_that_only_begins_like_an_excluded_one_is_touched(module: str) -> None:
    assert DEFAULT.touches(module)


def test_include_wins_over_the_default_for_the_package_and_below() -> None:
    policy = Policy(include=("torch.nn", "json"))
    assert policy.touches("torch.nn")
    assert policy.touches("torch.nn.modules.linear")
    assert policy.touches("json.decoder")
    assert not policy.touches("torch.nnx")
    assert not policy.touches("torch")


def test_include_never_reaches_bcmend_itself() -> None:
    assert not Policy(include=("bcmend", "bcmend.tracing")).touches("bcmend.tracing.entry.boundary")


def test_exclude_wins_over_everything() -> None:
    policy = Policy(include=("torch.nn",), exclude=("torch.nn.modules", "mymodel.layers"))
    assert policy.touches("torch.nn.functional")
    assert not policy.touches("torch.nn.modules.linear")
    assert not policy.touches("mymodel.layers")
    assert policy.touches("mymodel.layersnorm")
    assert policy.touches("mymodel")


def test_sites_are_switched_off_by_name_and_by_pattern() -> None:
    policy = Policy(off=("mymodel.Net.forward:12:branch", "other.*:output", "f.<locals>.g[0]"))
    assert policy.is_off("mymodel.Net.forward:12:branch")
    assert not policy.is_off("mymodel.Net.forward:13:branch")
    assert policy.is_off("other.Deep.call:3:output")
    assert not policy.is_off("Other.Deep.call:3:output")
    assert policy.is_off("f.<locals>.g[0]"), "a name holds literally, pattern characters or not"
    assert not DEFAULT.is_off("mymodel.Net.forward:12:branch")


def test_entries_that_match_nothing_are_known() -> None:
    policy = Policy(
        off=("mymodel.Net.forward:12:branch", "mymodl.*", "mymodel.*"),
        include=("torch.nn", "torch.mn"),
        exclude=("bcmend.polcy", "bcmend.policy"),
    )
    found = policy.unmatched(["mymodel.Net.forward:13:branch"])
    off = ["off='mymodel.Net.forward:12:branch'", "off='mymodl.*'"]
    assert found == [*off, "include='torch.mn'", "exclude='bcmend.polcy'"]
    assert DEFAULT.unmatched([]) == []
