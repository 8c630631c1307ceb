"""Objects that programs show, and whose text tells what they hold."""

from __future__ import annotations

from torch import Tensor


class Meter:
    """An object that shows a tensor that it holds."""

    def __init__(self, name: str, value: Tensor) -> None:
        self.name, self.value = name, value

    def __repr__(self) -> str:
        return f"Meter({self.name}={self.value.sum().item():.2f})"

    def __str__(self) -> str:
        return f"{self.name}: {self.value.mean().item():.3f}"

    def __format__(self, spec: str) -> str:
        return format(self.value.sum().item(), spec or ".1f")


class Described:
    """An object whose text is not the same before and after it is changed."""

    def __init__(self) -> None:
        self.count = 0

    def __repr__(self) -> str:
        return f"<count {self.count}>"
