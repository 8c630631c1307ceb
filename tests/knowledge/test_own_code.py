"""The key of caches changes with the code of bcmend."""

from __future__ import annotations

from pathlib import Path

import pytest

from bcmend.knowledge import own_code


def test_the_key_is_that_of_the_code_of_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def key() -> str:
        return own_code.code_key.__wrapped__()

    (tmp_path / "__init__.py").write_text("one")
    monkeypatch.setattr(own_code, "PACKAGE", tmp_path)
    before = key()
    assert before == key()
    (tmp_path / "__init__.py").write_text("two")
    assert key() != before
