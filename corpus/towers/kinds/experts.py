"""Layers of experts: a router says which rows each of them gets, and so how many."""

from __future__ import annotations

from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import WIDTH, drawn

_EXPERTS: Final = 4
_TOP: Final = 2


class _Experts(Tower):
    """A router and the weights of the experts; rows may be handed in sorted by expert."""

    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, _EXPERTS, bias=False)
        self.weight = nn.Parameter(torch.randn(_EXPERTS, WIDTH, WIDTH))

    def routed(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Return the shares of the best experts, and which these are."""
        shares, chosen = self.router(x).topk(_TOP, dim=1)
        return shares.softmax(dim=1), chosen

    def expert(self, at: int | Tensor, x: Tensor) -> Tensor:
        """Return what one expert makes of its rows."""
        return F.silu(F.linear(x, self.weight[at]))

    def numbers(self, x: Tensor) -> Inputs:
        _, chosen = self.routed(x)
        return {"x": x, "counts": chosen.flatten().bincount(minlength=_EXPERTS).tolist()}

    def by_hand(self, x: Tensor, counts: list[int]) -> Tensor:
        shares, chosen = self.routed(x)
        order = chosen.flatten().argsort(stable=True)
        rows = order // _TOP
        parts = x[rows].split(counts)
        found = torch.cat([self.expert(at, each) for at, each in enumerate(parts)])
        return torch.zeros_like(x).index_add_(0, rows, found * shares.flatten()[order][:, None])


class ExpertsBySplit(_Experts):
    """Rows sorted by expert are split by a list of how many each expert has."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.routed(x)
        gates = torch.zeros(x.shape[0], _EXPERTS).scatter(1, chosen, 1)
        sizes = gates.long().sum(0).tolist()
        _, order = chosen.flatten().sort(stable=True)
        rows = order.div(_TOP, rounding_mode="trunc")
        parts = x[rows].split(sizes, dim=0)
        found = torch.cat([self.expert(at, parts[at]) for at in range(_EXPERTS)], dim=0)
        weighted = found * shares.flatten()[order][:, None]
        return torch.zeros_like(x).index_add(0, rows, weighted)


class ExpertsByArray(_Experts):
    """How many rows each expert has is an array of numpy's; experts without rows are skipped."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.routed(x)
        order = chosen.view(-1).argsort(stable=True)
        sorted_rows = x[order // _TOP]
        counts = torch.bincount(chosen.view(-1), minlength=_EXPERTS).cpu().numpy()
        outputs, start = [], 0
        for at, count in enumerate(counts):
            end = start + count
            if count == 0:
                continue
            outputs.append(self.expert(at, sorted_rows[start:end]))
            start = end
        found = torch.cat(outputs) if len(outputs) else sorted_rows.new_empty(0, WIDTH)
        weighted = found * shares.flatten()[order][:, None]
        return torch.zeros_like(x).index_add_(0, order // _TOP, weighted)


class ExpertsByEnds(_Experts):
    """The ends of what each expert has come out of a cumulative sum, as a list."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.routed(x)
        order = chosen.view(-1).argsort(stable=True)
        ends = chosen.view(-1).bincount(minlength=_EXPERTS).cumsum(0).tolist()
        found = torch.zeros_like(x)
        for at, end in enumerate(ends):
            start = 0 if at == 0 else ends[at - 1]
            if start == end:
                continue
            places = order[start:end]
            rows = places // _TOP
            weighted = self.expert(at, x[rows]) * shares.view(-1)[places][:, None]
            found.index_add_(0, rows, weighted)
        return found


class ExpertsThatAreHit(_Experts):
    """A loop over the experts that have rows, by tensors of one number each."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.routed(x)
        found = torch.zeros_like(x)
        with torch.no_grad():
            mask = F.one_hot(chosen, num_classes=_EXPERTS).permute(2, 1, 0)
            hit = torch.greater(mask.sum(dim=(-1, -2)), 0).nonzero()
        for at in hit:
            at = at[0]
            place, rows = torch.where(mask[at])
            weighted = self.expert(at, x[rows]) * shares[rows, place, None]
            found.index_add_(0, rows, weighted)
        return found

    def numbers(self, x: Tensor) -> Inputs:
        _, chosen = self.routed(x)
        by_place = chosen.t().flatten()
        return {"x": x, "counts": by_place.bincount(minlength=_EXPERTS).tolist()}

    def by_hand(self, x: Tensor, counts: list[int]) -> Tensor:
        shares, chosen = self.routed(x)
        found = torch.zeros_like(x)
        parts = chosen.t().flatten().argsort(stable=True).split(counts)
        for at, places in enumerate(parts):
            if places.shape[0] > 0:
                rows, place = places % x.shape[0], places // x.shape[0]
                weighted = self.expert(at, x[rows]) * shares[rows, place, None]
                found.index_add_(0, rows, weighted)
        return found


class ExpertsOneByOne(ExpertsThatAreHit):
    """A loop over all experts, each of which asks whether it has a row."""

    def forward(self, x: Tensor) -> Tensor:
        shares, chosen = self.routed(x)
        found = torch.zeros_like(x)
        for at in range(_EXPERTS):
            mask = chosen.t() == at
            if not mask.any():
                continue
            place, rows = torch.where(mask)
            if rows.numel() > 0:
                weighted = self.expert(at, x[rows]) * shares[rows, place, None]
                found.index_add_(0, rows, weighted)
        return found


class FilledUpExperts(_Experts):
    """Each expert gets as many rows as the busiest one has; how many that is, is a size."""

    def _together(self, x: Tensor, most: int) -> Tensor:
        shares, chosen = self.routed(x)
        flat = chosen.flatten()
        order = flat.argsort(stable=True)
        counts = F.one_hot(flat, _EXPERTS).sum(0)
        firsts = counts.cumsum(0) - counts
        inside = torch.arange(flat.shape[0]) - firsts[flat[order]]
        rows = order // _TOP
        filled = x.new_zeros(_EXPERTS, most, WIDTH).index_put((flat[order], inside), x[rows])
        found = F.silu(torch.bmm(filled, self.weight))[flat[order], inside]
        return torch.zeros_like(x).index_add(0, rows, found * shares.flatten()[order][:, None])

    def forward(self, x: Tensor) -> Tensor:
        _, chosen = self.routed(x)
        most = int(F.one_hot(chosen.flatten(), _EXPERTS).sum(0).max())
        return self._together(x, most)

    def numbers(self, x: Tensor) -> Inputs:
        _, chosen = self.routed(x)
        return {"x": x, "most": int(chosen.flatten().bincount().max())}

    def by_hand(self, x: Tensor, most: int) -> Tensor:
        return self._together(x, most)


def _rows() -> Layouts:
    """Rows of one, two, five and more texts; of a single one, so that experts have none."""
    return [{"x": drawn(count, WIDTH, seed=count)} for count in (12, 1, 30, 12, 7, 2)]


KINDS: Final[tuple[Kind, ...]] = (
    kind(ExpertsBySplit, _rows),
    kind(ExpertsByArray, _rows),
    kind(ExpertsByEnds, _rows),
    kind(ExpertsThatAreHit, _rows),
    kind(ExpertsOneByOne, _rows),
    kind(FilledUpExperts, _rows),
)
