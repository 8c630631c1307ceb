"""The demonstration: one Hugging Face model, compiled as it is and compiled once mended.

Builds a small Bart in half precision from a configuration, with random weights and nothing
downloaded: its encoder layers ask whether to clamp, and its decoder logs a warning. Shows the
graphs and the break reasons of stock `torch.compile`, then the one graph of the mended model, with
the outputs and the log lines of both beside those of eager execution.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import torch
from rich.console import Console
from rich.table import Table
from rich.text import Text

import bcmend

__all__ = ["MissingLibrary", "run"]

_SEED: Final = 0
_MINIMUM_WIDTH: Final = 92  # a pipe has no width of its own, and rich then takes too few columns

_SITES_SHOWN: Final = 12


class MissingLibrary(Exception):
    """The demonstration needs a library that is not installed; the message says which."""


@dataclass(frozen=True, slots=True)
class _Run:
    """One call of the model: what it returned and logged, and how many graphs it took."""

    output: Any
    lines: tuple[str, ...]
    graphs: int


def _transformers() -> Any:
    try:
        import transformers
    except ImportError as error:
        raise MissingLibrary(
            "the demo needs transformers, which is not installed: pip install 'bcmend[hf]'"
        ) from error
    return transformers


def _build(transformers: Any) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    torch.manual_seed(_SEED)
    configuration = transformers.BartConfig(
        vocab_size=128,
        d_model=64,
        encoder_layers=2,
        decoder_layers=2,
        encoder_attention_heads=2,
        decoder_attention_heads=2,
        encoder_ffn_dim=128,
        decoder_ffn_dim=128,
        max_position_embeddings=64,
    )
    model = transformers.BartForConditionalGeneration(configuration).to(torch.float16).eval()
    source = torch.randint(3, 128, (1, 8))
    return model, {
        "input_ids": source,
        "attention_mask": torch.ones_like(source),
        "decoder_input_ids": source[:, :1],
    }


@contextmanager
def _silent_dynamo() -> Iterator[None]:
    """Keeps Dynamo's own warnings about breaks back: the breaks are shown in a table."""
    logger = logging.getLogger("torch._dynamo")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _log_lines(transformers: Any) -> Iterator[list[str]]:
    """Collects what transformers logs instead of showing it."""
    lines: list[str] = []

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            lines.append(f"{record.levelname}: {record.getMessage()}")

    # a message that was logged once in this process is otherwise not logged again
    transformers.utils.logging.warning_once.cache_clear()
    logger = logging.getLogger("transformers")
    handlers = logger.handlers[:]
    logger.handlers[:] = [Collector()]
    try:
        yield lines
    finally:
        logger.handlers[:] = handlers


def _call(transformers: Any, call: Callable[[], Any], graphs: list[torch.fx.GraphModule]) -> _Run:
    with _log_lines(transformers) as lines, torch.no_grad():
        output = call()
    return _Run(output, tuple(lines), len(graphs))


def _run_eager(transformers: Any) -> _Run:
    model, inputs = _build(transformers)
    return _call(transformers, lambda: model(**inputs), [])


def _explain_stock(transformers: Any) -> Any:
    """Dynamo's own account of the graphs and breaks of the unpatched model."""
    torch._dynamo.reset()
    model, inputs = _build(transformers)
    with _log_lines(transformers), torch.no_grad():
        return torch._dynamo.explain(model)(**inputs)


def _run_mended(transformers: Any) -> tuple[_Run, Any]:
    """The patched model under `fullgraph=True`, and the report of what was mended."""
    torch._dynamo.reset()
    graphs: list[torch.fx.GraphModule] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    model, inputs = _build(transformers)
    with bcmend.patched(model):
        compiled = torch.compile(model, backend=counting, fullgraph=True)
        run = _call(transformers, lambda: compiled(**inputs), graphs)
        return run, bcmend.report(model)


def _reasons_table(explanation: Any) -> Table:
    title = (
        f"Stock torch.compile: {explanation.graph_count} graphs, "
        f"{explanation.graph_break_count} breaks"
    )
    table = Table(title=title, caption="the breaks that Dynamo gives a reason for")
    table.add_column("where", no_wrap=True)
    table.add_column("why Dynamo stopped")
    for found in explanation.break_reasons:
        frame = found.user_stack[-1]
        reason = found.reason.strip().splitlines()[0]
        table.add_row(f"{Path(frame.filename).name}:{frame.lineno}", Text(reason))
    return table


def _comparison(eager: _Run, stock_graphs: int, mended: _Run) -> tuple[Table, bool]:
    """The three runs side by side, and whether the mended one is as it should be."""
    same_output = torch.equal(eager.output.logits, mended.output.logits)
    same_lines = eager.lines == mended.lines
    table = Table(title="Mended, compiled with fullgraph=True")
    for heading in ("", "eager", "stock", "mended"):
        table.add_column(heading, justify="left" if not heading else "right")
    table.add_row("graphs", "-", str(stock_graphs), str(mended.graphs))
    table.add_row("log lines", str(len(eager.lines)), "", str(len(mended.lines)))
    table.add_row("output equal to eager, bit for bit", "", "", "yes" if same_output else "no")
    table.add_row("log lines equal to eager", "", "", "yes" if same_lines else "no")
    return table, same_output and same_lines and mended.graphs == 1


def _lines_table(eager: _Run, mended: _Run) -> Table:
    table = Table(title="What was logged")
    table.add_column("eager", ratio=1, overflow="fold")
    table.add_column("mended", ratio=1, overflow="fold")
    for left, right in zip_longest(eager.lines, mended.lines, fillvalue=""):
        table.add_row(Text(left), Text(right))
    return table


def _sites_table(report: Any) -> Table:
    table = Table(title=f"{len(report.mended)} sites mended")
    for heading in ("where", "kind", "lowering"):
        table.add_column(heading)
    for site in report.mended[:_SITES_SHOWN]:
        table.add_row(f"{Path(site.file).name}:{site.line}", site.kind, site.lowering or "")
    hidden = len(report.mended) - _SITES_SHOWN
    if hidden > 0:
        table.caption = f"and {hidden} more: see `python -m bcmend report`"
    return table


def _show(console: Console, transformers: Any) -> bool:
    """Prints the whole demonstration; whether the mended model is as it should be."""
    with Console(stderr=True).status("running Bart eagerly") as status:
        eager = _run_eager(transformers)
        status.update("compiling Bart as it is")
        stock = _explain_stock(transformers)
        console.print(_reasons_table(stock))
        status.update("patching Bart, and compiling it with fullgraph=True")
        try:
            mended, report = _run_mended(transformers)
        except torch._dynamo.exc.TorchDynamoException as error:
            reason = str(error).strip().splitlines()[0]
            console.print(f"The mended model does not compile: {reason}", markup=False)
            return False
    console.print(_sites_table(report))
    comparison, good = _comparison(eager, stock.graph_count, mended)
    console.print(comparison)
    console.print(_lines_table(eager, mended))
    return good


def run(console: Console | None = None) -> int:
    """Runs the demonstration and prints it on `console`, standard output where there is none.

    Returns 0 when the mended model compiled to one graph with the outputs and log lines of eager
    execution, else 1. Raises `MissingLibrary` when transformers is not installed.
    """
    shown = Console() if console is None else console
    shown.width = max(shown.width, _MINIMUM_WIDTH)
    transformers = _transformers()
    with _silent_dynamo():
        return 0 if _show(shown, transformers) else 1
