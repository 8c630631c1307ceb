"""The command `demo`: a small Bart in half precision, compiled as it is and once mended."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

import bcmend
from bcmend.dynamo import compat
from bcmend.reports import steps


class MissingLibrary(Exception):
    """The demonstration needs a library that is not installed; the message says which."""


def run() -> int:
    """Print the graphs and breaks of the model as it is, and what becomes of it once mended.

    Returns 0 when the mended model compiled to one graph with the outputs and log lines of eager
    execution, else 1. Raises `MissingLibrary` when transformers is not installed.
    """
    try:
        with steps.shown("importing transformers"):
            import transformers
    except ImportError as error:
        raise MissingLibrary(
            "the demo needs transformers, which is not installed: pip install 'bcmend[hf]'"
        ) from error
    with steps.shown("stock torch.compile"):
        model, inputs = _model(transformers)
        with _log_lines(transformers) as eager_lines:
            eager = model(**inputs)
        with _log_lines(transformers):
            stock = compat.explain_dynamo(model)(**inputs)
    _print_breaks(stock)
    compat.reset_dynamo()
    graphs: list[torch.fx.GraphModule] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    with (
        steps.shown("mended: compiling"),
        bcmend.patched(model),
        _log_lines(transformers) as lines,
    ):
        compiled = torch.compile(model, backend=counting, fullgraph=True)
        try:
            mended = compiled(**inputs)
        except compat.TorchDynamoException as error:
            print(f"The mended model does not compile: {str(error).strip().splitlines()[0]}")
            return 1
        report = bcmend.report(model)
    same_output, same_lines = torch.equal(eager.logits, mended.logits), eager_lines == lines
    print(f"\nMended, compiled with fullgraph=True: graphs: {len(graphs)}")
    for site in report.mended:
        print(f"  {Path(site.file).name}:{site.line}: {site.kind} mended: {site.lowering}")
    print(f"output equal to eager, bit for bit: {'yes' if same_output else 'no'}")
    print(f"log lines equal to eager: {'yes' if same_lines else 'no'}")
    print("\n".join(f"  {line}" for line in lines))
    return 0 if same_output and same_lines and len(graphs) == 1 else 1


def _model(transformers: Any) -> tuple[torch.nn.Module, dict[str, torch.Tensor]]:
    """Return the model, with random weights, and its inputs; nothing is downloaded."""
    torch.manual_seed(0)
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
    mask = torch.ones_like(source)
    return model, {"input_ids": source, "attention_mask": mask, "decoder_input_ids": source[:, :1]}


def _print_breaks(stock: Any) -> None:
    print(f"Stock torch.compile: {stock.graph_count} graphs, {stock.graph_break_count} breaks")
    for found in stock.break_reasons:
        frame = found.user_stack[-1]
        reason = found.reason.strip().splitlines()[0]
        print(f"  {Path(frame.filename).name}:{frame.lineno}: {reason}")


@contextmanager
def _log_lines(transformers: Any) -> Iterator[list[str]]:
    """Collect what transformers logs, and drop what Dynamo does."""
    lines: list[str] = []
    collector = logging.Handler()
    collector.emit = lambda record: lines.append(  # type: ignore[method-assign]
        f"{record.levelname}: {record.getMessage()}"
    )
    # A message that was logged once in this process is otherwise not logged again.
    transformers.utils.logging.warning_once.cache_clear()
    logger, dynamo = logging.getLogger("transformers"), logging.getLogger("torch._dynamo")
    handlers, level = logger.handlers[:], dynamo.level
    logger.handlers[:] = [collector]
    dynamo.setLevel(logging.ERROR)
    try:
        with torch.no_grad():
            yield lines
    finally:
        logger.handlers[:] = handlers
        dynamo.setLevel(level)
