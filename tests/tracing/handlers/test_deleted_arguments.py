"""Arguments that a frame has deleted are deleted behind its graph break."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from bcmend.dynamo import compat
from bcmend.tracing.handlers.deleted_arguments import _step_graph_break


def _plain(one: Any, other: Any) -> Any:
    return one, other


def _with_cell(one: Any, other: Any) -> Callable[[], Any]:
    return lambda: other


def _opnames(function: Any, known: list[str], parent: Any = None) -> list[tuple[str, Any]]:
    """Return what the instructions are that are added, when the locals ``known`` are left."""
    target = compat.create_instruction("NOP")
    frame = SimpleNamespace(
        symbolic_locals=dict.fromkeys(known),
        f_code=function.__code__,
        parent=parent,
        instructions=[target],
    )
    went_on: list[Any] = []
    _step_graph_break(lambda self, going_on: went_on.append(going_on), frame, target)
    added = frame.instructions[1:]
    assert went_on == [added[0] if added else target]
    assert not added or added[-1].target is target
    return [(each.opname, each.argval) for each in added[:-1]]


@pytest.mark.parametrize(
    ("function", "known", "deleted"),
    [
        (_plain, ["one", "other"], []),
        (_plain, ["one"], ["other"]),
        (_plain, [], ["one", "other"]),
        (_with_cell, ["one"], []),  # Dynamo knows cells in another way
    ],
)
def test_what_is_missing_is_deleted(function: Any, known: list[str], deleted: list[str]) -> None:
    assert _opnames(function, known) == [("DELETE_FAST", name) for name in deleted]


def test_a_frame_inside_another_is_unchanged() -> None:
    assert _opnames(_plain, [], parent=object()) == []
