"""All themes; those of which there is more to try stand twice."""

from __future__ import annotations

from typing import Final

from tests.fuzz.themes_of_calls import HOST_CALLS, LEAVES, SUBSTITUTED
from tests.fuzz.themes_of_changes import CHANGED_IN_ARMS
from tests.fuzz.themes_of_contexts import COPIED_VALUES, HELD_CONTEXTS
from tests.fuzz.themes_of_data import INDEX_LOOPS, SIZES
from tests.fuzz.themes_of_effects import CHECKS_TORCH, CLOCKS_CONTEXT_VARIABLES, OUTPUT
from tests.fuzz.themes_of_errors import SHOWN_ERRORS
from tests.fuzz.themes_of_iterations import ITERATIONS, WALKS
from tests.fuzz.themes_of_layers import LAYERS_CHANGED, ROUTED_ROWS
from tests.fuzz.themes_of_memory import SHARED_MEMORY, VIEWS_ALIASES
from tests.fuzz.themes_of_messages import HISTORIES, OBJECTS_SHOWN, TEXTS
from tests.fuzz.themes_of_operations import EXPENSIVE_OPERATIONS, MAY_FAIL, MIXED
from tests.fuzz.themes_of_parts import KNOWN_OF_SIZES, PARTS
from tests.fuzz.themes_of_state import BROKEN_OUTPUT, CALLED_OBJECTS, INSIDE_THE_GRAPH, SETTINGS
from tests.fuzz.themes_of_structure import CONTAINERS_CHANGED, CONTEXT_MANAGERS, FUNCTIONS
from tests.fuzz.themes_of_training import (
    DRAWS_IN_ARMS,
    LOOPS_WITH_GRADIENTS,
    LOSSES,
    UNTAKEN_SIDES,
)
from tests.fuzz.themes_of_truths import CLAIMS, TRUTHS
from tests.fuzz.themes_of_values import COPIES_LEAVES, LOOPS, NUMBERS, RANDOM_NUMBERS
from tests.fuzz.themes_of_ways import APART, BEFORE_CHECKS, WAYS_OUT

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
    EXPENSIVE_OPERATIONS,
    FUNCTIONS,
    MAY_FAIL,
    SIZES,
    INDEX_LOOPS,
    SHARED_MEMORY,
    MIXED,
    MIXED,
    UNTAKEN_SIDES,
    DRAWS_IN_ARMS,
    DRAWS_IN_ARMS,
    LOOPS_WITH_GRADIENTS,
    LOSSES,
    INSIDE_THE_GRAPH,
    INSIDE_THE_GRAPH,
    BROKEN_OUTPUT,
    SETTINGS,
    CALLED_OBJECTS,
    HOST_CALLS,
    LEAVES,
    SUBSTITUTED,
    TRUTHS,
    PARTS,
    KNOWN_OF_SIZES,
    CLAIMS,
    APART,
    WAYS_OUT,
    BEFORE_CHECKS,
    ITERATIONS,
    WALKS,
    CHANGED_IN_ARMS,
    SHOWN_ERRORS,
    SHOWN_ERRORS,
    HELD_CONTEXTS,
    COPIED_VALUES,
    HISTORIES,
    OBJECTS_SHOWN,
    TEXTS,
    ROUTED_ROWS,
    LAYERS_CHANGED,
    LAYERS_CHANGED,
)
