"""What torch has is described as it is without bcmend: nothing is mended any more."""

from __future__ import annotations

import gc

import pytest
import torch

import bcmend


@pytest.fixture(autouse=True, scope="module")
def _nothing_is_mended() -> None:
    """Have rows of torch's tables go that stay while something is, be it of a test before."""
    bcmend.unpatch()
    torch._dynamo.reset()
    gc.collect()
