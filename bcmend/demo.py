"""The command `demo`: a small Bart in half precision, compiled as it is and once mended."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import torch

import bcmend
from bcmend.dynamo import compat
from bcmend.reports import steps
from bcmend.reports.benchmark import Benchmark, Measured
from bcmend.reports.texts import aligned, plural

#: How long later calls are timed, of eager execution, stock and mended together.
_SECONDS: Final = 6.0


class MissingLibrary(Exception):
    """The demonstration needs a library that is not installed; the message says which."""


def run() -> int:
    """Print the graphs and breaks of the model as it is, and what becomes of it once mended.

    What calls take is printed last, and decides nothing. Returns 0 when the mended model compiled
    to one graph with the outputs and log records of eager execution, else 1. Raises
    `MissingLibrary` when transformers is not installed.
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
        with _log_records(transformers) as eager_records:
            eager = model(**inputs)
        with _log_records(transformers):
            stock = compat.explain_dynamo(model)(**inputs)
    print("One call of a small Bart model in half precision, with random weights\n")
    _print_breaks(stock)
    compat.reset_dynamo()
    graphs: list[torch.fx.GraphModule] = []

    def counting(graph: torch.fx.GraphModule, inputs: list[torch.Tensor]) -> Any:
        graphs.append(graph)
        return graph.forward

    with (
        steps.shown("mended: compiling"),
        bcmend.patched(model),
        _log_records(transformers) as records,
    ):
        compiled = torch.compile(model, backend=counting, fullgraph=True)
        try:
            mended = compiled(**inputs)
        except compat.TorchDynamoException as error:
            print(f"The mended model does not compile: {str(error).strip().splitlines()[0]}")
            return 1
        report = bcmend.report(model)
    same_output, same_records = torch.equal(eager.logits, mended.logits), eager_records == records
    count = plural(len(graphs), "graph")
    print(f"\nMended, compiled with fullgraph=True: {count}. What was mended:")
    _print_places(
        f"{Path(site.file).name}:{site.line}: {site.kind} mended: {site.lowering}"
        for site in report.mended
    )
    print("\nMended beside eager execution")
    print(f"  output equal, bit for bit: {'yes' if same_output else 'no'}")
    print(f"  log records equal: {'yes' if same_records else 'no'}. The mended call has logged:")
    print("\n".join(f"    {each}" for each in records))
    _print_times(model, inputs)
    return 0 if same_output and same_records and len(graphs) == 1 else 1


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
    graphs, breaks = plural(stock.graph_count, "graph"), plural(stock.graph_break_count, "break")
    print(f"Stock torch.compile: {graphs}, {breaks}. Where and why it stops first:")
    frames = [(found.user_stack[-1], found.reason) for found in stock.break_reasons]
    _print_places(
        f"{Path(frame.filename).name}:{frame.lineno}: {reason.strip().splitlines()[0]}"
        for frame, reason in frames
    )


def _print_places(places: Iterable[str]) -> None:
    """Print each place once, with how often it was given."""
    for place, number in Counter(places).items():
        print(f"  {place}" + (f" ({number} times)" if number > 1 else ""))


def _print_times(model: torch.nn.Module, inputs: dict[str, Any]) -> None:
    """Print what calls take that Inductor has compiled, beside those of eager execution."""
    try:
        with steps.shown("timing calls"):
            found = bcmend.bench(model, **inputs, seconds=_SECONDS)
    except bcmend.BcmendError as error:
        print(f"\nTimes were not measured: {error}")
        return
    print("\nTimes, compiled by Inductor (the first call compiles)")
    print("\n".join(f"  {line}" for line in [*_times(found), found.verdict]))


def _times(found: Benchmark) -> list[str]:
    sides = {"eager execution": "eager", "stock torch.compile": "stock", "mended": "mended"}
    rows = [("", "first call", "later call", "speed beside eager")]
    for name, side in sides.items():
        taken: Measured = getattr(found, side)
        if taken.later is None or taken.first_cold is None:
            rows.append((name, taken.raised or "not measured", "", ""))
            continue
        ratio = found.ratio("eager", side)
        first, later = f"{taken.first_cold:.3g} s", f"{1000 * taken.later.median:.3g} ms"
        rows.append((name, first, later, "" if ratio is None else f"{ratio:.2f} times"))
    return aligned(rows)


@contextmanager
def _log_records(transformers: Any) -> Iterator[list[str]]:
    """Collect what transformers logs, and drop what Dynamo does."""
    records: list[str] = []
    collector = logging.Handler()
    collector.emit = lambda record: records.append(  # type: ignore[method-assign]
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
            yield records
    finally:
        logger.handlers[:] = handlers
        dynamo.setLevel(level)
