"""The sizes that the small models share, and inputs with real masks: a short row beside a long one.

Dropout and layer drop are on wherever a configuration has them, so that training takes each branch
that they make.
"""

from __future__ import annotations

from typing import Any, Final

import torch
from torch import Tensor

VOCABULARY: Final = 64
WIDTH: Final = 32
HIDDEN: Final = 64
HEADS: Final = 2
LAYERS: Final = 3
POSITIONS: Final = 64
LENGTH: Final = 16
LAYER_DROP: Final = 0.5
DROPOUT: Final = 0.1

Inputs = dict[str, Tensor]


def mask(length: int = LENGTH) -> Tensor:
    """Return the mask of two rows, of which the second one is padded by a quarter."""
    kept = torch.ones(2, length, dtype=torch.long)
    kept[1, length - length // 4 :] = 0
    return kept


def ids(length: int = LENGTH, *, padding: int | None = None) -> Tensor:
    """Return token ids, int64 of shape (2, length), with padding where the mask has zeros."""
    tokens = torch.randint(4, VOCABULARY, (2, length))
    return tokens if padding is None else tokens.masked_fill(mask(length) == 0, padding)


def text_inputs(padding: int = 1) -> Inputs:
    """Return the arguments of a model that has one text."""
    return {"input_ids": ids(padding=padding), "attention_mask": mask()}


def pair_inputs(padding: int = 1) -> Inputs:
    """Return the arguments of a model that has a text to read and one to write."""
    return text_inputs(padding) | {"decoder_input_ids": ids(8)}


def pair_sizes() -> dict[str, Any]:
    """Return what the configurations of the Bart family have in common."""
    return {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": HIDDEN,
        "decoder_ffn_dim": HIDDEN,
        "encoder_layerdrop": LAYER_DROP,
        "decoder_layerdrop": LAYER_DROP,
        "dropout": DROPOUT,
        "attention_dropout": DROPOUT,
        "activation_dropout": DROPOUT,
    }


def t5_sizes() -> dict[str, Any]:
    """Return what the configurations of the T5 family have in common."""
    return {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "d_kv": WIDTH // HEADS,
        "d_ff": HIDDEN,
        "num_layers": 2,
        "num_decoder_layers": 2,
        "num_heads": HEADS,
        "dropout_rate": DROPOUT,
    }


def decoder_sizes() -> dict[str, Any]:
    """Return what the configurations of models that only decode have in common."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": 2,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
        "attention_dropout": DROPOUT,
    }
