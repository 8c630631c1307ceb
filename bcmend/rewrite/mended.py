"""The context in which a function is mended, and the result."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import CodeType
from typing import Any

from bcmend.policy import Policy
from bcmend.rewrite.sites.plan import Site, SiteRefusal


def _alone(name: str, code: CodeType) -> str:
    return name


Places = frozenset[tuple[int, int]]
"""Identities of code objects, each with an offset in that code."""


@dataclass(frozen=True, slots=True)
class Context:
    """What mending reads besides the code.

    Attributes:
        module: name of the module that the function belongs to.
        names: the module's globals.
        policy: the user's choices.
        asked: jumps at which Dynamo was seen to stop; they are mended even if nothing in the code
            says that their conditions may be tensors.
        wide: those of them whose live-outs have no common form at the join; wider forms are tried.
        splits: instructions that were seen to read a phi without a common form.
        calls: calls at which Dynamo was seen to stop.
        masked_loops: loops whose iterations were seen to be data-dependent.
        joined_exits: jumps of loops that were seen to be left from within a branch.
        key_for: makes the name of a site of a code object one that no other code has; functions
            that are made twice, or on one line, would have the same names otherwise.
    """

    module: str
    names: Mapping[str, Any]
    policy: Policy
    asked: Places = frozenset()
    wide: Places = frozenset()
    splits: Places = frozenset()
    calls: Places = frozenset()
    masked_loops: Places = frozenset()
    joined_exits: Places = frozenset()
    key_for: Callable[[str, CodeType], str] = _alone

    @property
    def seen(self) -> Places:
        """All places that traces have reported."""
        return self.asked | self.splits | self.calls | self.masked_loops | self.joined_exits


def offsets_in(code: CodeType, places: Places) -> list[int]:
    """Return the offsets of those of ``places`` that are in ``code``."""
    return [offset for code_id, offset in places if code_id == id(code)]


@dataclass(frozen=True, slots=True)
class Written:
    """The code objects that were written for one function.

    ``shell`` is what its ``__code__`` becomes, ``body`` what the shell calls (for a generator, the
    shell itself), and ``sources`` has the original of each code object written.
    """

    shell: CodeType
    body: CodeType
    sources: Mapping[CodeType, CodeType]


@dataclass(frozen=True)
class Mended:
    """The result of mending one function.

    Attributes:
        original: the code object it was made from.
        sites: of the function and of the functions nested in it, with the code each belongs to.
        write: writes the code objects; called once, and only on demand if nothing is lowered.
    """

    original: CodeType
    sites: tuple[tuple[CodeType, Site], ...]
    write: Callable[[], Written] = field(repr=False)

    @property
    def has_lowerings(self) -> bool:
        return any_lowered(self.sites)

    @cached_property
    def written(self) -> Written:
        """The code objects. Raises ``ValueError`` where they cannot be made."""
        return self.write()

    @property
    def is_written(self) -> bool:
        return "written" in vars(self)

    @property
    def shell(self) -> CodeType:
        return self.written.shell

    @property
    def body(self) -> CodeType:
        return self.written.body

    @property
    def sources(self) -> Mapping[CodeType, CodeType]:
        return self.written.sources


def any_lowered(sites: Iterable[tuple[CodeType, Site]]) -> bool:
    return any(not isinstance(site.decision, SiteRefusal) for _, site in sites)
