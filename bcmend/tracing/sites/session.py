"""The tables that outlive a trace, and whom tracing asks to patch more.

None of the tables keeps code alive: what no live code refers to goes with the code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import CodeType, FunctionType
from typing import Any, Final

from bcmend.tracing.sites.live_state import BodyState, LiveSite, Stop
from bcmend.weak_tables import ByIdentity


class Patcher:
    """Answers as long as nothing is patched; ``patching.retrace`` puts a derived one in its place.

    Frames come innermost first.
    """

    def mend_where_stopped(self, stops: Sequence[Stop]) -> bool:
        """Mend the code where Dynamo stopped; return whether any was mended."""
        return False

    def mend_jump(self, stops: Sequence[Stop]) -> bool:
        """Mend the innermost jump, the frames around which run mended code; return as above."""
        return False

    def call_on_the_host(self, stops: Sequence[Stop]) -> bool:
        """Have a function in which Dynamo failed called inside the graph; return whether it is."""
        return False

    def split_where_read(self, stops: Sequence[Stop], site: LiveSite | None) -> bool:
        """Split the code that reads a phi without a common form; return whether it was.

        ``site`` is the branch that has left it; ``None`` if no branch has.
        """
        return False

    def widen(self, site: LiveSite) -> bool:
        """Have the arms of a branch go on further in its code; return whether they can."""
        return False

    def mask_loop(self, stops: Sequence[Stop]) -> bool:
        """Rewrite the loop that is being traced, so that it can skip iterations."""
        return False

    def join_exits(self, site: LiveSite) -> bool:
        """Have the turns of the loop around a jump end at one test; return whether they do now."""
        return False

    def is_named_elsewhere(self, name: str, code: CodeType) -> bool:
        """Return whether code reached together with ``code``, other than it, names an attribute."""
        return True

    def refusal_at(self, code: CodeType, line: int) -> tuple[str, str] | None:
        """Return slug and detail of why a site of a line is not mended; ``None`` without one."""
        return None

    def source_of(self, code: CodeType) -> CodeType:
        """Return the original of code that was written; of other code, the code itself."""
        return code

    def as_written(self, function: FunctionType) -> CodeType:
        """Return the code of a function before it was patched."""
        return function.__code__


#: Compares a call with eager execution: given code, how it is made mended and plainly, its
#: arguments, and the sites of which it takes new sides (none: the code is compiled for it). Returns
#: whether the call may be made mended.
Verifier = Callable[
    [CodeType, Callable[[], Any], Callable[[], Any], tuple[Any, ...], tuple[str, ...]], bool
]


@dataclass(slots=True, eq=False)
class Session:
    """The tables of this process.

    Attributes:
        patcher: whom to ask to patch more.
        sites: the live sites, by their keys.
        off: by key of a site that no plan lists, and that was not met yet, why it is withdrawn.
        verifier: compares calls, where a policy asks for it.
        bodies: what is known of the bodies that Dynamo compiles, by their code.
    """

    patcher: Patcher = field(default_factory=Patcher)
    off: dict[str, tuple[str, str]] = field(default_factory=dict)
    verifier: Verifier | None = None
    sites: dict[str, LiveSite] = field(default_factory=dict)
    bodies: ByIdentity[CodeType, BodyState] = field(default_factory=ByIdentity)


SESSION: Final = Session()
