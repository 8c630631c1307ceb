"""Models of sound and of series of numbers."""

from __future__ import annotations

from typing import Any, Final

import torch

from corpus.configured.case import Case, case
from corpus.configured.sizes import HEADS, HIDDEN, WIDTH, Inputs

_WAVE: Final[dict[str, Any]] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "conv_dim": (WIDTH, WIDTH, WIDTH),
    "conv_stride": (5, 2, 2),
    "conv_kernel": (10, 3, 3),
    "num_conv_pos_embeddings": 8,
    "num_conv_pos_embedding_groups": 2,
    "num_feat_extract_layers": 3,
    "layerdrop": 0.0,
    "vocab_size": 32,
}


def _wave() -> Inputs:
    return {"input_values": torch.randn(2, 600)}


SOUNDS: Final[tuple[Case, ...]] = (
    case("Wav2Vec2ForCTC", "Wav2Vec2Config", _WAVE, _wave),
    case("WavLMModel", "WavLMConfig", _WAVE, _wave),
    case("SEWModel", "SEWConfig", _WAVE | {"squeeze_factor": 2}, _wave),
    case(
        "ASTModel",
        "ASTConfig",
        {
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "intermediate_size": HIDDEN,
            "max_length": 64,
            "num_mel_bins": 32,
            "patch_size": 16,
        },
        lambda: {"input_values": torch.randn(2, 64, 32)},
    ),
    case(
        "DacModel",
        "DacConfig",
        {
            "encoder_hidden_size": 8,
            "downsampling_ratios": [2, 4],
            "decoder_hidden_size": 32,
            "upsampling_ratios": [4, 2],
            "n_codebooks": 2,
            "codebook_size": 32,
            "codebook_dim": 4,
            "hidden_size": 32,
        },
        lambda: {"input_values": torch.randn(1, 1, 128)},
    ),
    case(
        "UnivNetModel",
        "UnivNetConfig",
        {
            "model_in_channels": 8,
            "model_hidden_channels": 8,
            "num_mel_bins": 16,
            "resblock_kernel_sizes": [3],
            "resblock_stride_sizes": [4],
            "resblock_dilation_sizes": [[1, 3]],
            "kernel_predictor_hidden_channels": 8,
        },
        lambda: {"input_features": torch.randn(1, 12, 16), "noise_sequence": torch.randn(1, 12, 8)},
    ),
    case(
        "SpeechT5HifiGan",
        "SpeechT5HifiGanConfig",
        {
            "model_in_dim": 16,
            "upsample_initial_channel": 16,
            "upsample_rates": [4, 4],
            "upsample_kernel_sizes": [8, 8],
        },
        lambda: {"spectrogram": torch.randn(2, 12, 16)},
    ),
    case(
        "PatchTSTModel",
        "PatchTSTConfig",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "ffn_dim": HIDDEN,
            "do_mask_input": False,
        },
        lambda: {"past_values": torch.randn(2, 32, 3)},
    ),
    case(
        "PatchTSMixerModel",
        "PatchTSMixerConfig",
        {
            "num_input_channels": 3,
            "context_length": 32,
            "patch_length": 4,
            "patch_stride": 4,
            "d_model": 16,
            "num_layers": 2,
        },
        lambda: {"past_values": torch.randn(2, 32, 3)},
    ),
)
