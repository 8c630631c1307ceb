"""The corpus of all architectures, from small configurations to exit codes."""

from __future__ import annotations

import inspect
import os
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from torch import Tensor

from corpus.architectures import __main__ as command
from corpus.architectures.arguments import Facts, found_arguments
from corpus.architectures.building import Architecture, NotBuildable, architecture
from corpus.architectures.classes import model_class, model_types
from corpus.architectures.isolation import Limits, Stopped, isolated
from corpus.architectures.page import LIMIT, is_slower, page, summary
from corpus.architectures.record import (
    MEASURED,
    NOT_BUILT,
    Record,
    of_line,
    read_records,
)
from corpus.architectures.shrinking import (
    VOCABULARY,
    WIDTH,
    scaled,
    small_configurations,
    small_value,
)
from corpus.lines import append, as_line, latest
from corpus.transformers5.measure import Measurement

GOOD = Measurement("bert", "train", 4, None, 1, None, (), (), 1.5, 0.5, 1.4, 0.6, 2.0)
WHOLE = replace(GOOD, stock_graphs=1, first_call_cpu=1.0)


def _record(name: str = "bert", found: Measurement | None = GOOD, **given: Any) -> Record:
    known = {"outcome": MEASURED, "model": "BertModel"} | given
    return Record(name, "train", "counting", True, measurement=found, **known)


BIG = _record("big", None, outcome=NOT_BUILT, model="", why="ValueError: 50 million | <parameters>")

# shrinking

VALUES = {
    "vocab_size": (30522, VOCABULARY),
    "hidden_size": (768, WIDTH),
    "num_hidden_layers": (12, 2),
    "encoder_attention_heads": (16, 4),
    "max_position_embeddings": (512, 256),
    "hidden_dropout_prob": (0.0, 0.1),
    "encoder_layerdrop": (0.0, 0.5),
    "pad_token_id": (100257, 1),
    "zero_expert_num": (256, 2),
    "layer_norm_eps": (1e-12, 1e-12),
    "is_decoder": (False, False),
    "depths": ([3, 4, 6, 3], [1, 1, 1, 1]),
    "hidden_sizes": ([64, 256, 2048], [16, 32, 256]),
    "kernel_sizes": ([3, 64], [3, 64]),
    "classifier_dropout": (None, None),
}


@pytest.mark.parametrize("name", VALUES)
def test_an_option_is_cut_by_its_name(name: str) -> None:
    value, expected = VALUES[name]
    assert small_value(name, value, depth=2) == expected


def test_token_ids_stay_in_the_vocabulary_and_are_one_number_everywhere() -> None:
    found = small_value("image_token_id", 151655, depth=2)
    assert VOCABULARY // 2 <= found < VOCABULARY
    assert found == small_value("image_token_id", 32000, depth=2)


def test_equal_widths_stay_equal_and_greater_ones_greater() -> None:
    assert small_value("embedding_size", 512, depth=2, scales=True) == scaled(512) == 64
    assert sorted(map(scaled, range(8, 4096, 8))) == list(map(scaled, range(8, 4096, 8)))


def test_a_configuration_inside_another_is_small_too() -> None:
    found = next(each for each in small_configurations("clip") if not isinstance(each, Exception))
    assert found.text_config.hidden_size == found.vision_config.hidden_size == WIDTH
    assert found.vision_config.image_size == 32


def test_parts_are_given_to_a_configuration_that_has_none() -> None:
    found = next(
        each for each in small_configurations("encoder-decoder") if not isinstance(each, Exception)
    )
    assert found.decoder.is_decoder and found.encoder.num_hidden_layers == 2


# arguments


def _parameters(function: Any) -> Any:
    return inspect.signature(function).parameters


CONFIGURATION = transformers.BertConfig(hidden_size=8)


def test_all_that_a_model_can_read_is_tried_first() -> None:
    def model(input_ids: Tensor, attention_mask: Tensor) -> Tensor:
        return input_ids * attention_mask

    found = found_arguments(_parameters(model), CONFIGURATION, lambda given: model(**given))
    assert list(found) == ["input_ids", "attention_mask"]
    assert found["attention_mask"].sum() < found["attention_mask"].numel()


def test_an_argument_that_an_error_names_is_given() -> None:
    def model(input_ids: Tensor, bbox: Tensor | None = None) -> None:
        if bbox is None:
            raise ValueError("You have to specify bbox")

    found = found_arguments(_parameters(model), CONFIGURATION, lambda given: model(**given))
    assert found["bbox"].shape == (2, 12, 4)


def test_a_mask_is_that_of_patches() -> None:
    def model(pixel_values: Tensor, pixel_attention_mask: Tensor) -> None:
        assert pixel_values.dim() == 3

    found = found_arguments(_parameters(model), CONFIGURATION, lambda given: model(**given))
    assert found["pixel_attention_mask"].shape == found["pixel_values"].shape[:2]


def test_another_form_of_an_argument_is_tried() -> None:
    def model(input_values: Tensor) -> None:
        assert input_values.dim() == 3

    found = found_arguments(_parameters(model), CONFIGURATION, lambda given: model(**given))
    assert found["input_values"].shape == (2, 1, 4000)


def test_a_text_gets_the_tokens_of_its_picture() -> None:
    configuration = transformers.BertConfig(image_token_id=99)

    def model(input_ids: Tensor, attention_mask: Tensor, pixel_values: Tensor) -> None:
        tokens = int((input_ids == 99).sum())
        if tokens != 32:
            raise ValueError(f"Image features and image tokens do not match, {tokens}, features 32")

    found = found_arguments(_parameters(model), configuration, lambda given: model(**given))
    assert found["input_ids"].shape == found["attention_mask"].shape == (2, 28)


def test_the_first_error_is_raised_where_nothing_helps() -> None:
    def model(input_ids: Tensor) -> None:
        raise RuntimeError(f"no: {list(input_ids.shape)}")

    with pytest.raises(RuntimeError, match=r"no: \[2, 12\]"):
        found_arguments(_parameters(model), CONFIGURATION, lambda given: model(**given))


def test_sizes_are_looked_for_inside_too() -> None:
    facts = Facts(transformers.CLIPConfig(vision_config={"image_size": 48}))
    assert (facts.side, facts.channels, facts.number("nothing", default=5)) == (48, 3, 5)


# building


@pytest.mark.parametrize("name", ["bert", "bart", "vit"])
def test_a_model_is_built_and_called(name: str) -> None:
    found = architecture(name)
    again = found.inputs()
    assert model_class(found.configuration) is found.model
    assert sum(each.numel() for each in found.build().parameters()) < 1_000_000
    assert all(torch.equal(again[name], value) for name, value in found.given.items())


def test_the_reason_is_told_in_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = "corpus.architectures.building"
    monkeypatch.setattr(f"{module}.small_configurations", lambda name: iter([ValueError("a\nb")]))
    with pytest.raises(NotBuildable, match=r"^ValueError: a b$"):
        architecture("bert")


def test_each_configuration_class_is_there_once() -> None:
    names = model_types()
    assert len(names) == len(set(names)) > 250
    assert {"bert", "bart", "encoder-decoder"} <= set(names)


# a process of its own


def _crash(on_stage: Any) -> None:
    on_stage("mended")
    os.kill(os.getpid(), signal.SIGKILL)


def _sleep(on_stage: Any) -> None:
    time.sleep(60)


def _fail(on_stage: Any) -> None:
    on_stage("eager")
    raise ValueError("first\nsecond")


def test_the_result_of_a_process_is_returned() -> None:
    assert isolated(lambda on_stage: os.getpid(), Limits(60)) != os.getpid()


@pytest.mark.parametrize(
    "work, seconds, expected",
    [
        (_crash, 60.0, Stopped("mended", "ended by SIGKILL")),
        (_sleep, 0.5, Stopped("build", "no result within the time limit")),
        (_fail, 60.0, Stopped("eager", "ValueError: first")),
    ],
)
def test_the_end_of_a_process_is_told(work: Any, seconds: float, expected: Stopped) -> None:
    assert isolated(work, Limits(seconds)) == expected


def test_memory_is_limited() -> None:
    found = isolated(lambda on_stage: len(bytearray(1 << 40)), Limits(60, 1 << 36))
    assert isinstance(found, Stopped) and "MemoryError" in found.reason


# records and the page


def test_a_record_survives_its_line() -> None:
    found = _record(found=replace(GOOD, differences=("output: other",)))
    assert of_line(as_line(found)) == found
    assert of_line(as_line(BIG)) == BIG


def test_the_last_record_of_a_key_counts(tmp_path: Path) -> None:
    file = tmp_path / "records.jsonl"
    assert read_records(file) == read_records(None) == []
    for each in (_record(), BIG, _record(found=WHOLE)):
        append(file, each)
    assert [each.measurement for each in read_records(file)] == [WHOLE, None]
    assert latest([BIG, BIG]) == [BIG]


def test_the_summary_counts() -> None:
    differs = replace(WHOLE, differences=("output: other",), first_call_cpu=LIMIT + 0.1)
    records = [_record(), BIG, _record("vit", WHOLE), _record("opt", differs)]
    text = "\n".join(summary(records, 400))
    assert "registered: 400; run in some mode: 4; measured: 3" in text
    assert "1 break with stock, of those 1 one graph and equal" in text
    assert "2 whole with stock, of those 1 still so and equal" in text
    assert "1 differ. 1 of those whole with stock slower" in text
    assert [is_slower(each) for each in records] == [False, False, False, True]


def test_the_page_has_a_row_for_each_record() -> None:
    stopped = _record("t5", replace(GOOD, error="Unsupported: a | b", first_call=0.0))
    counted = _record(found=replace(GOOD, stock_operators=7, operators=90))
    lines = page([counted, BIG, stopped], 400, "5.4.0").splitlines()
    figures = "4 → 1 | 7 → 90 | yes | 1.50, 1.40 | 0.50, 0.60 |  |"
    assert f"| bert (BertModel) | train | counting | {figures}" in lines
    assert any("4 → no |  |  |" in line and "a / b" in line for line in lines)
    assert (
        "| big | train | counting | not built: ValueError: 50 million / &lt;parameters> |" in lines
    )


# the command


def _run(*arguments: str) -> int:
    return command.main(list(arguments))


@pytest.fixture(autouse=True)
def _no_preloading(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "preload", lambda: None)


@pytest.mark.parametrize("found, code", [(GOOD, 0), (replace(GOOD, graphs=2), 1)])
def test_the_exit_code(monkeypatch: pytest.MonkeyPatch, found: Measurement, code: int) -> None:
    monkeypatch.setattr(command, "run", lambda name, mode, *_, **__: _record(name, found))
    assert _run("bert", "--mode", "train", "--backend", "counting") == code


def test_a_run_goes_on_behind_its_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tried: list[str] = []

    def run(name: str, mode: str, *_: Any, **__: Any) -> Record:
        tried.append(name)
        return _record(name)

    monkeypatch.setattr(command, "run", run)
    file, written = tmp_path / "records.jsonl", tmp_path / "page.md"
    options = ["--mode", "train", "--backend", "counting", "--resume", str(file)]
    assert _run("bert", *options) == 0
    assert _run("bert", "vit", *options, "--write", str(written)) == 0
    assert tried == ["bert", "vit"]
    assert "| vit (BertModel) |" in written.read_text()


def test_none_is_begun_when_the_time_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "run", lambda *_, **__: pytest.fail("begun"))
    assert _run("bert", "--minutes", "-1") == 0


def test_a_wrong_name_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        _run("nothing")
    assert ended.value.code == 2
    assert "no architecture called nothing" in capsys.readouterr().err


def test_what_stops_before_eager_execution_is_over_is_no_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for stage, outcome in (("eager", "no reference"), ("mended", "stopped")):
        monkeypatch.setattr(command, "isolated", lambda *_, stage=stage: Stopped(stage, "why"))
        found = command.run("bert", "train", "counting", fullgraph=True, limits=Limits())
        assert (found.outcome, found.why) == (outcome, f"{stage}: why")


def test_the_list_says_what_cannot_be_built(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = iter([(True, "BertModel: input_ids [2, 12]"), Stopped("build", "ended by SIGKILL")])
    monkeypatch.setattr(command, "isolated", lambda *_: next(answers))
    assert _run("--list", "bert", "vit") == 0
    shown = capsys.readouterr().out
    assert "bert: built: BertModel" in shown and "vit: not built: ended by SIGKILL" in shown
    assert "1 of 2 can be built" in shown


def test_a_small_model_is_measured() -> None:
    found = command._measured("bert", "eval", "counting", True, lambda stage: None)
    assert found.is_whole and found.measurement is not None
    assert found.measurement.first_call_cpu > 0
    assert isinstance(architecture("bert"), Architecture)
