"""Decoder-only language models: BioGPT, Pegasus and Phi-4 (Phi-3's architecture)."""

from __future__ import annotations

import transformers
from torch.nn import Module

from corpus.models.case import Inputs, ModelCase
from corpus.models.sizes import (
    HEADS,
    HIDDEN,
    LAYERS,
    POSITIONS,
    VOCABULARY,
    WIDTH,
    token_ids,
    transformer_sizes,
)


def build_biogpt() -> tuple[Module, Inputs]:
    """BioGPT, which warns about the key-value cache it was not given."""
    configuration = transformers.BioGptConfig(
        **transformer_sizes(), max_position_embeddings=POSITIONS
    )
    return transformers.BioGptForCausalLM(configuration), {"input_ids": token_ids()}


def build_pegasus() -> tuple[Module, Inputs]:
    """The decoder half of Pegasus as a causal language model."""
    configuration = transformers.PegasusConfig(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        decoder_layers=LAYERS,
        decoder_attention_heads=HEADS,
        decoder_ffn_dim=HIDDEN,
        max_position_embeddings=POSITIONS,
    )
    return transformers.PegasusForCausalLM(configuration), {"input_ids": token_ids()}


def build_phi4() -> tuple[Module, Inputs]:
    """Phi-4's layers with the long rotary embedding, which picks its factors by sequence length."""
    rotary_frequencies = WIDTH // HEADS // 2
    configuration = transformers.Phi3Config(
        **transformer_sizes(),
        pad_token_id=0,
        num_key_value_heads=HEADS,
        max_position_embeddings=POSITIONS,
        original_max_position_embeddings=POSITIONS // 4,
        rope_scaling={
            "type": "longrope",
            "short_factor": [1.0] * rotary_frequencies,
            "long_factor": [2.0] * rotary_frequencies,
        },
    )
    return transformers.Phi3ForCausalLM(configuration), {"input_ids": token_ids()}


DECODER_CASES = (
    ModelCase("biogpt", build_biogpt, stock_breaks=2, required_breaks=0),
    ModelCase("pegasus", build_pegasus, stock_breaks=2, required_breaks=0),
    ModelCase("phi4", build_phi4, stock_breaks=5, required_breaks=0),
)
