"""Encoder-only models of documents: LayoutLMv3 and Longformer."""

from __future__ import annotations

import torch
import transformers
from torch.nn import Module

from corpus.models.case import Inputs, ModelCase
from corpus.models.sizes import token_ids, transformer_sizes

LAYOUTLMV3_POSITIONS = 128
LONGFORMER_POSITIONS = 512


def build_layoutlmv3() -> tuple[Module, Inputs]:
    """LayoutLMv3 on text and boxes alone, where a bounding box out of range is an error."""
    configuration = transformers.LayoutLMv3Config(
        **transformer_sizes(),
        max_position_embeddings=LAYOUTLMV3_POSITIONS,
        max_2d_position_embeddings=1024,
        coordinate_size=8,
        shape_size=16,
        input_size=32,
        patch_size=16,
        visual_embed=False,
    )
    boxes = torch.zeros(1, 8, 4, dtype=torch.long)
    return transformers.LayoutLMv3Model(configuration), {"input_ids": token_ids(), "bbox": boxes}


def build_longformer() -> tuple[Module, Inputs]:
    """Longformer with twenty tokens, which it pads to whole attention windows of eight."""
    configuration = transformers.LongformerConfig(
        **transformer_sizes(), max_position_embeddings=LONGFORMER_POSITIONS, attention_window=8
    )
    return transformers.LongformerModel(configuration), {"input_ids": token_ids(20)}


ENCODER_CASES = (
    ModelCase("layoutlmv3", build_layoutlmv3, stock_breaks=2, required_breaks=0),
    ModelCase("longformer", build_longformer, stock_breaks=5, required_breaks=0),
)
