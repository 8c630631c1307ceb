"""Records of a block of warnings enter it together, and what is open at the end is left."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from bcmend.delivery import records, warning_blocks
from bcmend.delivery.records import Buffer


def _output(action: Any, *inputs: Any) -> Any:
    return ("key", None, False, action, inputs)


def _within(blocks: Any, action: Any, *inputs: Any) -> Any:
    return _output(warning_blocks.call_within, blocks, action, inputs)


def _delivered(*buffer: Any) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        records.deliver(list(buffer))
    return [str(each.message) for each in caught]


OUTER: Any = ((1, ()),)
INNER: Any = (*OUTER, (2, (("action", "always"),)))


def test_filters_hold_for_later_records_of_the_block_and_for_no_others() -> None:
    found = _delivered(
        _within(OUTER, warnings.simplefilter, "ignore"),
        _within(OUTER, warnings.warn, "hidden"),
        _output(warning_blocks.leave, 1),
        _output(warnings.warn, "shown"),
    )
    assert found == ["shown"]


def test_a_block_within_a_block_has_its_own_filters() -> None:
    found = _delivered(
        _within(OUTER, warnings.simplefilter, "ignore"),
        _within(INNER, warnings.warn, "shown"),
        _output(warning_blocks.leave, 2),
        _within(OUTER, warnings.warn, "hidden"),
        _output(warning_blocks.leave, 1),
    )
    assert found == ["shown"]


@pytest.mark.parametrize("ends", [False, True])
def test_what_nobody_leaves_is_left_at_the_end(ends: bool) -> None:
    def fail() -> None:
        raise KeyError("why")

    before = list(warnings.filters)
    buffer: Buffer = [_within(INNER, warnings.simplefilter, "ignore")]
    if ends:
        buffer.append(("key", None, True, fail, ()))
        with pytest.raises(KeyError):
            records.deliver(buffer)
    else:
        records.deliver(buffer)
    assert warnings.filters == before


def test_a_block_that_no_record_has_entered_is_not_left() -> None:
    before = list(warnings.filters)
    warning_blocks.leave(7)
    assert warnings.filters == before


def test_a_delivery_within_another_leaves_what_it_has_entered() -> None:
    inner = [_within(((5, ()),), warnings.simplefilter, "always")]
    found = _delivered(
        _within(OUTER, warnings.simplefilter, "ignore"),
        _output(records.deliver, inner),
        _within(OUTER, warnings.warn, "hidden"),
        _output(warning_blocks.leave, 1),
        _output(warnings.warn, "shown"),
    )
    assert found == ["shown"]
