"""What measuring a model that is mended as it should be gives."""

from __future__ import annotations

from corpus.models import Measurement

__all__ = ["GOOD"]

GOOD = Measurement(
    name="example",
    backend="counting",
    stock_graphs=4,
    mended_graphs=1,
    stock_error=None,
    mended_error=None,
    fullgraph_error=None,
    output_differences=(),
    line_differences=(),
    stock_output_differences=(),
    stock_line_differences=(),
    lines=1,
    mended_sites=3,
    refused_sites=0,
    patch_seconds=0.1,
    stock_seconds=2.0,
    mended_seconds=1.0,
)
