"""The libraries: what of each is walked through for functions and modules."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Library:
    """A library.

    Attributes:
        name: its name on the command line.
        package: the package that is imported.
        distribution: the name under which its version is known.
        parts: packages and modules below which public names are looked for; all of it if empty.
    """

    name: str
    package: str
    distribution: str
    parts: tuple[str, ...] = ()


LIBRARIES: Final = {
    each.name: each
    for each in (
        Library("kornia", "kornia", "kornia"),
        Library(
            "torchmetrics",
            "torchmetrics",
            "torchmetrics",
            tuple(
                f"torchmetrics.functional{part}"
                for part in ("", ".image", ".audio", ".detection", ".text", ".nominal")
            ),
        ),
        Library(
            "diffusers", "diffusers", "diffusers", ("diffusers.models", "diffusers.schedulers")
        ),
        Library("torch_geometric", "torch_geometric", "torch_geometric"),
        Library("timm", "timm", "timm", ("timm.layers", "timm.loss", "timm.data.mixup")),
        Library("torchaudio", "torchaudio", "torchaudio"),
        Library("gpytorch", "gpytorch", "gpytorch"),
        Library("botorch", "botorch", "botorch"),
        Library("whisper", "whisper", "openai-whisper"),
    )
}
