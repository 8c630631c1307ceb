"""Models that join text to another modality: Grounding DINO (images) and CLAP (sound)."""

from __future__ import annotations

import torch
import transformers
from torch.nn import Module

from corpus.models.case import Inputs, ModelCase
from corpus.models.sizes import (
    HEADS,
    HIDDEN,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    encoder_decoder_sizes,
    token_ids,
    transformer_sizes,
)

SPECTROGRAM_FRAMES = 1001
FUSED_CROPS = 4


def build_grounding_dino() -> tuple[Module, Inputs]:
    """Grounding DINO over a two-stage Swin backbone and a Bert text encoder."""
    side = 32
    backbone = transformers.SwinConfig(
        image_size=side,
        patch_size=4,
        embed_dim=16,
        depths=[1, 1],
        num_heads=[1, 1],
        window_size=2,
        out_features=["stage1", "stage2"],
    )
    text = transformers.BertConfig(**transformer_sizes(), max_position_embeddings=POSITIONS)
    sizes = encoder_decoder_sizes() | {"encoder_layers": 1, "decoder_layers": 1}
    del sizes["vocab_size"]
    configuration = transformers.GroundingDinoConfig(
        backbone_config=backbone,
        text_config=text,
        **sizes,
        num_queries=4,
        num_feature_levels=2,
        use_timm_backbone=False,
    )
    model = transformers.GroundingDinoModel(configuration)
    return model, {"pixel_values": torch.randn(1, 3, side, side), "input_ids": token_ids()}


def build_clap() -> tuple[Module, Inputs]:
    """CLAP with its fusion of long recordings; the sound tower keeps its full size."""
    configuration = transformers.ClapConfig()
    text = configuration.text_config
    text.vocab_size = VOCABULARY
    text.hidden_size = WIDTH
    text.num_hidden_layers = 1
    text.num_attention_heads = HEADS
    text.intermediate_size = HIDDEN
    configuration.projection_dim = WIDTH // 2
    configuration.audio_config.enable_fusion = True
    model = transformers.ClapModel(configuration)
    bands = configuration.audio_config.num_mel_bins
    ids = token_ids()
    return model, {
        "input_ids": ids,
        "attention_mask": torch.ones_like(ids),
        "input_features": torch.randn(1, FUSED_CROPS, SPECTROGRAM_FRAMES, bands),
        "is_longer": torch.ones(1, 1, dtype=torch.bool),
    }


MULTIMODAL_CASES = (
    ModelCase("grounding_dino", build_grounding_dino, stock_breaks=16, required_breaks=0),
    ModelCase("clap", build_clap, stock_breaks=2, required_breaks=0),
)
