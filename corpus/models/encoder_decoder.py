"""Encoder-decoder models: T5, Whisper and the Bart family.

Their breaks come from clamping that is guarded by `isinf(...).any()` in half precision, from
warnings about the key-value cache, and from layer drop.
"""

from __future__ import annotations

import torch
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
    encoder_decoder_sizes,
    token_ids,
)


def build_t5() -> tuple[Module, Inputs]:
    """T5 with a language-model head, reading and writing eight tokens."""
    configuration = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=WIDTH,
        d_ff=HIDDEN,
        num_layers=LAYERS,
        num_heads=HEADS,
        d_kv=WIDTH // HEADS,
    )
    model = transformers.T5ForConditionalGeneration(configuration)
    return model, {"input_ids": token_ids(), "decoder_input_ids": token_ids()}


def build_whisper() -> tuple[Module, Inputs]:
    """Whisper on 128 frames of an 80-band spectrogram."""
    bands = 80
    configuration = transformers.WhisperConfig(
        **encoder_decoder_sizes(),
        num_mel_bins=bands,
        max_source_positions=POSITIONS,
        max_target_positions=POSITIONS,
        decoder_start_token_id=2,
        pad_token_id=0,
        bos_token_id=1,
        eos_token_id=2,
    )
    model = transformers.WhisperForConditionalGeneration(configuration)
    spectrogram = torch.randn(1, bands, 2 * POSITIONS)
    return model, {"input_features": spectrogram, "decoder_input_ids": token_ids()}


def build_blenderbot() -> tuple[Module, Inputs]:
    """Blenderbot with its language-model head."""
    configuration = transformers.BlenderbotConfig(
        **encoder_decoder_sizes(), max_position_embeddings=POSITIONS
    )
    model = transformers.BlenderbotForConditionalGeneration(configuration)
    return model, {"input_ids": token_ids(), "decoder_input_ids": token_ids()}


def build_marian() -> tuple[Module, Inputs]:
    """The Marian translation model."""
    configuration = transformers.MarianConfig(
        **encoder_decoder_sizes(),
        max_position_embeddings=POSITIONS,
        decoder_start_token_id=2,
        pad_token_id=1,
    )
    model = transformers.MarianMTModel(configuration)
    return model, {"input_ids": token_ids(lowest=3), "decoder_input_ids": token_ids(lowest=3)}


def _build_bart(dtype: torch.dtype) -> tuple[Module, Inputs]:
    configuration = transformers.BartConfig(
        **encoder_decoder_sizes(), max_position_embeddings=POSITIONS
    )
    model = transformers.BartForConditionalGeneration(configuration)
    source = token_ids(lowest=3)
    return model.to(dtype), {
        "input_ids": source,
        "attention_mask": torch.ones_like(source),
        "decoder_input_ids": token_ids(1, lowest=3),
    }


def build_bart() -> tuple[Module, Inputs]:
    """Bart in single precision, at the first step of decoding."""
    return _build_bart(torch.float32)


def build_bart_fp16() -> tuple[Module, Inputs]:
    """Bart in half precision, where every encoder layer asks whether to clamp."""
    return _build_bart(torch.float16)


ENCODER_DECODER_CASES = (
    ModelCase("t5", build_t5, stock_breaks=3, required_breaks=0),
    ModelCase("whisper", build_whisper, stock_breaks=3, required_breaks=0),
    ModelCase("blenderbot", build_blenderbot, stock_breaks=3, required_breaks=0),
    ModelCase("marian", build_marian, stock_breaks=3, required_breaks=0),
    ModelCase("bart", build_bart, stock_breaks=3, required_breaks=0),
    ModelCase("bart_fp16", build_bart_fp16, stock_breaks=7, required_breaks=0),
)
