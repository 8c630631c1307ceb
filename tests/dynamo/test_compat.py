"""The list of private names of torch is what the module imports, and says what each is for."""

from __future__ import annotations

import ast
import re
from importlib import import_module
from pathlib import Path

import pytest

from bcmend.dynamo import compat

SOURCE = ast.parse(Path(compat.__file__).read_text())
LISTED = [name for names in compat.PURPOSES.values() for name in names]


def _imported() -> set[str]:
    """Return what the module takes from torch: imports, and constants made of its attributes."""
    found: set[str] = set()
    ways = [each for node in SOURCE.body if isinstance(node, ast.Try) for each in _ways(node)]
    for node in [*SOURCE.body, *ways]:
        if isinstance(node, ast.ImportFrom) and str(node.module).startswith("torch"):
            found |= {each.asname or each.name for each in node.names}
        elif isinstance(node, ast.AnnAssign) and "PURPOSES" not in ast.unparse(node.target):
            found.add(ast.unparse(node.target))
    return found


def _ways(node: ast.Try) -> list[ast.stmt]:
    """Return the statements that import a name, each in its way."""
    return [each for part in (node, *node.handlers) for each in part.body]


def test_the_purposes_name_exactly_what_is_imported() -> None:
    assert set(LISTED) == _imported()


def test_each_name_has_one_purpose() -> None:
    assert len(LISTED) == len(set(LISTED))


def test_each_purpose_is_said_in_words() -> None:
    for purpose, names in compat.PURPOSES.items():
        assert re.fullmatch(r"[a-z][\w`., -]{8,}", purpose), purpose
        assert names


@pytest.mark.parametrize("symbol", compat.symbols(), ids=lambda each: each.name)
def test_each_symbol_is_found_where_it_is_said_to_be(symbol: compat.Symbol) -> None:
    found = getattr(compat, symbol.name)
    if symbol.origin != "torch":
        module = import_module(symbol.origin)
        assert any(value is found for value in vars(module).values())


def test_every_name_is_used_by_the_package() -> None:
    package = Path(compat.__file__).parent.parent
    text = "\n".join(path.read_text() for path in package.rglob("*.py"))
    assert [name for name in LISTED if not re.search(rf"\bcompat\.{name}\b", text)] == []
