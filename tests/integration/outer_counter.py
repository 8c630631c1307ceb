"""A module whose function counts in a global variable, for calls from another module."""

from __future__ import annotations

calls = 0


def count() -> None:
    global calls
    calls += 1
