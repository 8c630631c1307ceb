"""The site of the documentation is built without a fault, and all that its pages link to is there.

It is built by what the extra ``docs`` installs; without that the tests are skipped. With
``--strict`` Zensical looks at links between pages. Here all links of the built pages are looked up:
those to files and pictures, too.
"""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urldefrag, urlsplit

import pytest

import bcmend

ROOT = Path(__file__).parents[1]
WANTED = ("zensical", "mkdocstrings", "mkdocstrings_handlers.python")


class _Page(HTMLParser):
    """What a page links to, the names of its places, and the text of each documented object."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.names: set[str] = set()
        self.texts: dict[str, str] = {}
        self._object: str | None = None
        self.feed(file.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        named = {key: value or "" for key, value in attributes}
        self.links += [named[each] for each in ("href", "src") if each in named]
        if "id" in named:
            self.names.add(named["id"])
        if "doc-heading" in named.get("class", "").split():
            self._object = named["id"]

    def handle_data(self, data: str) -> None:
        if self._object is not None:
            self.texts[self._object] = self.texts.get(self._object, "") + data


def _build(folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "zensical", "build", "--strict"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=300)


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that the site is built from."""
    for name in WANTED:
        try:
            found = importlib.util.find_spec(name)
        except ModuleNotFoundError:  # the package around it
            found = None
        if found is None:
            pytest.skip(f"{name} is not installed: the extra docs has it")
    folder = tmp_path_factory.mktemp("site")
    shutil.copytree(ROOT / "docs", folder / "docs")
    shutil.copy(ROOT / "zensical.toml", folder)
    (folder / "bcmend").symlink_to(ROOT / "bcmend", target_is_directory=True)
    return folder


@pytest.fixture(scope="module")
def site(source: Path) -> Path:
    built = _build(source)
    assert built.returncode == 0, built.stdout + built.stderr
    return source / "site"


def missing_in(site: Path) -> list[str]:
    """Return the links of the pages of a site to files and places of it that are not there."""
    pages = {file: _Page(file) for file in site.rglob("*.html") if file.name != "404.html"}
    found = []
    for file, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            path, place = urldefrag(link)
            target = file if not path else (file.parent / unquote(urlsplit(path).path)).resolve()
            target = target / "index.html" if target.is_dir() else target
            is_there = target.is_file() and (
                not place or target not in pages or unquote(place) in pages[target].names
            )
            if not is_there:
                found.append(f"{file.relative_to(site)}: {link}")
    return found


def test_the_pages_link_to_what_is_there(site: Path) -> None:
    assert len(list(site.glob("*/index.html"))) >= len(list((ROOT / "docs").glob("*.md"))) - 1
    assert missing_in(site) == []


def test_the_page_of_functions_has_each_with_its_docstring(site: Path) -> None:
    texts = _Page(site / "api" / "index.html").texts
    for name in bcmend.__all__:
        if name != "__version__":
            docstring = getattr(bcmend, name).__doc__
            words = [each for each in docstring.split() if each.isalpha()][:4]
            text = texts[f"bcmend.{name}"].split()
            assert all(any(word in each for each in text) for word in words), name


FAULTS = {
    "a page": "[a](nothing.md)",
    "a place": "[a](limits.md#nothing)",
    "a function": "[a][bcmend.nothing]",
    "a docstring": "::: bcmend.nothing",
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_a_fault_ends_the_build(fault: str, source: Path, site: Path, tmp_path: Path) -> None:
    """In a site of few pages, so that it is built at once."""
    for name in ("zensical.toml", "docs/limits.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(source / name, tmp_path / name)
    (tmp_path / "bcmend").symlink_to(ROOT / "bcmend", target_is_directory=True)
    settings = (tmp_path / "zensical.toml").read_text(encoding="utf-8")
    before, _, after = settings.partition("nav = [\n")
    nav = 'nav = ["index.md", "limits.md"]\n'
    settings = before + nav + after.partition("\n]\n")[2]
    (tmp_path / "zensical.toml").write_text(settings, encoding="utf-8")
    limits = "# Limits\n\n## A place\n"
    (tmp_path / "docs" / "limits.md").write_text(limits, encoding="utf-8")
    page = tmp_path / "docs" / "index.md"
    page.write_text("# A page\n\n[limits](limits.md#a-place)\n", encoding="utf-8")
    built = _build(tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    page.write_text(f"# A page\n\n{fault}\n", encoding="utf-8")
    assert _build(tmp_path).returncode != 0


def test_a_link_to_no_file_is_found(tmp_path: Path) -> None:
    (tmp_path / "a.svg").touch()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "index.html").write_text('<p id="c">', encoding="utf-8")
    links = ["a.svg", "no.svg", "b/", "b/#c", "b/#no", "#no", "https://x.org/no"]
    text = "".join(f'<a href="{each}"></a>' for each in links)
    (tmp_path / "index.html").write_text(text, encoding="utf-8")
    wrong = [f"index.html: {each}" for each in ("no.svg", "b/#no", "#no")]
    assert missing_in(tmp_path) == wrong
