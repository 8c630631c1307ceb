"""Numbers that outlive the place where they are read: in layers, objects and what is returned."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import torch
from torch import Tensor, nn

from corpus.towers.kind import Inputs, Kind, Tower, kind
from corpus.towers.kinds.layouts import WIDTH, films_or_none, packed, padded


class _Mixing(nn.Module):
    """A layer that is given how long each part of its rows is."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor, lengths: list[int]) -> Tensor:
        parts = torch.split(self.layer(x), lengths)
        return x + torch.cat([each - each.mean(dim=0, keepdim=True) for each in parts])


class _Layers(Tower):
    """Two of these layers behind another, and lengths that are handed in as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([_Mixing(), _Mixing()])

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        return {"frames": frames, "lengths": lengths.tolist()}

    def _all(self, frames: Tensor, lengths: list[int]) -> Tensor:
        for layer in self.layers:
            frames = layer(frames, lengths)
        return frames

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        return self._all(self.embed(frames), lengths)


class ReadByTheModel(_Layers):
    """A model reads the lengths once, and its layers get the list."""

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        frames, sizes = self.embed(frames), lengths.tolist()
        for layer in self.layers:
            frames = layer(frames, sizes)
        return frames


@dataclass
class _Context:
    """What a call tells its layers."""

    lengths: list[int] = field(default_factory=list)
    longest: int = 0


class _Informed(nn.Module):
    """A layer that asks a context for the lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.mixing = _Mixing()

    def forward(self, x: Tensor, context: _Context) -> Tensor:
        return self.mixing(x, context.lengths) / context.longest


class KeptInAContext(Tower):
    """The lengths are fields of an object that each call makes and hands to its layers."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Linear(WIDTH, WIDTH)
        self.layers = nn.ModuleList([_Informed(), _Informed()])

    def _all(self, frames: Tensor, context: _Context) -> Tensor:
        for layer in self.layers:
            frames = layer(frames, context)
        return frames

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        frames = self.embed(frames)
        context = _Context(lengths=lengths.tolist())
        context.longest = max(context.lengths)
        return self._all(frames, context)

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        return {"frames": frames, "lengths": lengths.tolist()}

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        return self._all(self.embed(frames), _Context(lengths, max(lengths)))


class KeptOnTheModel(_Layers):
    """The lengths stay on the model, where its next call finds them."""

    def __init__(self) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.total = 0

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        frames = self.embed(frames)
        self.sizes = lengths.tolist()
        self.total = sum(self.sizes)
        for layer in self.layers:
            frames = layer(frames, self.sizes)
        return frames / self.total

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        self.sizes, self.total = lengths, sum(lengths)
        return super().by_hand(frames, lengths) / self.total


class KeptForLater(_Layers):
    """A number of one call is used by the next, and a tensor beside it."""

    def __init__(self) -> None:
        super().__init__()
        self.longest = 1
        self.deltas: Tensor | None = None

    def _scaled(self, frames: Tensor, longest: int, lengths: list[int]) -> Tensor:
        before, self.longest = self.longest, longest
        frames = self._all(frames, lengths) * before
        if self.deltas is not None:
            frames = frames + self.deltas.sum()
        self.deltas = torch.tensor(lengths) - longest
        return frames

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        frames = self.embed(frames)
        return self._scaled(frames, int(lengths.max()), lengths.tolist())

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        return self._scaled(self.embed(frames), max(lengths), lengths)


@dataclass
class _Output:
    """What a model returns."""

    features: Tensor
    lengths: list[int]
    longest: int


class ReturnedNumbers(_Layers):
    """The lengths are returned beside the features, as numbers."""

    def forward(self, frames: Tensor, lengths: Tensor) -> _Output:
        frames, sizes = self.embed(frames), lengths.tolist()
        return _Output(self._all(frames, sizes), sizes, max(sizes))

    def by_hand(self, frames: Tensor, lengths: list[int]) -> _Output:
        return _Output(super().by_hand(frames, lengths), lengths, max(lengths))


class ReadInEachLayer(Tower):
    """Each layer asks for the longest clip itself, and pools with it."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(3)])

    def _pooled(self, x: Tensor, layer: nn.Module, longest: int) -> Tensor:
        return x + layer(x[:, :longest]).sum(dim=1, keepdim=True) / longest

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        frames = frames.tanh()
        for layer in self.layers:
            frames = self._pooled(frames, layer, lengths.max().item())
        return frames

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        return {"frames": frames, "longest": int(lengths.max())}

    def by_hand(self, frames: Tensor, longest: int) -> Tensor:
        frames = frames.tanh()
        for layer in self.layers:
            frames = self._pooled(frames, layer, longest)
        return frames


class FramesInTurn(Tower):
    """The frames of a film go through a layer one after the other; each remembers the last."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def _film(self, patches: Tensor, t: int, h: int, w: int) -> Tensor:
        memory, found = torch.zeros(h * w, WIDTH), []
        for at in range(t):
            memory = torch.tanh(self.layer(patches[at * h * w : (at + 1) * h * w] + memory))
            found.append(memory.mean(dim=0))
        return torch.stack(found)

    def forward(self, patches: Tensor, grid_thw: Tensor) -> list[Tensor]:
        patches, found, first = patches.tanh(), [], 0
        for t, h, w in grid_thw.tolist():
            found.append(self._film(patches[first : first + t * h * w], t, h, w))
            first += t * h * w
        return found

    def numbers(self, patches: Tensor, grid_thw: Tensor) -> Inputs:
        return {"patches": patches, "grids": grid_thw.tolist()}

    def by_hand(self, patches: Tensor, grids: list[list[int]]) -> list[Tensor]:
        patches, found, first = patches.tanh(), [], 0
        for t, h, w in grids:
            found.append(self._film(patches[first : first + t * h * w], t, h, w))
            first += t * h * w
        return found


KINDS: Final[tuple[Kind, ...]] = (
    kind(ReadByTheModel, packed),
    kind(KeptInAContext, packed),
    kind(KeptOnTheModel, packed),
    kind(KeptForLater, packed),
    kind(ReturnedNumbers, packed),
    kind(ReadInEachLayer, padded),
    kind(FramesInTurn, films_or_none),
)
