"""Clips of different lengths: cut to chunks, filled up, packed, unpacked."""

# Models write zip without strict, and the form of their code is what is tested.
# ruff: noqa: B905

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

from corpus.towers.kind import Inputs, Kind, Layouts, Tower, kind
from corpus.towers.kinds.layouts import LENGTHS, WIDTH, drawn, packed, padded

CHUNK: Final = 4


class _Layer(Tower):
    """A layer, and lengths that are handed in as a list."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(WIDTH, WIDTH)

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        return {"frames": frames, "lengths": lengths.tolist()}


class AudioChunks(_Layer):
    """Clips are cut to chunks of one length, of which the last of each may be shorter."""

    def _filled_up(self, chunks: Sequence[Tensor]) -> Tensor:
        return pad_sequence(list(chunks), batch_first=True).tanh().sum(dim=1)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        frames = self.layer(frames)
        numbers = torch.ceil(lengths / CHUNK).long()
        sizes = torch.full((numbers.sum(),), CHUNK, dtype=torch.long)
        lasts = F.pad(numbers, (1, 0), value=-1).cumsum(0)[1:]
        sizes[lasts] = lengths % CHUNK
        sizes = torch.where(sizes == 0, CHUNK, sizes)
        return self._filled_up(frames.split(sizes.tolist(), dim=0))

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        clips = lengths.tolist()
        sizes = [min(CHUNK, each - at) for each in clips for at in range(0, each, CHUNK)]
        return {"frames": frames, "sizes": sizes}

    def by_hand(self, frames: Tensor, sizes: list[int]) -> Tensor:
        return self._filled_up(self.layer(frames).split(sizes, dim=0))


class ValidFrames(_Layer):
    """A mask as wide as the longest clip says which frames there are."""

    def _chosen(self, frames: Tensor, places: Tensor) -> Tensor:
        return self.layer(frames.flatten(0, 1)[places])

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        longest = lengths.max().item()
        mask = torch.arange(longest) < lengths.unsqueeze(1)
        return self._chosen(frames[:, :longest], mask.flatten().nonzero().squeeze(-1))

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        longest = max(lengths)
        places = [torch.arange(each) + at * longest for at, each in enumerate(lengths)]
        return self._chosen(frames[:, :longest], torch.cat(places))


class PooledPairs(_Layer):
    """Two frames each become one, clip by clip, by places that are counted."""

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        pairs = lengths // 2
        firsts = F.pad(lengths[:-1].cumsum(0), (1, 0), value=0)
        firsts = torch.repeat_interleave(firsts, pairs)
        inside = torch.arange(pairs.sum())
        inside -= torch.repeat_interleave(F.pad(pairs[:-1].cumsum(0), (1, 0), value=0), pairs)
        places = firsts + inside * 2
        return self.layer((frames[places] + frames[places + 1]) / 2)

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        found, first = [], 0
        for each in lengths:
            found.append(torch.arange(each // 2) * 2 + first)
            first += each
        places = torch.cat(found)
        return self.layer((frames[places] + frames[places + 1]) / 2)


class ConvolvedLengths(Tower):
    """Convolutions shorten a clip; a mask of the longest one that is left hides the rest."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(
            [nn.Conv1d(WIDTH, WIDTH, 3, stride=2, padding=1) for _ in range(2)]
        )

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        x = frames.transpose(1, 2)
        for layer in self.layers:
            x = layer(x).relu()
            lengths = (lengths - 1) // 2 + 1
        longest = int(lengths.max())
        mask = torch.arange(longest).expand(len(lengths), longest) < lengths[:, None]
        return x.transpose(1, 2)[:, :longest] * mask[:, :, None], mask

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        return {"frames": frames, "lengths": [(each + 3) // 4 for each in lengths.tolist()]}

    def by_hand(self, frames: Tensor, lengths: list[int]) -> tuple[Tensor, Tensor]:
        x = frames.transpose(1, 2)
        for layer in self.layers:
            x = layer(x).relu()
        longest = max(lengths)
        mask = torch.stack([torch.arange(longest) < each for each in lengths])
        return x.transpose(1, 2)[:, :longest] * mask[:, :, None], mask


class ChunkNumbers(_Layer):
    """How many chunks each clip has, asked for one by one."""

    def _means(self, frames: Tensor, number: int) -> Tensor:
        chunks = frames[: number * CHUNK].view(number, CHUNK, WIDTH)
        return self.layer(chunks).mean(dim=1)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        numbers = []
        for at in range(lengths.shape[0]):
            numbers.append(math.ceil(lengths[at].item() / CHUNK))
        return torch.cat([self._means(each, number) for each, number in zip(frames, numbers)])

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        numbers = [math.ceil(each / CHUNK) for each in lengths]
        clips = zip(frames, numbers, strict=True)
        return torch.cat([self._means(each, number) for each, number in clips])


class CheckedSum(_Layer):
    """The features of all clips have to be as many as the lengths say."""

    def forward(self, frames: Tensor, lengths: Tensor) -> list[Tensor]:
        found = self.layer(frames)
        if found.shape[0] != sum(lengths.tolist()):
            raise ValueError("the frames are not as many as the lengths say")
        parts = found.split(lengths.tolist(), dim=0)
        return [each.mean(dim=0) for each in parts]

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        if frames.shape[0] != sum(lengths.tolist()):
            raise ValueError("the frames are not as many as the lengths say")
        return {"frames": frames, "lengths": lengths.tolist()}

    def by_hand(self, frames: Tensor, lengths: list[int]) -> list[Tensor]:
        return [each.mean(dim=0) for each in self.layer(frames).split(lengths, dim=0)]


class Waveforms(_Layer):
    """Each clip is cut to its own length; what comes out is a list."""

    def forward(self, frames: Tensor, lengths: Tensor) -> list[Tensor]:
        waves = self.layer(frames).sum(dim=-1)
        return [
            wave[..., :length].reshape(-1).float() for wave, length in zip(waves, lengths.tolist())
        ]

    def by_hand(self, frames: Tensor, lengths: list[int]) -> list[Tensor]:
        waves = zip(self.layer(frames).sum(dim=-1), lengths, strict=True)
        return [wave[..., :length].reshape(-1).float() for wave, length in waves]


class UnpackedAndPadded(_Layer):
    """Frames without the filling in one row for a layer, then beside each other again."""

    def _spread(self, rows: Tensor, lengths: Sequence[int], width: int) -> Tensor:
        parts = self.layer(rows).split(lengths)
        return torch.stack([F.pad(each, (0, 0, 0, width - each.shape[0])) for each in parts])

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        sizes = [int(each) for each in lengths]
        rows = torch.cat([frames[at, :size] for at, size in enumerate(sizes)])
        return self._spread(rows, sizes, frames.shape[1])

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        rows = torch.cat([frames[at, :size] for at, size in enumerate(lengths)])
        return self._spread(rows, lengths, frames.shape[1])


class LongestOfAList(_Layer):
    """The filling behind the longest clip is cut off."""

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        x, longest = self.layer(frames), max(lengths.tolist())
        return x[:, :longest].tanh() * longest

    def by_hand(self, frames: Tensor, lengths: list[int]) -> Tensor:
        longest = max(lengths)
        return self.layer(frames)[:, :longest].tanh() * longest


class PackedSequence(Tower):
    """A recurrent layer over clips that torch packs by their lengths."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.GRU(WIDTH, WIDTH, batch_first=True)

    def forward(self, frames: Tensor, lengths: Tensor) -> Tensor:
        rows = pack_padded_sequence(frames, lengths.cpu(), batch_first=True, enforce_sorted=False)
        found, _ = self.layer(rows)
        return pad_packed_sequence(found, batch_first=True)[0]


class PredictedDurations(_Layer):
    """A layer says how often each frame is repeated; clips are filled up to the longest."""

    def __init__(self) -> None:
        super().__init__()
        self.duration = nn.Linear(WIDTH, 1)

    def _durations(self, frames: Tensor) -> Tensor:
        return (self.duration(frames).squeeze(-1).exp() * 1.5).round().long().clamp(1, 4)

    def forward(self, frames: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        durations = self._durations(frames)
        durations = durations * (torch.arange(frames.shape[1]) < lengths[:, None])
        x, longest = self.layer(frames), durations.sum(dim=1).max()
        found = torch.zeros(frames.shape[0], longest, WIDTH)
        for at, (of_clip, repeats) in enumerate(zip(x, durations)):
            repeated = torch.repeat_interleave(of_clip, repeats, dim=0)
            found[at, : repeated.size(0)] = repeated
        return found, durations

    def numbers(self, frames: Tensor, lengths: Tensor) -> Inputs:
        durations = self._durations(frames)
        durations = durations * (torch.arange(frames.shape[1]) < lengths[:, None])
        return {"frames": frames, "durations": durations, "sums": durations.sum(dim=1).tolist()}

    def by_hand(self, frames: Tensor, durations: Tensor, sums: list[int]) -> tuple[Tensor, Tensor]:
        x, parts = self.layer(frames), []
        for of_clip, repeats, total in zip(x, durations, sums, strict=True):
            rows = torch.repeat_interleave(of_clip, repeats, dim=0, output_size=total)
            parts.append(F.pad(rows, (0, 0, 0, max(sums) - total)))
        return torch.stack(parts), durations


def _checked() -> Layouts:
    """Clips as in other calls; in the last one there is a frame too many."""
    frames = drawn(sum(LENGTHS[0]) + 1, WIDTH)
    return [*packed(), {"frames": frames, "lengths": torch.tensor(LENGTHS[0])}]


KINDS: Final[tuple[Kind, ...]] = (
    kind(AudioChunks, packed),
    kind(ValidFrames, padded),
    kind(PooledPairs, packed),
    kind(ConvolvedLengths, padded),
    kind(ChunkNumbers, padded),
    kind(CheckedSum, _checked),
    kind(Waveforms, padded),
    kind(UnpackedAndPadded, padded),
    kind(LongestOfAList, padded),
    kind(PackedSequence, padded),
    kind(PredictedDurations, padded),
)
