"""What is measured on a GPU, each with random weights and the sizes that the published model has.

A program is a module and the arguments of its calls. Those that train are followed by a step of an
optimizer in each call.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import torch
import transformers
from torch import Tensor, nn
from torch.nn import functional

Arguments = dict[str, Tensor]
VOCABULARY: Final = 32128


@dataclass(frozen=True, slots=True)
class Program:
    """One program.

    Attributes:
        name: what the table calls it.
        build: makes the module, on the CPU, in evaluation mode.
        arguments: makes the arguments of call number `n`; all calls have the same shapes.
        dtype: what floating-point weights and arguments are converted to.
        tolerance: the largest difference from eager execution, as a share of the largest number.
        training: whether a call is a step of an optimizer.
    """

    name: str
    build: Callable[[], nn.Module]
    arguments: Callable[[int], Arguments]
    dtype: torch.dtype = torch.float32
    tolerance: float = 1e-3
    training: bool = False


def tokens(number: int, length: int, rows: int = 1) -> Tensor:
    """Token numbers, int64 of shape (rows, length), without the lowest three."""
    drawn = torch.Generator().manual_seed(number)
    return torch.randint(3, VOCABULARY, (rows, length), generator=drawn)


def _t5_small() -> nn.Module:
    configuration = transformers.T5Config(
        vocab_size=VOCABULARY,
        d_model=512,
        d_ff=2048,
        num_layers=6,
        num_heads=8,
        d_kv=64,
        decoder_start_token_id=0,
    )
    return transformers.T5ForConditionalGeneration(configuration)


def _bart_base() -> nn.Module:
    configuration = transformers.BartConfig(
        d_model=768,
        encoder_layers=6,
        decoder_layers=6,
        encoder_attention_heads=12,
        decoder_attention_heads=12,
        encoder_ffn_dim=3072,
        decoder_ffn_dim=3072,
        vocab_size=VOCABULARY,
        attn_implementation="eager",
    )
    return transformers.BartForConditionalGeneration(configuration)


def _pairs_of_texts(number: int) -> Arguments:
    return {"input_ids": tokens(number, 128), "decoder_input_ids": tokens(number + 1, 64)}


class LinearAttention(nn.Module):
    """Attention without a softmax, over rotated queries and keys, that checks its mask."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.queries, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor, mask: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        lengths = mask[:, :1]
        if not torch.equal(mask, lengths.expand_as(mask)):
            raise ValueError("linear attention takes one mask for all queries")
        rows, length, width = x.shape
        shape = (rows, length, self.heads, width // self.heads)
        query, key, value = (each.view(shape) for each in self.queries(x).chunk(3, dim=-1))
        query, key = (functional.relu(_rotated(each, cos, sin)) + 1e-3 for each in (query, key))
        key = key * lengths.view(rows, length, 1, 1)
        weights = torch.einsum("nlhd,nhd->nlh", query, key.sum(dim=1)).clamp(min=1e-6)
        pairs = torch.einsum("nlhd,nlhm->nhmd", key, value)
        mixed = torch.einsum("nlhd,nhmd,nlh->nlhm", query, pairs, 1 / weights)
        return self.out(mixed.reshape(rows, length, width))  # type: ignore[no-any-return]


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    first, second = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-second, first), dim=-1) * sin


class Molecules(nn.Module):
    """Twelve layers of linear attention over the characters of a molecule."""

    def __init__(self, width: int = 768, heads: int = 12, layers: int = 12) -> None:
        super().__init__()
        self.embedded = nn.Embedding(2362, width)
        self.attention = nn.ModuleList(LinearAttention(width, heads) for _ in range(layers))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(2 * layers))
        self.linear = nn.ModuleList(
            nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(layers)
        )
        size = width // heads
        angles = torch.outer(torch.arange(202.0), 1e4 ** (-torch.arange(0, size, 2) / size))
        angles = torch.cat((angles, angles), dim=-1)[None, :, None]
        self.register_buffer("cos", angles.cos())
        self.register_buffer("sin", angles.sin())

    def forward(self, characters: Tensor, attention_mask: Tensor) -> Tensor:
        x, length = self.embedded(characters), characters.shape[1]
        cos, sin = self.cos[:, :length], self.sin[:, :length]
        mask = attention_mask[:, None].expand(-1, length, -1).to(x.dtype)
        for number, (attention, linear) in enumerate(zip(self.attention, self.linear, strict=True)):
            x = self.norms[2 * number](x + attention(x, mask, cos, sin))
            x = self.norms[2 * number + 1](x + linear(x))
        kept = attention_mask[..., None].to(x.dtype)
        return (x * kept).sum(dim=1) / kept.sum(dim=1).clamp(min=1e-9)


def _molecules(number: int) -> Arguments:
    drawn = torch.Generator().manual_seed(number)
    characters = torch.randint(0, 2362, (16, 128), generator=drawn)
    return {"characters": characters, "attention_mask": torch.ones(16, 128, dtype=torch.int64)}


class Experts(nn.Module):
    """Six layers of eight experts, each skipped where no token is sent to it."""

    def __init__(self, width: int = 512, experts: int = 8, layers: int = 6) -> None:
        super().__init__()
        self.routers = nn.ModuleList(nn.Linear(width, experts) for _ in range(layers))
        self.experts = nn.ModuleList(
            nn.ModuleList(
                nn.Sequential(nn.Linear(width, 2 * width), nn.SiLU(), nn.Linear(2 * width, width))
                for _ in range(experts)
            )
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for router, experts in zip(self.routers, self.experts, strict=True):
            weights, chosen = router(x).softmax(dim=-1).max(dim=-1)
            mixed = torch.zeros_like(x)
            for number, expert in enumerate(experts):
                sent = chosen == number
                if sent.any():
                    share = (weights * sent)[:, None]
                    mixed = mixed + expert(x) * share
            x = functional.layer_norm(x + mixed, x.shape[-1:])
        return x


def _rows(number: int) -> Arguments:
    drawn = torch.Generator().manual_seed(number)
    return {"x": torch.randn(256, 512, generator=drawn)}


class Dropping(nn.Module):
    """An encoder whose layers are left out at random while it trains, with a check of the loss."""

    def __init__(self, width: int = 512, layers: int = 6) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 8, 4 * width, dropout=0.0, batch_first=True)
            for _ in range(layers)
        )

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            if self.training and random.random() < 0.2:
                continue
            x = layer(x)
        loss = x.square().mean()
        if not torch.isfinite(loss):
            raise ValueError(f"the loss is {loss.item()}")
        return loss


def _sequences(number: int) -> Arguments:
    drawn = torch.Generator().manual_seed(number)
    return {"x": torch.randn(8, 128, 512, generator=drawn)}


PROGRAMS: Final = (
    Program("t5-small", _t5_small, _pairs_of_texts),
    Program("t5-small, float16", _t5_small, _pairs_of_texts, torch.float16, 2e-2),
    Program("bart-base, float16", _bart_base, _pairs_of_texts, torch.float16, 2e-2),
    Program("molecules", Molecules, _molecules),
    Program("experts", Experts, _rows),
    Program("layer drop", Dropping, _sequences, training=True),
)


def program_named(name: str) -> Program:
    """The program called `name`; raises `KeyError` naming the ones there are."""
    for each in PROGRAMS:
        if each.name == name:
            return each
    raise KeyError(f"no program {name!r}; there are {', '.join(each.name for each in PROGRAMS)}")
