"""A vision tower that reads the sizes of its images out of a tensor, and the same by hand."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

LAYERS, WIDTH, HEADS = 4, 256, 4
#: Frames, rows and columns of patches of each image, call by call.
LAYOUTS = (((1, 12, 16), (1, 14, 14)), ((2, 8, 16), (1, 12, 12)), ((1, 20, 20),))


class Layer(nn.Module):
    """Attention inside of each frame, and two linear layers."""

    def __init__(self) -> None:
        super().__init__()
        self.queries = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.wide, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: Tensor, angles: Tensor, lengths: Sequence[int]) -> Tensor:
        first, second, values = self.queries(x).chunk(3, dim=-1)
        frames = (
            each.view(-1, HEADS, WIDTH // HEADS).transpose(0, 1).split(lengths, dim=1)
            for each in (first * angles, second * angles, values)
        )
        found = [
            functional.scaled_dot_product_attention(*each) for each in zip(*frames, strict=True)
        ]
        x = x + self.out(torch.cat(found, dim=1).transpose(0, 1).reshape(-1, WIDTH))
        return x + self.narrow(functional.gelu(self.wide(x)))  # type: ignore[no-any-return]


class ByHand(nn.Module):
    """Patches of images, with the numbers that ``read`` finds."""

    inverse: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inverse", 1e4 ** -torch.linspace(0, 1, WIDTH // 2))
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))

    @staticmethod
    def read(grid: Tensor) -> tuple[list[list[int]], int, list[int]]:
        """Return sizes, the longest side, and how many patches each frame has."""
        lengths = torch.repeat_interleave(grid[:, 1] * grid[:, 2], grid[:, 0])
        return grid.tolist(), int(grid[:, 1:].max()), lengths.tolist()

    def forward(
        self, x: Tensor, sizes: list[list[int]], longest: int, lengths: list[int]
    ) -> Tensor:
        places = []
        for frames, rows, columns in sizes:
            row = torch.arange(rows).unsqueeze(1).expand(-1, columns).flatten()
            column = torch.arange(columns).unsqueeze(0).expand(rows, -1).flatten()
            places.append(torch.stack([row, column], dim=1).repeat(frames, 1))
        table = torch.outer(torch.arange(longest).float(), self.inverse)
        angles = table[torch.cat(places)].flatten(1).cos()
        for layer in self.layers:
            x = layer(x, angles, lengths)
        return x


class Tower(ByHand):
    """The same, which reads the numbers itself."""

    def forward(self, x: Tensor, grid: Tensor) -> Tensor:  # type: ignore[override]
        return super().forward(x, *self.read(grid))


def towers() -> tuple[Tower, ByHand]:
    """Return both, with the same weights."""
    torch.manual_seed(0)
    tower, by_hand = Tower().eval(), ByHand().eval()
    by_hand.load_state_dict(tower.state_dict())
    return tower, by_hand


def tower_inputs() -> list[tuple[Tensor, Tensor]]:
    """Return patches and sizes for a call of each layout."""
    grids = [torch.tensor(each) for each in LAYOUTS]
    return [(torch.randn(int(each.prod(1).sum()), WIDTH), each) for each in grids]
