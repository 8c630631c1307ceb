"""Faults of releases of torch that show without bcmend, which tests name as a condition."""

from __future__ import annotations

from typing import Final

import torch

_RELEASE: Final = ".".join(torch.__version__.split(".")[:2])

#: ``f"{number:.1f}"`` of a float that has become dynamic ends in ``InternalTorchDynamoError``.
FORMATTED_FLOATS_FAIL: Final = _RELEASE == "2.15"
