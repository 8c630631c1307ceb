"""The tutorial as a notebook: ``python -m tests.notebook > docs/tutorial.ipynb``.

It is made from the page. Text becomes cells of text, with links to the published pages, since a
notebook is downloaded alone.
A block in ``python`` becomes a cell of code; one that the text in front calls a file, a cell that
writes that file. A command of bcmend becomes a call of the function of its name, which shows a page
in a notebook, and needs no new process; other commands stay text. A block in ``text`` is what the
cell in front prints.
"""

from __future__ import annotations

import json
import re
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "tutorial.md"
NOTEBOOK = PAGE.with_suffix(".ipynb")
_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$\n*", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"`(\w+\.py)`:\s*\Z")
_TO_A_PAGE = re.compile(r"\]\((\w+)\.md(#[\w-]+)?\)")
_TO_ITSELF = re.compile(r"^\[[^]]*\]\(tutorial\.ipynb\).*\n\n", re.MULTILINE)


def notebook_of(page: str) -> dict[str, Any]:
    """Return the notebook of a page in Markdown, as the format 4.5 of Jupyter has it."""
    cells = list(_cells(page))
    for number, cell in enumerate(cells):
        cell["id"] = f"cell-{number}"
    return {
        "cells": cells,
        "metadata": {
            "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
            "language_info": {"name": "python"},
        },
        "nbformat": 4,
        "nbformat_minor": 5,
    }


def _cells(page: str) -> Iterator[dict[str, Any]]:
    page = _TO_ITSELF.sub("", page)
    text, end = "", 0
    code: dict[str, Any] | None = None
    for block in _BLOCK.finditer(page):
        between = page[end : block.start()]
        language, source = block.groups()
        end = block.end()
        text += between
        if language == "text" and code is not None:
            code["outputs"] = [{"name": "stdout", "output_type": "stream", "text": _lines(source)}]
            continue
        made = _code(language, source, text)
        if made is None:
            text += block[0]
            continue
        if code is not None:
            yield code
        if text.strip():
            yield _text(text)
        text, code = "", made
    if code is not None:
        yield code
    yield _text(text + page[end:])


def _code(language: str, source: str, before: str) -> dict[str, Any] | None:
    """Return the cell of a block, or None for one that stays text."""
    if language == "python":
        file = _FILE.search(before)
        return _cell(f"%%writefile {file[1]}\n{source}" if file else source)
    commands = source.splitlines() if language == "sh" else []
    if not commands or any(not each.startswith("python -m bcmend ") for each in commands):
        return None
    (command,) = commands
    return _cell(_call(shlex.split(command)[3:]))


def _call(words: list[str]) -> str:
    """Return the lines that do what ``explain MODULE:CLASS --call CALL`` does."""
    name, (module, _, target) = words[0], words[1].partition(":")
    given = [f"{target}()"]
    options = iter(words[2:])
    for option in options:
        if option == "--call":
            given.append(next(options))
        elif option == "--train":
            given.append("train=True")
        elif option == "--sides":
            given.append(f'sides="{next(options)}"')
        else:
            raise ValueError(f"{option}: what a call has for it is not known here")
    imports = f"import torch\nfrom {module} import {target}\n\nimport bcmend\n\n"
    return f"{imports}bcmend.{name}({', '.join(given)})"


def _cell(source: str) -> dict[str, Any]:
    return {
        "cell_type": "code",
        "execution_count": None,
        "id": "",
        "metadata": {},
        "outputs": [],
        "source": _lines(source),
    }


def _text(source: str) -> dict[str, Any]:
    project = tomllib.loads((ROOT / "zensical.toml").read_text(encoding="utf-8"))["project"]
    linked = _TO_A_PAGE.sub(rf"]({project['site_url']}\1/\2)", source)
    return {"cell_type": "markdown", "id": "", "metadata": {}, "source": _lines(linked)}


def _lines(text: str) -> list[str]:
    return text.strip("\n").splitlines(keepends=True)


def main() -> None:
    made = notebook_of(PAGE.read_text(encoding="utf-8"))
    print(json.dumps(made, indent=1, ensure_ascii=False))


if __name__ == "__main__":
    main()
