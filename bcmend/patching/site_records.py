"""What a report says of each site that an object reaches."""

from __future__ import annotations

import itertools
import platform
from collections.abc import Iterable, Sequence
from importlib import import_module
from types import CodeType, FunctionType
from typing import TYPE_CHECKING, NamedTuple

import torch

from bcmend.bytecode.names_used import code_objects
from bcmend.names import SPLIT
from bcmend.patching.installer import analysed
from bcmend.patching.table import TABLE
from bcmend.policy import DEFAULT, Policy
from bcmend.reports.outcomes import Retrace, SiteRecord
from bcmend.reports.search_report import FindingRecord, TraceRecord
from bcmend.reports.source import span_at, span_of
from bcmend.rewrite.sites.plan import Site, SiteRefusal
from bcmend.tracing.search import log
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.sites import site_table
from bcmend.tracing.sites.live_state import ONE_SIDED

if TYPE_CHECKING:
    from bcmend.reports.bytecode_pair import CodePair


def site_records(functions: Sequence[FunctionType], policy: Policy) -> tuple[SiteRecord, ...]:
    """Return a record of each site in functions, patched or not, and of each replaced call."""
    records: dict[str, SiteRecord] = {}
    for function in functions:
        mended = analysed(function, policy)
        for code, site in () if mended is None else mended.sites:
            record = _record(code, site)
            # A split that was not made is no stop: the branch behind it has the outcome.
            if site.kind != SPLIT or record.status == "mended" or _reads_item(site):
                records[site.name] = record
    for live, code in site_table.met_at(_places(functions)):
        place = code.co_filename, live.line, code.co_qualname, 0
        records[live.key] = SiteRecord(live.key, *place, live.kind, *_outcome_of(live))
    return tuple(records.values())


def _reads_item(site: Site) -> bool:
    """Return whether a split, made or not, was for an item at a data-dependent place."""
    live = site_table.find(site.name)
    return live is not None and live.outcome.reads_item


def _places(functions: Iterable[FunctionType]) -> set[tuple[str, int | None]]:
    """Return the files and lines of functions and of those nested in them."""
    outer = {code for each in functions for code in (TABLE.as_written(each), each.__code__)}
    return {
        (code.co_filename, line)
        for each in outer
        for code in code_objects(each)
        for _, _, line in code.co_lines()
    }


def _record(code: CodeType, site: Site) -> SiteRecord:
    place = code.co_filename, site.line, code.co_qualname, site.offset
    live = site_table.find(site.name)
    if isinstance(site.decision, SiteRefusal):
        outcome = _Outcome("refused", None, site.decision.slug, site.decision.detail)
    else:
        outcome = _outcome_of(live)
    copied = live.outcome.clone_bytes if live is not None and outcome.status == "mended" else None
    span = span_at(code, site.offset)
    return SiteRecord(site.name, *place, site.kind, *outcome, clone_bytes=copied, span=span)


class _Outcome(NamedTuple):
    """What a site became, in the order of the fields of a ``SiteRecord``."""

    status: str
    lowering: str | None = None
    refusal: str | None = None
    detail: str = ""


def _outcome_of(live: site_table.LiveSite | None) -> _Outcome:
    if live is None:
        return _Outcome("planned")
    found = live.outcome
    if live.withdrawn and found.lowering != ONE_SIDED:
        return _Outcome("withdrawn", None, live.withdrawn, live.detail)
    if found.known and not found.lowering:
        return _Outcome("known", None, None, found.known)
    if found.refused:
        return _Outcome("refused", None, *next(iter(found.refused.items())))
    if found.lowering:
        return _Outcome("mended", found.lowering, None, found.why)
    return _Outcome("planned")


def retraces(codes: Iterable[CodeType]) -> tuple[Retrace, ...]:
    """Return the traces that began at ``codes`` and were given up, those of each in order."""
    return tuple(
        Retrace(
            each.file,
            each.line,
            each.function,
            each.reason,
            _has_led_to(each, Claim.WHOLE),
            _has_led_to(each, Claim.CAPTURED),
            span_of(each.position),
        )
        for each in log.traces(codes)
        if each.reason
    )


def are_whole(codes: Iterable[CodeType]) -> bool:
    """Return whether all that was traced of ``codes`` was captured in one graph in the end."""
    found = [log.traces([code]) for code in codes]
    latest = [traces[-1] for traces in found if traces]
    may_break = any(_has_led_to(each, Claim.WHOLE) for traces in found for each in traces)
    return bool(latest) and not may_break and not any(each.reason for each in latest)


def _has_led_to(trace: log.Trace, claim: Claim) -> bool:
    """Return whether a trace has shown that something does not hold."""
    return any(found.claim is claim for found in trace.findings)


def bytecode(functions: Iterable[FunctionType]) -> tuple[CodePair, ...]:
    """Return the functions that were written anew for their sites, before and after."""
    from bcmend.reports.bytecode_pair import pairs_of  # which few need

    found = [TABLE.of(each) for each in functions]
    written = [each for each in found if each is not None and each.mended.has_lowerings]
    pairs = (pairs_of(each.original, each.mended.body) for each in written)
    return tuple(itertools.chain.from_iterable(pairs))


class Circumstances(NamedTuple):
    """What a report says of where it was made: fields of a ``Report``."""

    versions: tuple[tuple[str, str], ...]
    policy: str
    packages: tuple[str, ...]
    unmatched: tuple[str, ...]


def circumstances(
    functions: Iterable[FunctionType], policy: Policy, sites: Iterable[SiteRecord]
) -> Circumstances:
    """Return versions, policy and installed packages of functions, of which some are patched."""
    from bcmend.reports.places import package_of

    patched = [found for each in functions if (found := TABLE.of(each)) is not None]
    policies = dict.fromkeys(each.policy for each in patched) or {policy: None}
    versions = (
        ("bcmend", import_module("bcmend").__version__),
        ("torch", str(torch.__version__)),
        ("Python", platform.python_version()),
    )
    packages = {package_of(each.original.co_filename) for each in patched}
    chosen = "; ".join(filter(None, map(_choices, policies)))
    names = [each.name for each in sites]
    unmatched = dict.fromkeys(entry for each in policies for entry in each.unmatched(names))
    return Circumstances(versions, chosen, tuple(sorted(filter(None, packages))), tuple(unmatched))


def _choices(policy: Policy) -> str:
    """Return what of a policy is not the default, as a call; empty where all is."""
    names = policy.__dataclass_fields__
    own = {name: getattr(policy, name) for name in names}
    changed = [f"{name}={each!r}" for name, each in own.items() if each != getattr(DEFAULT, name)]
    return f"Policy({', '.join(changed)})" if changed else ""


def traces(codes: Iterable[CodeType]) -> tuple[TraceRecord, ...]:
    """Return the traces that began at ``codes``, those of each in order."""
    return tuple(
        TraceRecord(
            each.began,
            each.file,
            each.line,
            each.function,
            each.reason,
            each.seconds,
            tuple(map(_finding, each.findings)),
        )
        for each in log.traces(codes)
    )


def _finding(found: Finding) -> FindingRecord:
    row = found.claim.value
    return FindingRecord(
        found.subject.name, row.meaning, found.evidence, row.instead, row.lifetime.value
    )
