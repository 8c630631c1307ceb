"""Scans files: has each read by a process of its own, and gathers what it finds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from bcmend.scan.code_files import Archive, code_files
from bcmend.scan.found_sites import FoundSite, Scan, UnreadableFile, printable
from bcmend.scan.reading_process import ReadingProcess


def _nothing(done: int, files: int) -> None:
    pass


def scan(paths: Iterable[str], progress: Callable[[int, int], None] = _nothing) -> Scan:
    """Look for sites in files, folders and archives (`.whl`, `.zip`).

    Left out are dot files and `.pyc` files beside sources. A file that cannot be read, whatever the
    reason, is one of ``warnings``, and the scan goes on.

    Args:
        paths: what to scan.
        progress: is told how many files of how many are done, after each.

    Raises:
        UnusablePath: a path does not exist, or is a file of another kind. Nothing was read then.
    """
    problems: list[str] = []
    sites: list[FoundSite] = []
    unread, opened = 0, None
    files = code_files(paths, problems)
    with ReadingProcess() as process:
        for done, file in enumerate(files, 1):
            opened = _only(file.archive, opened)
            try:
                found, failed = process.sites_in(file.read(), file.name)
            except UnreadableFile as error:
                unread += 1
                problems.append(f"{printable(file.name)}: {error}")
            else:
                sites += found
                problems += failed
            progress(done, len(files))
        _only(None, opened)
    return Scan(len(files), tuple(sites), tuple(problems), unread)


def _only(archive: Archive | None, opened: Archive | None) -> Archive | None:
    """Close the archive that is open unless it is the one that is read next, and return that."""
    if opened is not None and opened is not archive:
        opened.close()
    return archive
