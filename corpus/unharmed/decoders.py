"""Models that continue a text, and pairs of an encoder and a decoder."""

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
    decoder_sizes,
    pair_inputs,
    pair_sizes,
    t5_sizes,
    text_inputs,
)

_LLAMA: Final[dict[str, Any]] = decoder_sizes() | {
    "num_key_value_heads": 1,
    "head_dim": WIDTH // HEADS,
    "max_position_embeddings": POSITIONS,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT: Final[dict[str, Any]] = {
    "vocab_size": VOCABULARY,
    "n_embd": WIDTH,
    "n_layer": 2,
    "n_head": HEADS,
    "n_positions": POSITIONS,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
#: With a cache they warn that its form is an old one, and stock breaks the graph there.
_UNCACHED: Final = {"use_cache": False}

DECODERS: Final[tuple[Case, ...]] = (
    case("LlamaForCausalLM", "LlamaConfig", _LLAMA, text_inputs),
    case("GemmaForCausalLM", "GemmaConfig", _LLAMA, text_inputs),
    case("Qwen3ForCausalLM", "Qwen3Config", _LLAMA, text_inputs),
    case("Phi3ForCausalLM", "Phi3Config", _LLAMA, text_inputs),
    case("CohereForCausalLM", "CohereConfig", _LLAMA, text_inputs),
    case("Olmo2ForCausalLM", "Olmo2Config", _LLAMA, text_inputs),
    case("GPTNeoXForCausalLM", "GPTNeoXConfig", _LLAMA, text_inputs),
    case("GPT2LMHeadModel", "GPT2Config", _GPT, text_inputs),
    case("GPTBigCodeForCausalLM", "GPTBigCodeConfig", _GPT, text_inputs),
    case("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", _GPT, text_inputs),
    case("CTRLLMHeadModel", "CTRLConfig", _GPT | {"dff": HIDDEN}, text_inputs),
    case(
        "BloomForCausalLM",
        "BloomConfig",
        {"vocab_size": VOCABULARY, "hidden_size": WIDTH, "n_layer": 2, "n_head": HEADS},
        text_inputs,
    ),
    case("FalconForCausalLM", "FalconConfig", decoder_sizes() | {"alibi": True}, text_inputs),
    case(
        "MptForCausalLM",
        "MptConfig",
        {
            "vocab_size": VOCABULARY,
            "d_model": WIDTH,
            "n_layers": 2,
            "n_heads": HEADS,
            "max_seq_len": POSITIONS,
        },
        text_inputs,
    ),
    case(
        "OPTForCausalLM",
        "OPTConfig",
        {
            "vocab_size": VOCABULARY,
            "hidden_size": WIDTH,
            "word_embed_proj_dim": WIDTH,
            "num_hidden_layers": 2,
            "num_attention_heads": HEADS,
            "ffn_dim": HIDDEN,
            "max_position_embeddings": POSITIONS,
        },
        text_inputs,
    ),
    case("T5EncoderModel", "T5Config", t5_sizes(), lambda: text_inputs(0)),
    case("MvpModel", "MvpConfig", pair_sizes(), pair_inputs),
    case(
        "DecisionTransformerModel",
        "DecisionTransformerConfig",
        {
            "state_dim": 5,
            "act_dim": 3,
            "hidden_size": WIDTH,
            "n_layer": 2,
            "n_head": HEADS,
            "max_ep_len": 32,
        },
        lambda: {
            "states": torch.randn(2, 6, 5),
            "actions": torch.randn(2, 6, 3),
            "rewards": torch.randn(2, 6, 1),
            "returns_to_go": torch.randn(2, 6, 1),
            "timesteps": torch.arange(6).expand(2, 6),
            "attention_mask": torch.ones(2, 6, dtype=torch.long),
        },
    ),
    case(
        "MT5ForConditionalGeneration", "MT5Config", t5_sizes() | _UNCACHED, lambda: pair_inputs(0)
    ),
    case("MBartModel", "MBartConfig", pair_sizes() | _UNCACHED, pair_inputs),
    case("PLBartModel", "PLBartConfig", pair_sizes() | _UNCACHED, pair_inputs),
    case("BlenderbotSmallModel", "BlenderbotSmallConfig", pair_sizes() | _UNCACHED, pair_inputs),
)
