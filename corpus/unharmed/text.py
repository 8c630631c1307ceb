"""Models that read a text."""

from __future__ import annotations

from typing import Any, Final

import torch

from corpus.configured.case import Case, case
from corpus.configured.sizes import (
    HEADS,
    HIDDEN,
    LENGTH,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    Inputs,
    ids,
    mask,
    text_inputs,
)

_BERT: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "hidden_size": WIDTH,
    "num_hidden_layers": 2,
    "num_attention_heads": HEADS,
    "intermediate_size": HIDDEN,
    "max_position_embeddings": POSITIONS,
}


def _boxes() -> Inputs:
    corners = torch.randint(0, 400, (2, LENGTH, 2))
    return text_inputs(0) | {"bbox": torch.cat([corners, corners + 100], dim=-1)}


def _bytes() -> Inputs:
    return {"input_ids": torch.randint(1, 255, (2, POSITIONS)), "attention_mask": mask(POSITIONS)}


TEXT: Final[tuple[Case, ...]] = (
    case("BertModel", "BertConfig", _BERT, text_inputs),
    case("RobertaForMaskedLM", "RobertaConfig", _BERT, text_inputs),
    case("ElectraForPreTraining", "ElectraConfig", _BERT | {"embedding_size": 16}, text_inputs),
    case("AlbertModel", "AlbertConfig", _BERT | {"embedding_size": 16}, text_inputs),
    case("RoFormerModel", "RoFormerConfig", _BERT | {"embedding_size": WIDTH}, text_inputs),
    case("SqueezeBertModel", "SqueezeBertConfig", _BERT | {"embedding_size": WIDTH}, text_inputs),
    case("ConvBertModel", "ConvBertConfig", _BERT | {"embedding_size": 16}, text_inputs),
    case("EsmModel", "EsmConfig", _BERT | {"pad_token_id": 1, "mask_token_id": 3}, text_inputs),
    case(
        "DebertaV2Model",
        "DebertaV2Config",
        _BERT | {"pos_att_type": ["c2p", "p2c"], "relative_attention": True, "position_buckets": 8},
        text_inputs,
    ),
    case("BigBirdModel", "BigBirdConfig", _BERT | {"attention_type": "original_full"}, text_inputs),
    case(
        "ModernBertModel",
        "ModernBertConfig",
        _BERT | {"pad_token_id": 0, "reference_compile": False},
        text_inputs,
    ),
    case("FNetModel", "FNetConfig", _BERT, lambda: {"input_ids": ids()}),
    case("LayoutLMModel", "LayoutLMConfig", _BERT, _boxes),
    case(
        "CanineModel",
        "CanineConfig",
        _BERT
        | {
            "local_transformer_stride": 16,
            "num_hash_buckets": 64,
            "max_position_embeddings": POSITIONS,
        },
        _bytes,
    ),
    case(
        "MobileBertModel",
        "MobileBertConfig",
        _BERT | {"embedding_size": 16, "intra_bottleneck_size": 16, "true_hidden_size": 16},
        text_inputs,
    ),
    case(
        "DistilBertModel",
        "DistilBertConfig",
        {
            "vocab_size": VOCABULARY,
            "dim": WIDTH,
            "hidden_dim": HIDDEN,
            "n_layers": 2,
            "n_heads": HEADS,
            "max_position_embeddings": POSITIONS,
        },
        text_inputs,
    ),
    case(
        "XLNetModel",
        "XLNetConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "n_layer": 2,
            "n_head": HEADS,
            "d_inner": HIDDEN,
        },
        text_inputs,
    ),
)
