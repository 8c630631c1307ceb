"""Models of text: the Bart family, T5's, long documents, and a mixture of experts."""

from __future__ import annotations

from typing import Any, Final

import torch

from corpus.configured.case import Case, case
from corpus.configured.sizes import (
    DROPOUT,
    HEADS,
    HIDDEN,
    LAYER_DROP,
    LAYERS,
    LENGTH,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    Inputs,
    decoder_sizes,
    ids,
    mask,
    pair_inputs,
    pair_sizes,
    t5_sizes,
    text_inputs,
)

_LONG: Final = 64


def _boxes() -> Inputs:
    corners = torch.rand(2, LENGTH, 2) * 0.5
    return {
        **pair_inputs(0),
        "bbox": torch.cat([corners, corners + 0.25], dim=-1),
        "pixel_values": torch.randn(2, 3, 32, 32),
    }


def _experts() -> dict[str, Any]:
    text = decoder_sizes() | {
        "num_key_value_heads": 1,
        "head_dim": WIDTH // HEADS,
        "linear_key_head_dim": 8,
        "linear_value_head_dim": 8,
        "linear_num_key_heads": 2,
        "linear_num_value_heads": 2,
        "moe_intermediate_size": HIDDEN,
        "shared_expert_intermediate_size": HIDDEN,
        "num_experts_per_tok": 2,
        "num_experts": 4,
        "max_position_embeddings": POSITIONS,
        "layer_types": ["linear_attention", "full_attention"],
        "rope_parameters": {
            "rope_type": "default",
            "rope_theta": 10000.0,
            "partial_rotary_factor": 1.0,
            "mrope_section": [4, 2, 2],
            "mrope_interleaved": True,
        },
    }
    vision = {
        "depth": 1,
        "hidden_size": WIDTH,
        "intermediate_size": HIDDEN,
        "num_heads": HEADS,
        "out_hidden_size": WIDTH,
        "num_position_embeddings": 16,
    }
    return {"text_config": text, "vision_config": vision}


def _global_start() -> Inputs:
    start = torch.zeros(2, _LONG, dtype=torch.long)
    start[:, 0] = 1
    return {
        "input_ids": ids(_LONG, padding=1),
        "attention_mask": mask(_LONG),
        "global_attention_mask": start,
    }


TEXT: Final[tuple[Case, ...]] = (
    case("BartModel", "BartConfig", pair_sizes(), pair_inputs),
    case("M2M100Model", "M2M100Config", pair_sizes() | {"scale_embedding": 1}, pair_inputs),
    case(
        "OPTModel",
        "OPTConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "word_embed_proj_dim": WIDTH,
            "num_hidden_layers": LAYERS,
            "num_attention_heads": HEADS,
            "ffn_dim": HIDDEN,
            "max_position_embeddings": POSITIONS,
            "layerdrop": LAYER_DROP,
            "dropout": DROPOUT,
            "attention_dropout": DROPOUT,
        },
        text_inputs,
    ),
    case(
        "LongformerModel",
        "LongformerConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "intermediate_size": HIDDEN,
            "max_position_embeddings": 2 * _LONG,
            "attention_window": 8,
        },
        _global_start,
    ),
    case(
        "LEDModel",
        "LEDConfig",
        pair_sizes()
        | {
            "attention_window": 8,
            "max_encoder_position_embeddings": 2 * _LONG,
            "max_decoder_position_embeddings": POSITIONS,
        },
        lambda: _global_start() | {"decoder_input_ids": ids(8)},
    ),
    case(
        "Qwen3_5MoeModel",
        "Qwen3_5MoeConfig",
        _experts(),
        lambda: text_inputs(0),
    ),
    case(
        "UdopModel",
        "UdopConfig",
        t5_sizes() | {"image_size": 32, "patch_size": 16},
        _boxes,
        eval="an index of tuples of tensors, then paddings as long as the data say",
        train="an index of tuples of tensors, then paddings as long as the data say",
    ),
    case(
        "SwitchTransformersModel",
        "SwitchTransformersConfig",
        t5_sizes()
        | {
            "num_experts": 4,
            "expert_capacity": 8,
            "num_sparse_encoder_layers": 1,
            "num_sparse_decoder_layers": 1,
        },
        lambda: pair_inputs(0),
    ),
    case(
        "LongT5Model",
        "LongT5Config",
        t5_sizes()
        | {
            "local_radius": 3,
            "global_block_size": 4,
            "encoder_attention_type": "transient-global",
        },
        lambda: pair_inputs(0),
    ),
    case(
        "FlaubertModel",
        "FlaubertConfig",
        {
            "vocab_size": VOCABULARY,
            "emb_dim": WIDTH,
            "n_layers": LAYERS,
            "n_heads": HEADS,
            "max_position_embeddings": POSITIONS,
            "layerdrop": LAYER_DROP,
            "dropout": DROPOUT,
            "attention_dropout": DROPOUT,
        },
        lambda: text_inputs(2),
    ),
    case(
        "FSMTModel",
        "FSMTConfig",
        pair_sizes() | {"src_vocab_size": VOCABULARY, "tgt_vocab_size": VOCABULARY},
        pair_inputs,
        train="a layer that is dropped leaves other strides than one that is not: too deep",
    ),
    case(
        "BigBirdPegasusModel",
        "BigBirdPegasusConfig",
        pair_sizes()
        | {
            "attention_type": "block_sparse",
            "block_size": 4,
            "num_random_blocks": 2,
            "max_position_embeddings": 2 * _LONG,
        },
        lambda: {
            "input_ids": ids(_LONG, padding=0),
            "attention_mask": mask(_LONG),
            "decoder_input_ids": ids(8),
        },
        train="a layer that may be dropped seeds and draws from numpy's generator",
    ),
)
