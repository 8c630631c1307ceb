"""A table that compares its keys by identity and does not keep them alive."""

from __future__ import annotations

import gc

from bcmend.weak_tables import ByIdentity


class _Key:
    """Equal to every other key."""

    def __eq__(self, other: object) -> bool:
        return True

    __hash__ = None  # type: ignore[assignment]


def test_equal_keys_have_values_of_their_own() -> None:
    table: ByIdentity[_Key, str] = ByIdentity()
    one, other = _Key(), _Key()
    table.put(one, "one")
    assert table.get(one) == "one" and table.get(other) is None


def test_a_value_is_made_only_where_there_is_none() -> None:
    table: ByIdentity[_Key, list[int]] = ByIdentity()
    key, made = _Key(), [1]
    assert table.setdefault(key, lambda: made) is made
    assert table.setdefault(key, list) is made


def test_a_key_is_in_a_table_once_it_has_a_value() -> None:
    table: ByIdentity[_Key, None] = ByIdentity()
    key, other = _Key(), _Key()
    table.put(key, None)
    assert key in table
    assert other not in table


def test_another_value_replaces_the_first() -> None:
    table: ByIdentity[_Key, int] = ByIdentity()
    key = _Key()
    table.put(key, 1)
    table.put(key, 2)
    assert table.get(key) == 2 and len(table) == 1


def test_a_removed_key_has_no_value_and_can_be_removed_again() -> None:
    table: ByIdentity[_Key, int] = ByIdentity()
    key = _Key()
    table.put(key, 1)
    table.pop(key)
    table.pop(key)
    assert table.get(key) is None and len(table) == 0


def test_a_row_goes_with_its_key() -> None:
    table: ByIdentity[_Key, int] = ByIdentity()
    staying, going = _Key(), _Key()
    table.put(staying, 1)
    table.put(going, 2)
    del going
    gc.collect()
    assert len(table) == 1
    (row,) = table.items()
    assert row[0] is staying and row[1] == 1
