"""The files that a scan reads: single ones, those below a folder, and members of archives."""

from __future__ import annotations

import importlib.util
import os
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bcmend.scan.found_sites import UnreadableFile, one_line, printable

_CODE: Final = (".py", ".pyc")
_ARCHIVES: Final = (".whl", ".zip")
_LARGEST: Final = 64 << 20  # bytes: a larger file is data, or a member that unpacks to too much


class UnusablePath(ValueError):
    """Raised for a path that names neither a folder nor a file that can be scanned."""


class Archive:
    """An archive that is opened when its first member is read, and then stays open."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._opened: zipfile.ZipFile | None = None

    def read(self, member: str) -> bytes:
        """Return the contents of a member; raises whatever a damaged archive makes of it."""
        if self._opened is None:
            self._opened = zipfile.ZipFile(self._path)
        if self._opened.getinfo(member).file_size > _LARGEST:
            raise UnreadableFile(f"is larger than {_LARGEST >> 20} MiB")
        return self._opened.read(member)

    def close(self) -> None:
        """Close the file, which the next read opens again."""
        if self._opened is not None:
            self._opened.close()
            self._opened = None


@dataclass(frozen=True, slots=True)
class CodeFile:
    """A file, or a member of an archive; ``name`` is what it is shown as."""

    name: str
    path: Path
    archive: Archive | None = None

    def read(self) -> bytes:
        """Return the contents.

        Raises:
            UnreadableFile: they cannot be read.
        """
        try:
            if self.archive is not None:
                return self.archive.read(str(self.path))
            if self.path.stat().st_size > _LARGEST:
                raise UnreadableFile(f"is larger than {_LARGEST >> 20} MiB")
            return self.path.read_bytes()
        except UnreadableFile:
            raise
        except OSError as error:
            raise UnreadableFile(error.strerror or one_line(error)) from error
        except Exception as error:  # damaged or encrypted members raise many kinds
            raise UnreadableFile(one_line(error)) from error


def code_files(paths: Iterable[str], problems: list[str]) -> list[CodeFile]:
    """Return the files at paths, each once, without dot files and `.pyc` files beside sources.

    Args:
        paths: files, archives and folders; archives in folders are looked into as well.
        problems: gets a line for each folder or archive that cannot be listed.

    Raises:
        UnusablePath: a path does not exist, or is a file of another kind. Nothing was read then.
    """
    given = [_checked(path) for path in paths]
    found = (file for path in given for file in _files_at(path, problems))
    return list({file.name: file for file in found}.values())


def _checked(text: str) -> Path:
    path = Path(text)
    try:
        is_there, is_folder = path.exists(), path.is_dir()
    except (OSError, ValueError) as error:
        raise UnusablePath(f"no usable path: {text!r}: {one_line(error)}") from error
    if not is_there:
        raise UnusablePath(f"no such file or folder: {text!r}")
    if not is_folder and path.suffix not in (*_CODE, *_ARCHIVES):
        raise UnusablePath(f"neither a folder nor a .py, .pyc, .whl or .zip file: {text!r}")
    return path


def _files_at(path: Path, problems: list[str]) -> Iterator[CodeFile]:
    for file in _below(path, problems) if path.is_dir() else [path]:
        if file.suffix in _ARCHIVES:
            yield from _members(file, problems)
        else:
            yield CodeFile(str(file), file)


def _below(folder: Path, problems: list[str]) -> list[Path]:
    def skipped(error: OSError) -> None:
        problems.append(f"{printable(str(error.filename))}: {error.strerror}")

    found: list[Path] = []
    for place, inner, names in os.walk(folder, onerror=skipped):
        inner[:] = [name for name in inner if not name.startswith(".")]
        visible = (Path(place, name) for name in names if not name.startswith("."))
        found += [file for file in visible if file.suffix in (*_CODE, *_ARCHIVES)]
    return sorted(_without_compiled(found))


def _members(path: Path, problems: list[str]) -> Iterator[CodeFile]:
    try:
        with zipfile.ZipFile(path) as opened:
            names = [Path(each) for each in opened.namelist()]
    except Exception as error:  # documented are `OSError` and `BadZipFile`; damaged ones give more
        text = error.strerror if isinstance(error, OSError) else None
        problems.append(f"{printable(str(path))}: {text or one_line(error)}")
        return
    visible = [
        each
        for each in names
        if each.suffix in _CODE and not any(part.startswith(".") for part in each.parts)
    ]
    archive = Archive(path)
    for member in sorted(_without_compiled(visible)):
        yield CodeFile(f"{path}/{member.as_posix()}", member, archive)


def _without_compiled(files: list[Path]) -> Iterator[Path]:
    """Yield files without the compiled ones that have their source among them."""
    sources = {file for file in files if file.suffix == ".py"}
    for file in files:
        if file.suffix != ".pyc" or _source(file) not in sources:
            yield file


def _source(compiled: Path) -> Path:
    """Return where the source of a compiled file is, or would be."""
    try:
        return Path(importlib.util.source_from_cache(str(compiled)))
    except ValueError:  # not in a `__pycache__`
        return compiled.with_suffix(".py")
