"""What users are told where a graph still breaks in patched code: where, why, what to do."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from itertools import pairwise
from traceback import format_list
from types import CodeType
from typing import Final, NamedTuple

from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo import compat, frames
from bcmend.reasons import REASONS
from bcmend.reports.advice import advice_for, advice_without_a_site
from bcmend.reports.places import shown_place, source_line
from bcmend.tracing.deopt import one_sided
from bcmend.tracing.search import log
from bcmend.tracing.sites.session import SESSION
from bcmend.tracing.speculation import arm_failures

_LOG: Final = logging.getLogger("bcmend")
_EXPLAIN: Final = "bcmend.explain(obj, ...) lists every break, bcmend.why(obj) every trace."


_NO_WAY: Final = "bcmend knows no way to capture this."
_LAYERS: Final = (
    "Under fullgraph=True recurrent layers are captured, unless they draw or run under autocast. "
    "Where graphs may break they stay calls between graphs, since long sequences, unrolled, take a "
    "compiler its time."
)
_AS_ASKED: Final = "The program asks for it; bcmend leaves such breaks alone."
_ONE_SIDED_POLICY: Final = 'Policy(one_sided="exit")'
_ONE_SIDED: Final = (
    f"With {_ONE_SIDED_POLICY} the graph has one of its sides; calls that take the other are "
    "made in plain Python."
)
#: What Dynamo says of recurrent layers.
_OF_LAYERS: Final = "RNN, GRU, or LSTM"
#: What Dynamo's kinds of graph break have in their names where the program asks for one.
_ASKED_FOR: Final = ("graph_break()", "compiler.disable")


class _Place(NamedTuple):
    """A line at which a trace has stopped."""

    code: CodeType
    line: int

    def words(self) -> str:
        file = self.code.co_filename
        source = source_line(file, self.line)
        shown = f"{shown_place(file, self.line)}, {self.code.co_qualname}"
        return f"{shown}: `{source}`" if source else shown


#: The files and lines that were warned of.
_WARNED: Final[set[tuple[str, int]]] = set()


def warn(error: BaseException) -> None:
    """Log, once for each line, that a call goes on in several graphs."""
    place = _place(error)
    if not _is_a_break(error) or place is None or (place.code.co_filename, place.line) in _WARNED:
        return
    _WARNED.add((place.code.co_filename, place.line))
    if _is_switched_off(place):
        return  # as the program asks for
    _LOG.warning(
        "bcmend: the graph still breaks at %s\n  %s\n  The call gives what eager execution gives, "
        "in more than one graph. %s",
        place.words(),
        "\n  ".join(_why(place, error)),
        _EXPLAIN,
    )


def add_to(error: BaseException) -> None:
    """Note on an error of torch, which is going to be raised, why bcmend has not prevented it."""
    place = _place(error) if _is_a_break(error) else None
    if place is not None and not getattr(error, "__notes__", None):
        why = "\n  ".join(_why(place, error, with_reason=False))
        error.add_note(f"bcmend: the graph breaks at {place.words()}\n  {why}\n  {_EXPLAIN}")
    _remove_own_frames(error)


def _is_a_break(error: BaseException) -> bool:
    """Return whether Dynamo cannot capture something; else the program itself has failed."""
    if not isinstance(error, (compat.Unsupported, compat.UserError)):
        return False
    raised = error.__cause__ or error.__context__
    if isinstance(raised, compat.ObservedException):  # which nothing has caught
        return arm_failures.whether_raised(raised) is not arm_failures.Raised.CERTAIN
    return arm_failures.whether_raised(error) is arm_failures.Raised.UNKNOWN


def _place(error: BaseException) -> _Place | None:
    stopped = frames.of_the_program_in(error)
    if not stopped:
        return None
    return _Place(SESSION.patcher.source_of(stopped[-1].f_code), frames.line_of(stopped[-1]))


def _why(place: _Place, error: BaseException, *, with_reason: bool = True) -> Iterator[str]:
    """Yield what Dynamo says, and what bcmend has not done about it."""
    if with_reason:
        yield f"Dynamo: {log.reason_of(error)}"
    refusal = SESSION.patcher.refusal_at(place.code, place.line)
    if refusal is None:
        yield _without_a_site(error, place)
        return
    slug, detail = refusal
    known = REASONS[slug]
    is_one_sided = one_sided.is_possible_at(place.code, place.line)
    yield f"bcmend has left it alone ({slug}): {detail or known.meaning}"
    advice = advice_for(slug, detail, place.code.co_filename, "branch" * is_one_sided)
    yield f"What to do: {advice}"
    if is_one_sided and _ONE_SIDED_POLICY not in advice:
        yield _ONE_SIDED


def _is_switched_off(place: _Place) -> bool:
    """Return whether the source says that bcmend is to leave a place alone."""
    refusal = SESSION.patcher.refusal_at(place.code, place.line)
    return refusal is not None and refusal[0] == "switched-off"


def _without_a_site(error: BaseException, place: _Place) -> str:
    """Return what is said of a break that is at no site of bcmend's."""
    if _OF_LAYERS in str(error):
        return _LAYERS
    is_asked_for = any(each in str(getattr(error, "gb_type", "")) for each in _ASKED_FOR)
    if is_asked_for:
        return _AS_ASKED
    return f"{_NO_WAY} {advice_without_a_site(place.code.co_filename)}"


def _remove_own_frames(error: BaseException) -> None:
    """Remove from the message the frames of shells: each stands before that of its body."""
    shells = {_known_by(each) for each in _shells(error)}
    stack = list(getattr(error, "real_stack", None) or ())
    for outer, inner in pairwise(stack):
        known = outer.filename, outer.lineno, outer.name
        if known in shells and error.args and isinstance(error.args[0], str):
            entry, body = format_list([outer])[0], format_list([inner])[0]
            error.args = (error.args[0].replace(entry + body, body), *error.args[1:])


def _shells(error: BaseException) -> Iterator[compat.Tracer]:
    traced = {id(each): each for each in frames.traced_in(error)}
    for outer, inner in pairwise(traced.values()):
        is_same = origin_of(outer.f_code) == origin_of(inner.f_code)
        if is_same and frames.is_of_patched(outer.f_code) and _is_at_its_head(outer):
            yield outer


def _is_at_its_head(frame: compat.Tracer) -> bool:
    return bool(frame.lineno == frame.f_code.co_firstlineno)


def _known_by(frame: compat.Tracer) -> tuple[str, int, str]:
    return frame.f_code.co_filename, frame.lineno, frame.f_code.co_name
