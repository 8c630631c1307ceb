"""Batches of molecules: as filled-up rows, or one after the other with the number of each atom's.

Fields are set and asked for as a dictionary of tensors, flags among them.
"""

from __future__ import annotations

from typing import Any, Final

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from corpus.before.case import Case, Size, drawn
from corpus.towers.kind import Layouts

_ELEMENTS: Final = 9
#: Fields with the atoms that are near, and those that are far.
NEIGHBOURS: Final = ("nbmat", "nbmat_lr")

Fields = dict[str, Any]


class _Molecules(nn.Module):
    """Charges of atoms that are made to sum up to that of their molecule, layer by layer."""

    def __init__(self, size: Size) -> None:
        super().__init__()
        width = size.width
        self.afv = nn.Embedding(_ELEMENTS, width)
        self.layers = nn.ModuleList(
            nn.Sequential(nn.Linear(2 * width, width), nn.GELU(), nn.Linear(width, width))
            for _ in range(size.layers)
        )
        self.charges = nn.ModuleList(nn.Linear(width, 2) for _ in range(size.layers))
        self.energy = nn.Linear(width, 1)

    def prepare(self, data: Fields) -> Fields:
        raise NotImplementedError

    def neighbours(self, data: Fields) -> Tensor:
        raise NotImplementedError

    def gathered(self, data: Fields) -> Tensor:
        """Return the mean of what is near and of what is far."""
        found = [
            data["a"][data[name]].masked_fill(data[f"mask_{name}"][..., None], 0.0).mean(dim=-2)
            for name in NEIGHBOURS
        ]
        return torch.stack(found).mean(dim=0)

    def mol_sum(self, x: Tensor, data: Fields) -> Tensor:
        raise NotImplementedError

    def by_atom(self, x: Tensor, data: Fields) -> Tensor:
        raise NotImplementedError

    def masked(self, x: Tensor, data: Fields) -> Tensor:
        raise NotImplementedError

    def forward(self, **data: Tensor) -> Fields:
        data = self.prepare(data)
        a = self.afv(data["numbers"])
        q = torch.zeros_like(data["coord"][..., :1])
        for layer, charge in zip(self.layers, self.charges, strict=True):
            gathered = self.masked(self.neighbours({**data, "a": a}), data)
            a = a + layer(torch.cat([a, gathered], dim=-1)) * (1 + q)
            partial, weight = self.masked(charge(a), data).split(1, dim=-1)
            q = q + partial
            weight = self.masked(F.softplus(weight), data)
            total = self.by_atom(self.mol_sum(weight, data), data)
            missing = data["charge"][:, None] - self.mol_sum(q, data)
            q = q + weight / total.clamp(min=1e-6) * self.by_atom(missing, data)
        energy = self.mol_sum(self.masked(self.energy(a), data), data)
        return {"energy": energy, "charges": q}


class FlagsInTensors(_Molecules):
    """How the data are laid out is kept in tensors, from which it is read each time."""

    def mode(self, data: Fields) -> int:
        return int(data["_nb_mode"].item())

    def prepare(self, data: Fields) -> Fields:
        data = dict(data)
        if "nbmat" in data:
            data["_nb_mode"] = torch.tensor(1)
        else:
            data["_nb_mode"] = torch.tensor(0)
        if self.mode(data) == 0:
            data["_input_padded"] = torch.tensor(False)
            data["_natom"] = torch.tensor(data["coord"].shape[1])
            if data["numbers"].eq(0).any():
                data["_input_padded"] = torch.tensor(True)
                data["mask_i"] = data["numbers"] == 0
        else:
            data["_input_padded"] = torch.tensor(True)
            data["mask_i"] = torch.zeros_like(data["numbers"], dtype=torch.bool)
            data["mask_i"][-1] = True
            data["mol_sizes"] = torch.bincount(data["mol_idx"])
            self.mask_neighbours(data)
        return data

    def mask_neighbours(self, data: Fields) -> None:
        seen: dict[int, str] = {}  # both may be one tensor
        for name in NEIGHBOURS:
            place = data[name].data_ptr()
            if place in seen:
                data[f"mask_{name}"] = data[f"mask_{seen[place]}"]
            else:
                data[f"mask_{name}"] = data[name] == len(data["numbers"]) - 1
                seen[place] = name

    def neighbours(self, data: Fields) -> Tensor:
        if self.mode(data) == 0:
            near = (-torch.cdist(data["coord"], data["coord"])).exp()
            if data["_input_padded"].item():
                near = near.masked_fill(data["mask_i"][:, None, :], 0.0)
            return near @ data["a"]
        return self.gathered(data)

    def masked(self, x: Tensor, data: Fields) -> Tensor:
        if data["_input_padded"].item():
            x = x.masked_fill(data["mask_i"][..., None], 0.0)
        return x

    def mol_sum(self, x: Tensor, data: Fields) -> Tensor:
        if self.mode(data) == 0:
            return x.sum(dim=1)
        idx = data["mol_idx"]
        size = int(idx[-1].item()) + 1
        return x.new_zeros(size, x.shape[1]).scatter_add_(0, idx[:, None].expand(x.shape), x)

    def by_atom(self, x: Tensor, data: Fields) -> Tensor:
        if self.mode(data) == 0:
            return x[:, None]
        return torch.repeat_interleave(x, data["mol_sizes"], dim=0)


class ShapesForFlags(_Molecules):
    """Which fields there are says how the data are laid out, and the charges how many there are."""

    def prepare(self, data: Fields) -> Fields:
        data = dict(data)
        if "nbmat" in data:
            data["mask_i"] = torch.arange(len(data["numbers"])) == len(data["numbers"]) - 1
            for name in NEIGHBOURS:
                data[f"mask_{name}"] = data[name] == len(data["numbers"]) - 1
        else:
            data["mask_i"] = data["numbers"] == 0
        return data

    def neighbours(self, data: Fields) -> Tensor:
        if "nbmat" in data:
            return self.gathered(data)
        near = (-torch.cdist(data["coord"], data["coord"])).exp()
        return near.masked_fill(data["mask_i"][:, None, :], 0.0) @ data["a"]

    def masked(self, x: Tensor, data: Fields) -> Tensor:
        return x.masked_fill(data["mask_i"][..., None], 0.0)

    def mol_sum(self, x: Tensor, data: Fields) -> Tensor:
        if "nbmat" not in data:
            return x.sum(dim=1)
        size = data["charge"].shape[0]
        index = data["mol_idx"][:, None].expand(x.shape)
        return x.new_zeros(size, x.shape[1]).scatter_add_(0, index, x)

    def by_atom(self, x: Tensor, data: Fields) -> Tensor:
        return x[data["mol_idx"]] if "nbmat" in data else x[:, None]


class CountedMolecules(ShapesForFlags):
    """What is computed of molecules one after the other with flags, which are of Python here."""

    def prepare(self, data: Fields) -> Fields:
        data = super().prepare(data)
        data["mask_i"] = torch.zeros_like(data["numbers"], dtype=torch.bool)
        data["mask_i"][-1] = True
        data["mol_sizes"] = torch.bincount(data["mol_idx"])
        torch._check(data["mol_sizes"].shape[0] == data["charge"].shape[0])
        return data

    def by_atom(self, x: Tensor, data: Fields) -> Tensor:
        return torch.repeat_interleave(
            x, data["mol_sizes"], dim=0, output_size=len(data["mol_idx"])
        )


def _numbers(seed: int, *shape: int) -> Tensor:
    return drawn(seed, *shape).mul(100).long().abs() % (_ELEMENTS - 1) + 1


def _filled_up(size: Size) -> Layouts:
    """Molecules as rows, none, some and one of which has fewer atoms than there is room for."""
    layouts = []
    for at, atoms in enumerate([(1.0, 1.0), (0.5, 1.0), (1.0, 1.0, 0.4), (0.7, 0.9), (0.2,)]):
        rows = size.rows
        numbers = _numbers(at, len(atoms), rows)
        numbers = numbers * (torch.arange(rows) < torch.tensor(atoms)[:, None] * rows)
        coord = drawn(at + 20, len(atoms), rows, 3)
        layouts.append({"numbers": numbers, "coord": coord, "charge": drawn(at, len(atoms))})
    return layouts


def _one_after_the_other(size: Size) -> Layouts:
    """Two to five molecules in one row, and an atom behind them for what is no neighbour."""
    layouts = []
    for at, atoms in enumerate([(4, 3), (2, 5, 1), (6, 6), (1, 2, 3, 4, 2), (3, 3, 7)]):
        sizes = torch.tensor(atoms) * max(1, size.rows // 8)
        sizes[-1] += 1
        count = int(sizes.sum())
        layouts.append(
            {
                "numbers": F.pad(_numbers(at, count - 1), (0, 1)),
                "coord": drawn(at + 20, count, 3),
                "charge": drawn(at, len(atoms)),
                "mol_idx": torch.repeat_interleave(torch.arange(len(atoms)), sizes),
                "nbmat": _numbers(at + 40, count, 6) * 31 % count,
                "nbmat_lr": _numbers(at + 60, count, 9) * 17 % count,
            }
        )
    return layouts


CASES: Final = (
    Case("molecules-in-rows", "aimnetcentral 109", FlagsInTensors, ShapesForFlags, _filled_up),
    Case(
        "molecules-in-one",
        "aimnetcentral 109",
        FlagsInTensors,
        ShapesForFlags,
        _one_after_the_other,
        same=CountedMolecules,
    ),
)
