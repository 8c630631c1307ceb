"""The JSON schemas of the package are of what the commands print."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

import pytest

import bcmend
from bcmend import cli
from bcmend.reasons import Reason
from bcmend.reports import schemas
from bcmend.reports.benchmark import Benchmark, Measured, Spread
from bcmend.reports.bytecode_pair import CodePair, CodeRow
from bcmend.reports.explanation import Cause, Explanation, Side, Treatment
from bcmend.reports.model_tree import Part
from bcmend.reports.outcomes import Retrace, SiteRecord
from bcmend.reports.source import Span
from bcmend.reports.verdict import Difference, SideRecord, Sides, Verdict
from tests.benchmarks import MENDED, benchmark, spread
from tests.json_schema import problems

#: The classes whose fields an object of a schema has; "" is the whole.
CLASSES = {
    "explain": {
        "": Explanation,
        "side": Side,
        "cause": Cause,
        "treatment": Treatment,
        "part": Part,
        "span": Span,
    },
    "bench": {"": Benchmark, "measured": Measured, "spread": Spread},
    "verify": {
        "": Verdict,
        "site": SiteRecord,
        "difference": Difference,
        "sides": Sides,
        "side": SideRecord,
        "span": Span,
    },
    "report": {
        "site": SiteRecord,
        "refusal": Reason,
        "retrace": Retrace,
        "code": CodePair,
        "row": CodeRow,
        "span": Span,
    },
}
#: Keys that no field has.
ADDED = {
    "explain": {"schema"},
    "bench": {"schema", "verdict", "compared"},
    "verify": {"schema", "equal"},
}


def _schema(name: str) -> dict[str, Any]:
    return json.loads(schemas.schema_text(name))


def _wrong(name: str, printed: str) -> list[str]:
    schema = _schema(name)
    return problems(json.loads(printed), schema, schema)


@pytest.mark.parametrize("name", schemas.NAMES)
def test_a_schema_is_printed(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["schema", name]) == 0
    schema = json.loads(capsys.readouterr().out)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["additionalProperties"] is False


@pytest.mark.parametrize("name", schemas.NAMES)
def test_an_object_of_a_schema_has_the_fields_of_its_class(name: str) -> None:
    schema = _schema(name)
    assert CLASSES[name].keys() - {""} == schema["$defs"].keys()
    for part, kind in CLASSES[name].items():
        found = schema["$defs"][part] if part else schema
        expected = {each.name for each in fields(kind)}
        added = set() if part else ADDED[name]
        assert set(found["properties"]) == set(found["required"]) == expected | added, part


def test_what_is_not_as_a_schema_says_is_found() -> None:
    schema = {
        "type": "object",
        "required": ["a", "b"],
        "additionalProperties": False,
        "properties": {
            "a": {"type": ["integer", "null"], "minimum": 1},
            "b": {"type": "array", "items": {"enum": ["x"]}, "maxItems": 2},
        },
    }
    assert problems({"a": None, "b": ["x"]}, schema, schema) == []
    for value in ({}, {"a": 0, "b": []}, {"a": True, "b": []}, {"a": 1, "b": ["y"]}, []):
        assert problems(value, schema, schema)
    assert problems({"a": 1, "b": [], "c": 1}, schema, schema) == [": c is not in the schema"]
    with pytest.raises(ValueError, match="pattern"):
        problems("", {"pattern": ""}, schema)


def test_benchmarks_are_as_their_schema_says() -> None:
    for changed in (
        {},
        {"mended": Measured(raised="ValueError: no")},
        {"only_traces": True},
        {"mended": replace(MENDED, later=spread(9.0), first_cold=1.0)},
    ):
        assert _wrong("bench", benchmark(**changed).to_json()) == []


# What there is to print needs torch


@pytest.fixture
def models(dynamo_begun_anew: None) -> Any:
    pytest.importorskip("torch")
    from tests.testing import models

    return models


def test_explanations_are_as_their_schema_says(models: Any) -> None:
    import torch

    for model in (models.Branch(), models.Opens()):
        found = bcmend.explain(model, torch.ones(3), backend="eager")
        assert found.causes and _wrong("explain", found.to_json()) == []


def test_verdicts_are_as_their_schema_says(models: Any) -> None:
    import torch

    found = bcmend.verify(models.Branch(), torch.ones(3), sides="all")
    assert found.sides and _wrong("verify", found.to_json()) == []
    bcmend.register_capture(models.step, lambda x: x * 3)
    found = bcmend.verify(models.Steps(), torch.ones(3))
    assert found.difference and _wrong("verify", found.to_json()) == []


def test_reports_are_as_their_schema_says(models: Any) -> None:
    import torch

    policy = bcmend.Policy(off=("*Branch*",), mend="ahead")
    for model, chosen in ((models.Branch(), None), (models.Branch(), policy)):
        with bcmend.patched(model, policy=chosen):
            torch.compile(model, backend="eager")(torch.ones(3))
            found = bcmend.report(model, ahead=True, bytecode=True)
        assert found.sites and (found.bytecode or chosen)
        assert _wrong("report", found.to_json()) == []
