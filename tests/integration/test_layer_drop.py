"""Layer drop in training, in models of Hugging Face: one graph, and the same training step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from torch import Tensor

import bcmend

transformers = pytest.importorskip("transformers")

SEEDS = range(4)
DROP: dict[str, Any] = {"dropout": 0.1, "attention_dropout": 0.2}
SMALL: dict[str, Any] = {
    "vocab_size": 50,
    "d_model": 16,
    "encoder_layerdrop": 0.5,
    "decoder_layerdrop": 0.5,
    **{f"{side}_layers": 2 for side in ("encoder", "decoder")},
    **{f"{side}_attention_heads": 2 for side in ("encoder", "decoder")},
    **{f"{side}_ffn_dim": 32 for side in ("encoder", "decoder")},
    "activation_dropout": 0.1,
}


pytestmark = pytest.mark.usefixtures("dynamo_begun_anew")


def _bart(attention: str) -> tuple[Any, dict[str, Any]]:
    config = transformers.BartConfig(
        **SMALL, **DROP, max_position_embeddings=32, attn_implementation=attention
    )
    tokens, labels = torch.randint(3, 50, (2, 7)), torch.randint(3, 50, (2, 5))
    model = transformers.BartForConditionalGeneration(config)
    return model, {"input_ids": tokens, "labels": labels}


def _speech_to_text(attention: str) -> tuple[Any, dict[str, Any]]:
    config = transformers.Speech2TextConfig(
        **SMALL,
        **DROP,
        max_source_positions=64,
        max_target_positions=32,
        input_feat_per_channel=8,
        conv_channels=16,
        attn_implementation=attention,
    )
    sound, labels = torch.randn(2, 20, 8), torch.randint(3, 50, (2, 5))
    model = transformers.Speech2TextForConditionalGeneration(config)
    return model, {"input_features": sound, "labels": labels, "use_cache": False}


def _opt(attention: str) -> tuple[Any, dict[str, Any]]:
    config = transformers.OPTConfig(
        **DROP,
        vocab_size=50,
        hidden_size=16,
        num_hidden_layers=3,
        ffn_dim=32,
        num_attention_heads=2,
        max_position_embeddings=32,
        word_embed_proj_dim=16,
        layerdrop=0.5,
        attn_implementation=attention,
    )
    tokens = torch.randint(3, 50, (2, 7))
    model = transformers.OPTForCausalLM(config)
    return model, {"input_ids": tokens, "labels": tokens, "use_cache": False}


def _m2m100(attention: str) -> tuple[Any, dict[str, Any]]:
    config = transformers.M2M100Config(
        **SMALL, **DROP, max_position_embeddings=32, attn_implementation=attention
    )
    tokens, labels = torch.randint(3, 50, (2, 7)), torch.randint(3, 50, (2, 5))
    model = transformers.M2M100ForConditionalGeneration(config)
    return model, {"input_ids": tokens, "labels": labels, "use_cache": False}


def _of_sound(family: str) -> Build:
    def build(attention: str) -> tuple[Any, dict[str, Any]]:
        config = getattr(transformers, f"{family}Config")(
            vocab_size=50,
            hidden_size=16,
            num_hidden_layers=3,
            num_attention_heads=2,
            intermediate_size=32,
            layerdrop=0.5,
            conv_dim=(8, 8),
            conv_stride=(5, 2),
            conv_kernel=(10, 3),
            num_feat_extract_layers=2,
            num_conv_pos_embeddings=8,
            num_conv_pos_embedding_groups=2,
            mask_time_prob=0.0,
            attn_implementation=attention,
        )
        model = getattr(transformers, f"{family}ForSequenceClassification")(config)
        model.freeze_feature_encoder()
        return model, {"input_values": torch.randn(2, 400), "labels": torch.tensor([0, 1])}

    build.__name__ = family
    return build


Build = Callable[[str], tuple[Any, dict[str, Any]]]


@dataclass(frozen=True)
class Step:
    loss: Tensor
    logits: Tensor
    gradients: dict[str, Tensor]
    random_state: Tensor


def _step(model: Any, call: Any, inputs: dict[str, Any], seed: int) -> Step:
    model.zero_grad(set_to_none=True)
    torch.manual_seed(seed)
    output = call(**inputs)
    output.loss.backward()
    gradients = {
        name: torch.zeros_like(each) if each.grad is None else each.grad.clone()
        for name, each in model.named_parameters()
    }
    state = torch.get_rng_state()
    return Step(output.loss.detach(), output.logits.detach(), gradients, state)


class _Counting:
    def __init__(self) -> None:
        self.graphs = 0
        self._inner = torch._dynamo.lookup_backend("aot_eager")

    def __call__(self, graph: Any, inputs: Any) -> Any:
        self.graphs += 1
        return self._inner(graph, inputs)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("build", "attention", "more"),
    [
        (_bart, "eager", {}),
        (_bart, "sdpa", {}),
        (_bart, "sdpa", {"output_hidden_states": True}),
        (_speech_to_text, "eager", {}),
        (_opt, "eager", {"output_hidden_states": True}),
        (_opt, "sdpa", {}),
        (_m2m100, "eager", {}),
        (_m2m100, "sdpa", {"output_hidden_states": True}),
        (_of_sound("Wav2Vec2"), "eager", {}),
        (_of_sound("Wav2Vec2"), "sdpa", {"output_hidden_states": True}),
        (_of_sound("Hubert"), "eager", {}),
    ],
)
def test_a_training_step_is_one_graph(build: Build, attention: str, more: dict[str, Any]) -> None:
    torch.manual_seed(0)
    model, inputs = build(attention)
    model.train()
    inputs |= more
    expected = [_step(model, model, inputs, seed) for seed in SEEDS]
    backend = _Counting()
    compiled = torch.compile(bcmend.patch(model), backend=backend, fullgraph=True)
    for seed, wanted in zip(SEEDS, expected, strict=True):
        found = _step(model, compiled, inputs, seed)
        assert torch.equal(found.random_state, wanted.random_state)
        assert torch.equal(found.loss, wanted.loss)
        assert torch.equal(found.logits, wanted.logits)
        for name, gradient in wanted.gradients.items():
            # The back end adds the gradients of a shared embedding in another order than eager.
            torch.testing.assert_close(found.gradients[name], gradient, rtol=1e-5, atol=1e-8)
    assert backend.graphs == 1
    assert sum(site.lowering == "cond" for site in bcmend.report(model).sites) >= 1
