"""Why Dynamo has traced code again: one record for each trace that was given up."""

from __future__ import annotations

from collections.abc import Iterable
from types import CodeType
from typing import Any, Final

from bcmend.bytecode.names_used import origin_of
from bcmend.dynamo import compat, frames, hooks
from bcmend.dynamo.models import methods
from bcmend.site_report import Retrace

#: How many records are kept for a code object.
_KEPT: Final = 100
#: The records, by the place of the code at which the traces began.
_RECORDS: Final[dict[tuple[str, str, int], list[Retrace]]] = {}


@hooks.around(compat.convert_frame, methods.TRACE_FRAME, "note why code is traced again", gate=None)
def _trace_frame(trace: Any, code: CodeType, *others: Any, **named: Any) -> Any:
    try:
        return trace(code, *others, **named)
    except BaseException as error:
        if frames.is_of_patched(code):  # no report reads the others
            note(code, error)
        raise


def note(code: CodeType, error: BaseException) -> None:
    """Note that a trace that began at ``code`` has ended in an error."""
    stopped = [each for each in frames.traced_in(error) if frames.is_of_the_program(each.f_code)]
    place, line = code, None
    if stopped:
        place, line = stopped[-1].f_code, stopped[-1].lineno
    records = _RECORDS.setdefault(origin_of(code), [])
    if len(records) < _KEPT:
        records.append(Retrace(place.co_filename, line, place.co_qualname, _reason(error)))


def _reason(error: BaseException) -> str:
    for name in ("restart_reason", "gb_type"):
        if found := getattr(error, name, None):
            return str(found)
    first_line, *_ = str(error).splitlines() or [""]
    return first_line or type(error).__name__


def retraces(codes: Iterable[CodeType]) -> tuple[Retrace, ...]:
    """Return the records of traces that began at ``codes``, those of each in order."""
    places = dict.fromkeys(map(origin_of, codes))
    return tuple(record for place in places for record in _RECORDS.get(place) or ())


def forget(codes: Iterable[CodeType]) -> None:
    """Remove the records of traces that began at ``codes``."""
    for code in codes:
        _RECORDS.pop(origin_of(code), None)
