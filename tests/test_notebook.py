"""The notebook of the tutorial is made from its page, and runs."""

from __future__ import annotations

import html
import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.notebook import NOTEBOOK, PAGE, ROOT, notebook_of

#: What the cells show, in their order; all of it is bcmend's own, or that of the model.
SHOWN = [
    "Writing classifier.py",
    "3 breaks \N{RIGHTWARDS ARROW} 0; nothing left",
    "mean activation",
    "raised: the activations are not finite",
    "3 sites mended, nothing left",
    "equal in 2 calls",
    "2 seen by your inputs, 2 forced, all equal",
    "Writing test_classifier.py",
]


def _stored() -> dict[str, Any]:
    return json.loads(NOTEBOOK.read_text(encoding="utf-8"))


def test_the_notebook_is_that_of_the_page() -> None:
    again = "python -m tests.notebook > docs/tutorial.ipynb"
    assert _stored() == notebook_of(PAGE.read_text(encoding="utf-8")), again


def test_the_page_links_to_the_notebook() -> None:
    assert f"]({NOTEBOOK.name})" in PAGE.read_text(encoding="utf-8")


def test_the_notebook_has_each_block_of_code_and_links_that_are_whole() -> None:
    cells = _stored()["cells"]
    sources = {"code": "", "markdown": ""}
    for cell in cells:
        sources[cell["cell_type"]] += "".join([*cell["source"], "\n"])
    blocks = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(encoding="utf-8"), re.M | re.S)
    assert blocks and all(each.rstrip("\n") in sources["code"] for each in blocks)
    links = re.findall(r"\]\(([^)]*)\)", sources["markdown"])
    assert links and all(each.startswith("https://") for each in links)


def test_blocks_become_cells() -> None:
    page = (
        "Text [a](b.md#c).\n\n```sh\npip install .\n```\n\n"
        "This is `m.py`:\n\n```python\nx = 1\n```\n\n"
        '```sh\npython -m bcmend verify m:C --call "3, k=4" --sides all\n```\n\n'
        "It prints.\n\n```text\nout\n```\n\nMore.\n"
    )
    text, file, command, more = notebook_of(page)["cells"]
    assert "".join(text["source"]).endswith("pip install .\n```\n\nThis is `m.py`:")
    assert "/b/#c)." in text["source"][0]
    assert "".join(file["source"]) == "%%writefile m.py\nx = 1"
    imports = "import torch\nfrom m import C\n\nimport bcmend\n\n"
    assert "".join(command["source"]) == f'{imports}bcmend.verify(C(), 3, k=4, sides="all")'
    assert [each["text"] for each in command["outputs"]] == [["out"]]
    assert "".join(more["source"]) == "It prints.\n\nMore."
    with pytest.raises(ValueError, match="--html"):
        notebook_of("```sh\npython -m bcmend explain m:C --html a.html\n```\n")


def run(notebook: dict[str, Any], folder: Path) -> str:
    """Run the cells in a kernel, in a folder, and return the text that they show.

    Raises `CellExecutionError` for a cell that raises.
    """
    import nbclient
    import nbformat

    cells = nbformat.reads(json.dumps(notebook), as_version=4)
    nbformat.validate(cells)
    client = nbclient.NotebookClient(
        cells, timeout=120, kernel_name="python3", resources={"metadata": {"path": str(folder)}}
    )
    client.execute()
    outputs = [output for cell in cells.cells for output in cell.get("outputs", ())]
    pages = (each.get("data", {}).get("text/html", each.get("text", "")) for each in outputs)
    text = re.sub(r"<style>.*?</style>|<[^>]*>", " ", "\n".join(pages), flags=re.DOTALL)
    return re.sub(r"\s+", " ", html.unescape(text))


@pytest.fixture
def kernel(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A folder for a kernel of this Python, which imports this checkout."""
    for name in ("nbclient", "nbformat", "ipykernel"):
        pytest.importorskip(name)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("JUPYTER_PREFER_ENV_PATH", "1")
    return tmp_path


def test_the_notebook_runs(kernel: Path) -> None:
    shown = run(_stored(), kernel)
    places = [shown.find(each) for each in SHOWN]
    assert -1 not in places and places == sorted(places), shown


def test_a_cell_that_fails_is_found(kernel: Path) -> None:
    from nbclient.exceptions import CellExecutionError

    with pytest.raises(CellExecutionError, match="ZeroDivisionError"):
        run(notebook_of("```python\n1 / 0\n```\n\nText.\n"), kernel)
