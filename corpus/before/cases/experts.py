"""Layers of experts, each of which gets the rows that a router gives it.

In bfloat16, the only type that torch traces multiplications of groups in.
"""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.towers.kind import Layouts

_EXPERTS: Final = 4
_TOP: Final = 2


class _Experts(nn.Module):
    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.gate = nn.Linear(width, _EXPERTS, bias=False)
        self.w1 = nn.Parameter(torch.randn(_EXPERTS, 2 * width, width) / width**0.5)
        self.w2 = nn.Parameter(torch.randn(_EXPERTS, width, 2 * width) / width**0.5)
        self.w3 = nn.Parameter(torch.randn(_EXPERTS, 2 * width, width) / width**0.5)

    def run(self, x: Tensor, counts: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = F.softmax(self.gate(x), dim=1).topk(_TOP, dim=1)
        counts = torch.histc(chosen.view(-1).float(), bins=_EXPERTS, min=0, max=_EXPERTS - 1)
        order = torch.argsort(chosen.view(-1), stable=True)
        rows = order // _TOP
        found = self.run(x[rows], counts.long()) * shares.view(-1)[order][:, None]
        return torch.zeros_like(x).index_add(0, rows, found)


class ExpertsInALoop(_Experts):
    """Sorted rows are split by a list of how many each expert has, and filled up behind these."""

    def run(self, x: Tensor, counts: Tensor) -> Tensor:
        tokens = counts.tolist()
        padding = x.shape[0] - sum(tokens)
        parts = torch.split(x[: sum(tokens)], split_size_or_sections=tokens, dim=0)
        found = []
        for at, part in enumerate(parts):
            h = F.silu(torch.matmul(part, self.w1[at].transpose(-2, -1)))
            h = h * torch.matmul(part, self.w3[at].transpose(-2, -1))
            found.append(torch.matmul(h, self.w2[at].transpose(-2, -1)))
        out = torch.cat(found, dim=0)
        return torch.vstack((out, out.new_zeros((padding, out.shape[-1]))))


class GroupedExperts(_Experts):
    """One multiplication of groups, which end where a cumulative sum says."""

    def run(self, x: Tensor, counts: Tensor) -> Tensor:
        ends = counts.cumsum(0, dtype=torch.int32)
        h = F.silu(F.grouped_mm(x, self.w1.transpose(-2, -1), offs=ends))
        h = h * F.grouped_mm(x, self.w3.transpose(-2, -1), offs=ends)
        return F.grouped_mm(h, self.w2.transpose(-2, -1), offs=ends)


class _Layers(nn.Module):
    def __init__(self, size: Size, layer: type[_Experts]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layer(size) for _ in range(size.layers))

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = x + layer(x)
        return x


def _in_a_loop(size: Size) -> nn.Module:
    return _Layers(size, ExpertsInALoop).bfloat16()


def _grouped(size: Size) -> nn.Module:
    return _Layers(size, GroupedExperts).bfloat16()


def _tokens(size: Size) -> Layouts:
    """As many rows in some calls as in others, and rows that all take the same experts."""
    rows = [2 * size.rows, 2 * size.rows, size.rows, 3 * size.rows]
    drawn_rows = [drawn(at, each, size.width) for at, each in enumerate(rows)]
    alike = drawn(9, 1, size.width).repeat(size.rows, 1)
    return [{"x": each.bfloat16()} for each in (*drawn_rows, alike)]


CASES: Final = (
    Case(
        "experts-in-a-loop",
        "torchtitan 2369, prime-rl 996",
        _in_a_loop,
        _grouped,
        _tokens,
        same=_in_a_loop,
        tolerance=0.05,
    ),
)
