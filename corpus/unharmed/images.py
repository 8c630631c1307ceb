"""Models that look at images and films."""

from __future__ import annotations

from typing import Any, Final

import torch

from corpus.configured.case import Case, case
from corpus.configured.sizes import HEADS, HIDDEN, WIDTH, Inputs

_SIDE: Final = 32


def _image() -> Inputs:
    return {"pixel_values": torch.randn(2, 3, _SIDE, _SIDE)}


def _larger_image() -> Inputs:
    return {"pixel_values": torch.randn(2, 3, 64, 64)}


def _film() -> Inputs:
    return {"pixel_values": torch.randn(2, 4, 3, _SIDE, _SIDE)}


_VIT: Final[dict[str, Any]] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "image_size": _SIDE,
    "patch_size": 8,
}
_SWIN: Final[dict[str, Any]] = {
    "image_size": _SIDE,
    "patch_size": 4,
    "embed_dim": 16,
    "depths": [2, 1],
    "num_heads": [2, 2],
    "window_size": 4,
}
_STAGES: Final[dict[str, Any]] = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1]}
_PYRAMID: Final[dict[str, Any]] = {
    "depths": [1, 1, 1, 1],
    "hidden_sizes": [8, 8, 16, 16],
    "num_attention_heads": [1, 1, 2, 2],
    "sr_ratios": [4, 2, 1, 1],
}

IMAGES: Final[tuple[Case, ...]] = (
    case("ViTForImageClassification", "ViTConfig", _VIT, _image),
    case("BeitModel", "BeitConfig", _VIT | {"use_relative_position_bias": True}, _image),
    case("Dinov2Model", "Dinov2Config", _VIT, _image),
    case(
        "YolosModel",
        "YolosConfig",
        _VIT | {"image_size": [_SIDE, _SIDE], "num_detection_tokens": 4},
        _image,
    ),
    case(
        "DPTForDepthEstimation",
        "DPTConfig",
        _VIT
        | {
            "num_hidden_layers": 4,
            "backbone_out_indices": [0, 1, 2, 3],
            "neck_hidden_sizes": [8, 8, 16, 16],
            "fusion_hidden_size": 16,
        },
        _image,
    ),
    case("SwinModel", "SwinConfig", _SWIN, _image),
    case(
        "FocalNetModel",
        "FocalNetConfig",
        {
            "image_size": _SIDE,
            "embed_dim": 16,
            "depths": [1, 1],
            "hidden_sizes": [16, 32],
            "focal_levels": [2, 2],
            "focal_windows": [3, 3],
        },
        _image,
    ),
    case("ConvNextV2Model", "ConvNextV2Config", _STAGES, _image),
    case("ResNetForImageClassification", "ResNetConfig", _STAGES | {"embedding_size": 8}, _image),
    case("PoolFormerModel", "PoolFormerConfig", _STAGES, _image),
    case("MobileNetV2Model", "MobileNetV2Config", {"depth_multiplier": 0.25}, _larger_image),
    case(
        "MobileViTModel",
        "MobileViTConfig",
        {
            "image_size": 64,
            "hidden_sizes": [16, 16, 16],
            "neck_hidden_sizes": [8, 8, 8, 16, 16, 16, 32],
            "num_attention_heads": 2,
        },
        _larger_image,
    ),
    case(
        "SegformerForSemanticSegmentation",
        "SegformerConfig",
        _PYRAMID | {"decoder_hidden_size": 16},
        _larger_image,
    ),
    case(
        "LevitModel",
        "LevitConfig",
        {
            "image_size": 64,
            "hidden_sizes": [16, 32, 32],
            "depths": [1, 1, 1],
            "num_attention_heads": [1, 2, 2],
            "key_dim": [8, 8, 8],
        },
        _larger_image,
    ),
    case("VideoMAEModel", "VideoMAEConfig", _VIT | {"num_frames": 4}, _film),
    case("VivitModel", "VivitConfig", {**_VIT, "num_frames": 4, "tubelet_size": [2, 8, 8]}, _film),
)
