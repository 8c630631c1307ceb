"""All sides of what is mended in the programs of the corpus, each beside eager execution."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

import bcmend
from bcmend.trials.apart import makes_copies
from corpus import sides
from corpus.patterns.pattern import Pattern
from corpus.patterns.registry import PATTERNS
from tests.samples import sampled

pytestmark = [
    pytest.mark.skipif(not makes_copies(), reason="processes cannot be copied here"),
    pytest.mark.usefixtures("dynamo_begun_anew"),
]


@pytest.mark.parametrize("pattern", sampled(PATTERNS, lambda each: each.name, of=80))
def test_each_side_of_a_pattern_is_that_of_eager_execution(pattern: Pattern) -> None:
    call = pattern.inputs()[0]
    torch.manual_seed(0)
    found = bcmend.verify(
        pattern.make(), *call.arguments, runs=1, sides="all", seconds=60, **call.keywords
    )
    assert found.sides is not None
    assert [each for each in found.sides.differences if each.forced and not each.stock] == []


def test_the_command_keeps_results_and_says_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file, name = tmp_path / "results", "check-that-protects-an-index"
    arguments = ["patterns", name, "--seconds", "60", "--resume", str(file)]
    assert sides.main(arguments) == 0
    assert "1 sites, 2 sides: 1 seen, 1 forced" in capsys.readouterr().out
    monkeypatch.setattr(sides, "measured", lambda *_: pytest.fail("it is kept"))
    assert sides.main(arguments) == 0
    assert "| patterns | eager | 1 | 1 | 2 | 1 | 1 | 0 |" in capsys.readouterr().out
    kept = json.loads(file.read_text())
    file.write_text(json.dumps({**kept, "differs": "call 3, result: result"}) + "\n")
    assert sides.main(arguments) == 1


def test_a_name_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as error:
        sides.parse(["patterns", "no-such-pattern"])
    assert error.value.code == 2
    assert "no-such-pattern" in capsys.readouterr().err
