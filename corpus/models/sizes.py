"""The sizes that every small model shares, and token ids drawn from their vocabulary.

They are just large enough for two heads and two layers, so that a whole model compiles in seconds
and still takes every branch that its full-size relative takes.
"""

from __future__ import annotations

import torch
from torch import Tensor

VOCABULARY = 128
WIDTH = 64
HIDDEN = 128
HEADS = 2
LAYERS = 2
POSITIONS = 64


def token_ids(length: int = 8, *, lowest: int = 0) -> Tensor:
    """Random token ids, int64 of shape (1, length); `lowest` keeps clear of the special tokens."""
    return torch.randint(lowest, VOCABULARY, (1, length))


def encoder_decoder_sizes() -> dict[str, int]:
    """The keyword arguments that the Bart family's configurations have in common."""
    return {
        "vocab_size": VOCABULARY,
        "d_model": WIDTH,
        "encoder_layers": LAYERS,
        "decoder_layers": LAYERS,
        "encoder_attention_heads": HEADS,
        "decoder_attention_heads": HEADS,
        "encoder_ffn_dim": HIDDEN,
        "decoder_ffn_dim": HIDDEN,
    }


def transformer_sizes() -> dict[str, int]:
    """The keyword arguments that the Bert family's configurations have in common."""
    return {
        "vocab_size": VOCABULARY,
        "hidden_size": WIDTH,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "intermediate_size": HIDDEN,
    }
