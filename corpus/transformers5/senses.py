"""Models of sound and images."""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

from corpus.configured.case import Case, case
from corpus.configured.sizes import (
    DROPOUT,
    HEADS,
    HIDDEN,
    LAYER_DROP,
    LAYERS,
    LENGTH,
    POSITIONS,
    WIDTH,
    Inputs,
    decoder_sizes,
    ids,
    mask,
    pair_sizes,
)

_SAMPLES: Final = 600
_FRAMES: Final = 64
_BANDS: Final = 16


def _wave() -> Inputs:
    return {"input_values": torch.randn(2, _SAMPLES), "attention_mask": mask(_SAMPLES)}


def _wave_sizes() -> dict[str, Any]:
    return {
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "conv_dim": (WIDTH, WIDTH, WIDTH),
        "conv_stride": (5, 2, 2),
        "conv_kernel": (10, 3, 3),
        "num_conv_pos_embeddings": 8,
        "num_conv_pos_embedding_groups": 2,
        "num_feat_extract_layers": 3,
        "layerdrop": LAYER_DROP,
        "hidden_dropout": DROPOUT,
        "attention_dropout": DROPOUT,
        "activation_dropout": DROPOUT,
        "feat_proj_dropout": DROPOUT,
        "mask_time_length": 4,
    }


def _features() -> Tensor:
    return torch.randn(2, _BANDS, _FRAMES)


def _image() -> Inputs:
    kept = torch.ones(2, 32, 32, dtype=torch.long)
    kept[1, :, 24:] = 0
    return {"pixel_values": torch.randn(2, 3, 32, 32), "pixel_mask": kept}


_VOXTRAL: Final[dict[str, Any]] = {
    "audio_config": {
        "model_type": "voxtral_realtime_encoder",
        "vocab_size": 32,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "head_dim": WIDTH // HEADS,
        "num_mel_bins": _BANDS,
        "sliding_window": 16,
        "attention_dropout": DROPOUT,
    },
    "text_config": decoder_sizes()
    | {
        "model_type": "voxtral_realtime_text",
        "num_key_value_heads": 1,
        "head_dim": WIDTH // HEADS,
        "max_position_embeddings": POSITIONS,
    },
    "downsample_factor": 4,
}

SENSES: Final[tuple[Case, ...]] = (
    case("Wav2Vec2Model", "Wav2Vec2Config", _wave_sizes(), _wave),
    case("HubertModel", "HubertConfig", _wave_sizes(), _wave),
    case("SEWModel", "SEWConfig", _wave_sizes() | {"squeeze_factor": 2}, _wave),
    case(
        "Speech2TextModel",
        "Speech2TextConfig",
        pair_sizes()
        | {
            "input_feat_per_channel": _BANDS,
            "conv_channels": WIDTH,
            "max_source_positions": _FRAMES,
            "max_target_positions": POSITIONS,
        },
        lambda: {
            "input_features": _features().transpose(1, 2),
            "attention_mask": mask(_FRAMES),
            "decoder_input_ids": ids(8),
        },
    ),
    case(
        "WhisperModel",
        "WhisperConfig",
        pair_sizes()
        | {
            "num_mel_bins": _BANDS,
            "max_source_positions": _FRAMES // 2,
            "max_target_positions": POSITIONS,
            "pad_token_id": 0,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "decoder_start_token_id": 1,
        },
        lambda: {"input_features": _features(), "decoder_input_ids": ids(8)},
    ),
    case(
        "DetrModel",
        "DetrConfig",
        {key: value for key, value in pair_sizes().items() if key != "vocab_size"}
        | {
            "num_queries": 4,
            "use_timm_backbone": False,
            "backbone_config": {
                "model_type": "resnet",
                "embedding_size": 8,
                "hidden_sizes": [8, 8, 16, 16],
                "depths": [1, 1, 1, 1],
                "out_features": ["stage4"],
            },
        },
        _image,
    ),
    case(
        "EncodecModel",
        "EncodecConfig",
        {
            "hidden_size": 16,
            "num_filters": 4,
            "num_residual_layers": 1,
            "upsampling_ratios": (4, 2),
            "codebook_size": 32,
            "codebook_dim": 16,
            "target_bandwidths": (3.0, 6.0),
            "sampling_rate": 1600,
        },
        lambda: {"input_values": torch.randn(2, 1, 160)},
    ),
    case(
        "VoxtralRealtimeForConditionalGeneration",
        "VoxtralRealtimeConfig",
        _VOXTRAL,
        lambda: {
            "input_ids": ids(LENGTH // 2),
            "attention_mask": torch.ones(2, LENGTH // 2, dtype=torch.long),
            "input_features": _features(),
        },
    ),
)
