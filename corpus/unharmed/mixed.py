"""Models of texts and images together."""

from __future__ import annotations

from typing import Any, Final

import torch

from corpus.configured.case import Case, case
from corpus.configured.sizes import (
    HEADS,
    HIDDEN,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    Inputs,
    ids,
    mask,
    text_inputs,
)

_SIDE: Final = 32
_IMAGE: Final = 3
_LAYERS: Final[dict[str, Any]] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
}
_READER: Final[dict[str, Any]] = _LAYERS | {
    "vocab_size": VOCABULARY,
    "max_position_embeddings": POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_VIEWER: Final[dict[str, Any]] = _LAYERS | {"image_size": _SIDE, "patch_size": 8}
_BOTH: Final[dict[str, Any]] = {
    "text_config": _READER,
    "vision_config": _VIEWER,
    "projection_dim": WIDTH,
}


def _both() -> Inputs:
    return text_inputs() | {"pixel_values": torch.randn(2, 3, _SIDE, _SIDE)}


def _image_in_text() -> Inputs:
    """An image has a token for each of its patches, in front of the text."""
    patches = torch.full((2, (_SIDE // 8) ** 2), _IMAGE)
    return {
        "input_ids": torch.cat([patches, ids(8)], dim=1),
        "attention_mask": mask(patches.shape[1] + 8),
        "pixel_values": torch.randn(2, 3, _SIDE, _SIDE),
    }


def _regions() -> Inputs:
    return text_inputs() | {"visual_embeds": torch.randn(2, 4, WIDTH)}


MIXED: Final[tuple[Case, ...]] = (
    case("CLIPModel", "CLIPConfig", _BOTH, _both),
    case("SiglipModel", "SiglipConfig", _BOTH, _both),
    case("OwlViTModel", "OwlViTConfig", _BOTH, _both),
    case("BlipModel", "BlipConfig", _BOTH, _both),
    case(
        "GroupViTModel",
        "GroupViTConfig",
        {
            "text_config": _READER,
            "vision_config": {
                "hidden_size": WIDTH,
                "depths": [1, 1],
                "num_group_tokens": [4, 0],
                "num_output_groups": [4, 0],
                "num_attention_heads": HEADS,
                "intermediate_size": HIDDEN,
                "image_size": _SIDE,
                "patch_size": 8,
            },
            "projection_dim": 16,
            "projection_intermediate_dim": 32,
        },
        _both,
    ),
    case("GitModel", "GitConfig", _READER | {"vision_config": _VIEWER}, _both),
    case(
        "VisualBertModel", "VisualBertConfig", _READER | {"visual_embedding_dim": WIDTH}, _regions
    ),
    case(
        "LxmertModel",
        "LxmertConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_attention_heads": HEADS,
            "intermediate_size": HIDDEN,
            "l_layers": 2,
            "x_layers": 1,
            "r_layers": 1,
            "visual_feat_dim": 16,
            "max_position_embeddings": POSITIONS,
        },
        lambda: (
            text_inputs()
            | {"visual_feats": torch.randn(2, 4, 16), "visual_pos": torch.rand(2, 4, 4)}
        ),
    ),
    case(
        "LlavaForConditionalGeneration",
        "LlavaConfig",
        {
            "text_config": _READER | {"model_type": "llama"},
            "vision_config": _VIEWER | {"model_type": "clip_vision_model"},
            "image_token_index": _IMAGE,
        },
        _image_in_text,
    ),
)
