"""What became of a site, and of a trace that was given up: the rows of a report."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from bcmend.reports.source import Span
from bcmend.reports.texts import plural


@dataclass(frozen=True, slots=True)
class SiteRecord:
    """One place in the program where a graph break was found, and what became of it.

    Attributes:
        name: the name by which a policy can switch the site off.
        file: the source file that the code object names.
        line: the source line, or None where the code object has none.
        function: the qualified name of the function.
        offset: the offset of the site's instruction in the original bytecode, in bytes.
        kind: "branch", "loop", "guard", "output" or another kind of site.
        status: "mended", "known" (the truth of the condition is, and there is no branch in the
            graph), "refused", "withdrawn" or "planned".
        lowering: what the site was rewritten to; None where it was not rewritten.
        refusal: the slug of the reason why it was not rewritten; None where it was.
        detail: anything more that is known of this very site, such as a compiler's message.
        clone_bytes: of deferred output and checks, how many bytes of tensors each call copies
            because they are changed later in it; None for other sites, or where it is not known.
        span: where the expression stands; None where it is not known.
    """

    name: str
    file: str
    line: int | None
    function: str
    offset: int
    kind: str
    status: str
    lowering: str | None
    refusal: str | None
    detail: str = ""
    clone_bytes: int | None = None
    span: Span | None = None

    @property
    def cost(self) -> str:
        """What each call copies, in a few words; empty if nothing is copied."""
        size = self.clone_bytes
        return f"copies {plural(size, 'byte')} of tensors" if size else ""


@dataclass(frozen=True, slots=True)
class Retrace:
    """One trace that was given up, whereupon the code was traced again or run in plain Python.

    Attributes:
        file: the source file of the function in which it stopped.
        line: the source line, or None where it is not known.
        function: the qualified name of the function.
        reason: what Dynamo or bcmend says of it, in one line.
        stays: whether the graph breaks there from then on.
        begins: whether it is the first of an object that waited, of code that was not mended yet.
        span: where the expression stands at which it stopped; None where it is not known.
    """

    file: str
    line: int | None
    function: str
    reason: str
    stays: bool = False
    begins: bool = field(default=False, compare=False)
    span: Span | None = field(default=None, compare=False)


def counted(retraces: Iterable[Retrace]) -> list[tuple[Retrace, int]]:
    """Return each trace that has stopped at its place for its reason, and how often it has."""
    return list(Counter(replace(each, stays=False) for each in retraces).items())


def retraced(retraces: Sequence[Retrace]) -> str:
    """Return how often code was traced again."""
    count = len(retraces)
    return f"traced again {'once' if count == 1 else f'{count} times'}, after a stop at"


def times(count: int) -> str:
    """Return how often something was, in brackets; empty for once."""
    return f" ({count} times)" if count > 1 else ""
