"""The primitives in plain Python: they do nothing, but for a record at which the graph broke."""

from __future__ import annotations

import torch

from bcmend.runtime.primitives import branch, data_dependent, guard, record, recording


def test_in_plain_python_the_answers_send_control_to_the_original_instructions() -> None:
    condition = torch.tensor(True)
    assert data_dependent("site", condition) is False
    assert branch("site", condition, lambda: (1,), lambda: (2,), ()) is None
    assert guard("site", condition, True, lambda: None, ()) is False
    assert recording("site") is False


def test_a_record_in_plain_python_is_delivered_at_once() -> None:
    """A resumed frame that Dynamo skips has answered ``recording`` while it was traced."""
    log: list[int] = []
    record("site", log.append, (1,))
    assert log == [1]
