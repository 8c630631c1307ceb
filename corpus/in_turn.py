"""What the commands that measure models have in common: one model after another, and a document."""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import torch
import transformers
from rich.console import Console

from corpus.models.case import ModelCase

__all__ = ["dynamo_quiet", "measure_in_turn", "write_document"]

Found = TypeVar("Found")
OnStage = Callable[[str], None]


@contextmanager
def dynamo_quiet(level: int) -> Iterator[None]:
    """Have Dynamo log nothing below `level`: a break is counted here, not told."""
    names = ("torch._dynamo", "torch.fx.experimental.symbolic_shapes")
    before = {name: logging.getLogger(name).level for name in names}
    try:
        for name in names:
            logging.getLogger(name).setLevel(level)
        yield
    finally:
        for name in names:
            logging.getLogger(name).setLevel(before[name])


def measure_in_turn(
    cases: Sequence[ModelCase],
    measure: Callable[[ModelCase, OnStage], Found],
    progress: Console,
) -> list[tuple[ModelCase, Found]]:
    """Measure each case, and say on `progress` which stage of which model is running."""
    results = []
    with progress.status("starting") as status:
        for number, case in enumerate(cases, start=1):
            prefix = f"[{number}/{len(cases)}] {case.name}"

            def on_stage(stage: str, prefix: str = prefix) -> None:
                status.update(f"{prefix}: {stage}")

            results.append((case, measure(case, on_stage)))
    return results


def write_document(models: Sequence[dict[str, Any]], path: Path) -> None:
    """Write measurements, with the versions that they were made with."""
    document = {
        "python": sys.version.split()[0],
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "models": list(models),
    }
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
