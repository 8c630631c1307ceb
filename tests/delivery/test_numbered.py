"""Rows that compiled code names by numbers."""

from __future__ import annotations

import gc

import pytest

from bcmend.delivery.numbered import Numbered


class _Row:
    pass


def test_each_row_has_a_number_of_its_own() -> None:
    table: Numbered[_Row] = Numbered()
    rows = [_Row() for _ in range(3)]
    numbers = [table.add(row) for row in rows]
    assert len(set(numbers)) == len(table) == 3
    assert all(table[number] is row for number, row in zip(numbers, rows, strict=True))


def test_a_row_goes_with_what_holds_it_and_its_number_is_not_given_again() -> None:
    table: Numbered[_Row] = Numbered()
    row = _Row()
    number = table.add(row)
    del row
    gc.collect()
    assert len(table) == 0
    with pytest.raises(KeyError):
        table[number]
    other = _Row()
    assert table.add(other) != number
