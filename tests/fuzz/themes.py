"""All themes; those of which there is more to try stand twice."""

from __future__ import annotations

from typing import Final

from tests.fuzz.themes_of_effects import CHECKS_TORCH, CLOCKS_CONTEXT_VARIABLES, OUTPUT
from tests.fuzz.themes_of_structure import CONTAINERS_CHANGED, CONTEXT_MANAGERS, FUNCTIONS
from tests.fuzz.themes_of_values import (
    COPIES_LEAVES,
    DEAR_OPERATIONS,
    LOOPS,
    NUMBERS,
    RANDOM_NUMBERS,
    VIEWS_ALIASES,
)

THEMES: Final = (
    NUMBERS,
    LOOPS,
    RANDOM_NUMBERS,
    CLOCKS_CONTEXT_VARIABLES,
    COPIES_LEAVES,
    CHECKS_TORCH,
    OUTPUT,
    OUTPUT,
    CONTEXT_MANAGERS,
    CONTAINERS_CHANGED,
    CONTAINERS_CHANGED,
    VIEWS_ALIASES,
    DEAR_OPERATIONS,
    FUNCTIONS,
)
