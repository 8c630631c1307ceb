"""Where code stands, as a reader knows it: paths, lines of source, packages, names of breaks."""

from __future__ import annotations

import functools
import linecache
import os
import re
import site
import sys
import sysconfig
from pathlib import Path
from typing import Final

#: How much of a line of source is shown.
_SHOWN: Final = 160


def shown_path(file: str) -> str:
    """Return a path as it is from where packages are installed, or from the working directory.

    A path that is in neither stays as it is. A cell of a notebook is "cell 2", by what counts the
    cells that were run.
    """
    if cell := _cell(file):
        return cell
    installed = _installed_path(file)
    if installed is not None:
        return installed
    here = os.getcwd() + os.sep
    return file.removeprefix(here)


def shown_place(file: str, line: int | None) -> str:
    """Return the path and the line of a place in one text."""
    return f"{shown_path(file)}:{'?' if line is None else line}"


def short_place(file: str, line: int | None) -> str:
    """Return the name of a file, without its folder, and a line."""
    return f"{_cell(file) or Path(file).name}:{'?' if line is None else line}"


def _cell(file: str) -> str:
    """Return what a cell of a notebook is called; empty for what is none.

    IPython names cells ``<ipython-input-2-1a2b3c>``; its kernel writes paths of files that there
    are not, such as ``/tmp/ipykernel_123/456.py``, and knows the numbers.
    """
    if found := _IN_IPYTHON.match(file):
        return f"cell {found[1]}"
    if not _IN_A_KERNEL.search(file):
        return ""
    numbered = _IN_BRACKETS.search(_name_of_code(file))
    return f"cell {numbered[1]}" if numbered else "a cell"


def _name_of_code(file: str) -> str:
    """Return what the running IPython calls the code of a cell, such as "Cell In[2]"."""
    running = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    formatted = getattr(getattr(running, "compile", None), "format_code_name", None)
    if formatted is None:
        return ""
    return " ".join(map(str, formatted(file) or ()))


_IN_IPYTHON: Final = re.compile(r"<ipython-input-(\d+)-")
_IN_A_KERNEL: Final = re.compile(r"[/\\]ipykernel_\d+[/\\]\d+\.py$")
_IN_BRACKETS: Final = re.compile(r"\[(\d+)\]")


def named_break(number: str, kind: str) -> str:
    """Return what Dynamo calls a graph break, behind its number where it has one."""
    return f"{number} {kind}".lstrip()


def source_line(file: str, line: int | None) -> str:
    """Return a line as it is written, without indentation; empty where the source is not there."""
    text = linecache.getline(file, line or 0).strip()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]} ..."


def package_of(file: str) -> str:
    """Return name and version of the installed package of a file; empty where it is in none."""
    installed = _installed_path(file)
    if installed is None:
        return ""
    from importlib.metadata import PackageNotFoundError, version  # which takes long

    name = Path(installed).parts[0].removesuffix(".py")
    try:
        return f"{name} {version(name)}"
    except PackageNotFoundError:
        return name  # the distribution has another name than the package


def owner_of(file: str) -> str:
    """Return whose the code of a file is that the user does not write; empty for all other."""
    if found := package_of(file):
        return found
    return "Python's standard library" * file.startswith(f"{sysconfig.get_path('stdlib')}{os.sep}")


def _installed_path(file: str) -> str | None:
    """Return a path from where packages are installed; ``None`` where it is not in there."""
    for folder in _installed_in():
        if file.startswith(folder):
            return file.removeprefix(folder)
    return None


@functools.cache
def _installed_in() -> tuple[str, ...]:
    """Return the folders in which packages are installed, each with a separator at its end."""
    paths = sysconfig.get_paths()
    found = [paths["purelib"], paths["platlib"], site.getusersitepackages()]
    return tuple(f"{each}{os.sep}" for each in dict.fromkeys([*found, *site.getsitepackages()]))
