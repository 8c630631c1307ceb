"""The sites of one file, by what is in it: planned, or candidates in code of another Python.

Code of the running Python is planned by `bcmend.rewrite.pipeline`, without globals.
"""

from __future__ import annotations

import importlib.util
import inspect
import marshal
import platform
import warnings
from collections.abc import Iterable, Iterator
from pathlib import PurePath
from types import CodeType
from typing import Final

from bcmend.policy import DEFAULT
from bcmend.rewrite.mended import Context
from bcmend.rewrite.pipeline import may_have_sites, mend
from bcmend.rewrite.sites.plan import (
    BranchLowering,
    GuardLowering,
    OutputLowering,
    Site,
    SiteRefusal,
    TruthLowering,
)
from bcmend.scan.candidates import candidates_in
from bcmend.scan.found_sites import FoundSite, UnreadableFile, one_line, printable

_HEADER: Final = 16  # magic number, flags, and two fields that depend on the flags (PEP 552)
_LOWERINGS: Final = {
    BranchLowering: "branch",
    GuardLowering: "guard",
    OutputLowering: "output",
    TruthLowering: "truth",
}


def sites_in(data: bytes, file: str) -> tuple[list[FoundSite], list[str]]:
    """Return the sites of a file in the order of lines, and a line for each function with none
    because it cannot be planned.

    Args:
        data: the contents of the file.
        file: its name, which ends in `.py` or `.pyc`.

    Raises:
        UnreadableFile: nothing of the file can be read.
    """
    problems: list[str] = []
    try:
        found = sorted(_sites_in(data, file, problems), key=lambda site: site.line or 0)
    except UnreadableFile:
        raise
    except Exception as error:
        # What `marshal` makes of damaged bytes is no code that CPython has made.
        raise UnreadableFile(
            f"cannot be read: {type(error).__name__}: {one_line(error)}"
        ) from error
    return found, problems


def _sites_in(data: bytes, file: str, problems: list[str]) -> Iterator[FoundSite]:
    if file.endswith(".py"):
        code = _compiled(data, file)
    elif data[:4] == importlib.util.MAGIC_NUMBER:
        code = _unmarshalled(data)
    else:
        yield from candidates_in(data, file)
        return
    version = ".".join(platform.python_version_tuple()[:2])
    context = Context(PurePath(file).stem, {}, DEFAULT)
    yield from _planned_in(code, context, file, version, problems)


def _compiled(source: bytes, file: str) -> CodeType:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # doubtful escapes and the like are not our subject
        try:
            return compile(source, file, "exec", dont_inherit=True)
        except SyntaxError as error:
            raise UnreadableFile(f"line {error.lineno}: syntax error: {error.msg}") from error
        except (ValueError, RecursionError, MemoryError) as error:
            raise UnreadableFile(f"cannot be compiled: {one_line(error)}") from error


def _unmarshalled(data: bytes) -> CodeType:
    try:
        code = marshal.loads(data[_HEADER:])
    except Exception as error:  # it documents three kinds; damaged bytes give others
        raise UnreadableFile(f"broken .pyc file: {one_line(error)}") from error
    if not isinstance(code, CodeType):
        raise UnreadableFile("broken .pyc file: holds no code")
    return code


def _planned_in(
    code: CodeType, context: Context, file: str, version: str, problems: list[str]
) -> Iterator[FoundSite]:
    """Yield the sites of a function and of those nested in it, or of each function of a module."""
    inner: Iterable[CodeType] = _nested_in(code)
    if code.co_flags & inspect.CO_OPTIMIZED and may_have_sites(code, context):
        try:
            for owner, site in mend(code, context).sites:
                yield _found(owner, site, file, version)
            # Planning a function covers the functions in it, but not the methods of its classes.
            inner = [each for function in inner for each in _outermost_unplanned(function)]
        except Exception as error:  # damaged code may have anything in it
            line, name = code.co_firstlineno, printable(code.co_qualname)
            why = one_line(error).removeprefix(f"{name}: ")
            problems.append(f"{file}:{line}: {name} cannot be planned: {why}")
    for function in inner:
        yield from _planned_in(function, context, file, version, problems)


def _nested_in(code: CodeType) -> list[CodeType]:
    return [constant for constant in code.co_consts if isinstance(constant, CodeType)]


def _outermost_unplanned(code: CodeType) -> Iterator[CodeType]:
    if code.co_flags & inspect.CO_OPTIMIZED == 0:
        yield code
        return
    for constant in _nested_in(code):
        yield from _outermost_unplanned(constant)


def _found(owner: CodeType, site: Site, file: str, version: str) -> FoundSite:
    decision, function = site.decision, owner.co_qualname
    where = (file, site.line, function, site.kind)
    if isinstance(decision, SiteRefusal):
        return FoundSite(*where, "refused", None, decision.slug, decision.detail, version)
    return FoundSite(*where, "planned", _LOWERINGS[type(decision)], None, "", version)
