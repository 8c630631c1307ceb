"""The pages of the documentation name files, packages and pages that are there."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

import bcmend

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
#: A path in backticks that begins with a folder of the project and has no placeholder.
_PATH = re.compile(r"`((?:bcmend|tests|corpus|bench|docs)/[\w./]+)`")
_LINK = re.compile(r"\]\(([\w./]+\.md)(?:#[\w-]+)?\)")
#: A link to a file of the repository as a package index needs it, with its place in a page.
_IN_THE_REPOSITORY = re.compile(
    r"\((?:https://github\.com/bcmend/bcmend/blob|https://raw\.githubusercontent\.com/bcmend/bcmend)"
    r"/main/([^)#]+)(?:#([^)]*))?\)"
)
_HEADING = re.compile(r"^#+ (.*)$", re.MULTILINE)


def missing_in(text: str, folder: Path) -> list[str]:
    """Return the files, packages and pages that a text names and that are not there."""
    paths = [each for each in _PATH.findall(text) if not (ROOT / each).exists()]
    modules = [each for each in paths if not (ROOT / f"{each}.py").exists()]
    linked = [each for each in _LINK.findall(text) if not (folder / each).exists()]
    return modules + linked + [each for each in _absolute(text) if not _is_there(each)]


def _absolute(text: str) -> list[str]:
    """Return the targets of absolute links to the repository, as ``docs/page.md#place``."""
    return ["#".join(filter(None, each)) for each in _IN_THE_REPOSITORY.findall(text)]


def _is_there(target: str) -> bool:
    path, _, place = target.partition("#")
    if not (ROOT / path).is_file():
        return False
    if not place:
        return True
    headings = _HEADING.findall((ROOT / path).read_text(encoding="utf-8"))
    words = (re.sub(r"[^\w\s-]", "", each.lower()) for each in headings)
    return place in {re.sub(r"\s+", "-", each.strip()) for each in words}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_what_a_page_names_is_there(page: Path) -> None:
    assert missing_in(page.read_text(encoding="utf-8"), page.parent) == []


def test_what_is_not_there_is_found() -> None:
    text = "`bcmend/nothing.py`, `bcmend/cli`, `tests/rewrite` and [a page](nothing.md)"
    assert missing_in(text, ROOT) == ["bcmend/nothing.py", "nothing.md"]


def test_absolute_links_are_looked_up_in_the_checkout() -> None:
    main = "https://github.com/bcmend/bcmend/blob/main"
    text = f"[a]({main}/docs/verify.md#all-sides) [b]({main}/docs/verify.md#no) [c]({main}/no.md)"
    assert missing_in(text, ROOT) == ["docs/verify.md#no", "no.md"]
    picture = "![d](https://raw.githubusercontent.com/bcmend/bcmend/main/docs/no.svg)"
    assert missing_in(picture, ROOT) == ["docs/no.svg"]


def test_the_readme_has_absolute_links_alone() -> None:
    """A package index shows it apart from the files beside it, and gives headings other names."""
    readme = PAGES[0].read_text(encoding="utf-8")
    targets = re.findall(r"\]\(([^)]+)\)", readme)
    assert [each for each in targets if not each.startswith("https://")] == []
    assert len(_absolute(readme)) > 10


def test_every_page_is_linked_from_another() -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in PAGES}
    for page in [each for each in PAGES[1:] if each.name != "index.md"]:
        others = (text for other, text in texts.items() if other != page)
        assert any(f"{page.name}" in text for text in others), page.name


def test_every_page_is_in_the_menu_once() -> None:
    menu = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]["nav"]
    assert sorted(_pages_of(menu)) == sorted(page.name for page in PAGES[1:])


def _pages_of(menu: str | list[Any] | dict[str, Any]) -> list[str]:
    """Return the pages of an entry of the menu: a page, a list of entries, or a title with one."""
    if isinstance(menu, str):
        return [menu]
    entries = menu.values() if isinstance(menu, dict) else menu
    return [page for entry in entries for page in _pages_of(entry)]


def test_each_deviation_is_pinned_by_a_test() -> None:
    page = (ROOT / "docs" / "deviations.md").read_text(encoding="utf-8")
    rows = [line for line in page.splitlines() if line.startswith("| ")]
    cells = [row.rpartition(" | ")[2] for row in rows if not row.endswith("| test |")]
    usual = ROOT / "tests" / "integration" / "test_deviations.py"
    for cell in cells:
        others = re.findall(r"`(test_\w+\.py)`", cell)
        files = [file for name in others for file in ROOT.glob(f"tests/**/{name}")] or [usual]
        names = re.findall(r"`(test_\w+)`", cell)
        source = "".join(file.read_text(encoding="utf-8") for file in files)
        assert names and [each for each in names if f"def {each}(" not in source] == [], cell


def test_the_interface_names_every_function_and_command() -> None:
    page = (ROOT / "docs" / "interface.md").read_text(encoding="utf-8")
    functions = [name for name in bcmend.__all__ if name[0].islower()]
    assert [name for name in functions if f"`bcmend.{name}(" not in page] == []
    source = (ROOT / "bcmend" / "cli.py").read_text(encoding="utf-8")
    commands = re.findall(r"add_parser\(\s*\"(\w+)\"", source)
    assert "report" in commands
    assert [each for each in commands if f"python -m bcmend {each} " not in page] == []


def test_the_page_of_docstrings_has_every_public_name_once() -> None:
    page = (ROOT / "docs" / "api.md").read_text(encoding="utf-8")
    shown = re.findall(r"^::: bcmend\.(\w+)$", page, re.MULTILINE)
    assert sorted(shown) == sorted(name for name in bcmend.__all__ if name != "__version__")


def test_all_name_the_layers_of_tracing_in_the_same_order() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    contracts = project["tool"]["importlinter"]["contracts"]
    (layers,) = (each["layers"] for each in contracts if "containers" in each)
    folder = ROOT / "bcmend" / "tracing"
    assert sorted(layers) == sorted(each.parent.name for each in folder.glob("*/__init__.py"))
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    assert re.findall(r"^\| `tracing/(\w+)` \|", page, re.MULTILINE) == layers
    docstring = ast.get_docstring(ast.parse((folder / "__init__.py").read_text(encoding="utf-8")))
    assert docstring is not None
    listed = docstring.partition(": ")[2].partition(".")[0]
    assert re.split(r",\s+", listed) == layers


def test_the_map_names_every_package() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = [each.parent for each in (ROOT / "bcmend").rglob("__init__.py")]
    names = [str(each.relative_to(ROOT / "bcmend")) for each in found]
    outer = [each for each in names if each not in (".", "tracing") and "rewrite/" not in each]
    assert [each for each in outer if f"| `{each}` |" not in page] == []
