"""`bcmend.explain`: what the compiler makes of an object, stock and mended side by side."""

from __future__ import annotations

import linecache
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from bcmend.dynamo.breaks.noted_breaks import Break, modules_of
from bcmend.patching.subject import title_of
from bcmend.reports.advice import advice_for
from bcmend.reports.explanation import Cause, Explanation, Side, Treatment
from bcmend.reports.model_tree import Part
from bcmend.reports.outcomes import SiteRecord
from bcmend.reports.site_report import Report
from bcmend.reports.source import span_of
from bcmend.reports.steps import shown, step
from bcmend.trials.apart import TriedCall, makes_copies, run_apart
from bcmend.trials.calls import Counts, Times, counted, timed
from bcmend.trials.subject import only_traces, subject_of


@shown("beginning to explain")
def explain(
    obj: Any, *args: Any, backend: str = "inductor", train: bool = False, **kwargs: Any
) -> Explanation:
    """Return what `torch.compile` makes of ``obj`` without bcmend and with it, and why.

    The object is called several times, each time in a copy of the process: nothing of the caller's
    is changed, and what the calls print is not shown. Where no copy can be made, since there is an
    accelerator or the system makes none, copies of the object are called in this process, and what
    was compiled in it is compiled anew when it is called next. What is patched keeps its policy.

    Args:
        obj: an ``nn.Module``, a Python function, a bound method, or what ``torch.compile`` made of
            one of these.
        args, kwargs: what it is called with.
        backend: of `torch.compile`, for the seconds; graphs are counted without one. With one that
            only traces, such as "eager", no calls are timed but in eager execution.
        train: have a module in training mode, and each call go back from the sum of all floating
            results. Else it is in the mode that it has.

    Raises:
        UnsupportedObject: ``obj`` is nothing that can be patched, or a class.
        CallError: the arguments are not those of the object, or torch has no such back end.
        TrialError: the calls could not be made.
    """
    subject = subject_of(obj, args, kwargs, backend=backend)
    step("eager execution: timing calls")
    is_copied = makes_copies(goes_back=train)
    way = partial(timed, backend=None, is_mended=False, trains=train)
    eager = run_apart(subject, way, is_copied=is_copied)
    (stock, stock_times), (mended, mended_times) = (
        _tried(subject, backend, is_copied, is_mended=is_mended, trains=train)
        for is_mended in (False, True)
    )
    modules = modules_of(subject.obj)
    stock, mended = (_placed(each, modules) for each in (stock, mended))
    return Explanation(
        title_of(obj),
        torch.__version__,
        backend,
        is_copied,
        train,
        eager.later,
        eager.raised,
        _side(stock, stock_times, eager),
        _side(mended, mended_times, eager),
        tuple(_causes(stock, mended)),
        tuple(_parts(modules, stock, mended)),
    )


def _tried(
    subject: TriedCall, backend: str, is_copied: bool, *, is_mended: bool, trains: bool
) -> tuple[Counts, Times | None]:
    name = "mended" if is_mended else "stock"
    step(f"{name}: counting graphs and operators")
    attempt: Any = partial(counted, is_mended=is_mended, trains=trains)
    count = run_apart(subject, attempt, is_copied=is_copied)
    if only_traces(backend):
        return count, None
    step(f"{name}: timing calls that {backend!r} has compiled")
    attempt = partial(timed, backend=backend, is_mended=is_mended, trains=trains)
    return count, run_apart(subject, attempt, is_copied=is_copied)


def _side(count: Counts, times: Times | None, eager: Times) -> Side:
    run = count.inside + count.outside
    return Side(
        count.graphs,
        len(count.breaks),
        count.operators,
        count.inside / run if run else None,
        count.recompiled,
        None if times is None else times.first / eager.later,
        None if times is None else times.later / eager.later,
        count.raised or ("" if times is None else times.raised),
    )


def _causes(stock: Counts, mended: Counts) -> Iterator[Cause]:
    """Yield the places of graph breaks, each once: breaks in several modules have one cause."""
    groups: dict[tuple[object, ...], tuple[list[Break], list[Break]]] = {}
    for at, count in enumerate((stock, mended)):
        for found in count.breaks:
            key = found.file, found.line, found.number or found.kind
            groups.setdefault(key, ([], []))[at].append(found)
    for in_stock, in_mended in groups.values():
        both = in_stock + in_mended
        # A break that leaves all of a frame to Python may be named after that.
        one = min(both, key=lambda each: each.is_whole_frame)
        modules = dict.fromkeys(each.module for each in both if each.module is not None)
        yield Cause(
            one.file,
            one.line,
            one.function,
            linecache.getline(one.file, one.line or 0).strip(),
            tuple(modules),
            one.kind,
            one.number,
            one.explanation,
            len(in_stock),
            len(in_mended),
            tuple(map(_treatment, _sites_at(mended.report, one))),
            tuple(sorted({span for each in both if (span := span_of(each.position))})),
        )


def _placed(count: Counts, modules: Mapping[str, torch.nn.Module]) -> Counts:
    """Return what was counted; a break without a path gets that of whose ``forward`` it is in."""
    forwards: dict[tuple[str, int | None], str] = {}
    for path, module in reversed(list(modules.items())):
        code = getattr(getattr(type(module), "forward", None), "__code__", None)
        if code is not None:
            forwards |= {(code.co_filename, line): path for _, _, line in code.co_lines()}
    breaks = tuple(
        replace(each, module=forwards.get((each.file, each.line))) if each.module is None else each
        for each in count.breaks
    )
    return replace(count, breaks=breaks)


def _parts(modules: Mapping[str, torch.nn.Module], stock: Counts, mended: Counts) -> Iterator[Part]:
    """Yield the submodules with what of graphs and breaks is theirs, then what is in none."""
    sides = stock, mended
    breaks = [Counter(each.module for each in side.breaks) for side in sides]
    kinds = {path: type(module).__name__ for path, module in modules.items()}
    for path, kind in [*kinds.items(), (None, "functions")]:
        graphs = [
            tuple(sorted((graph, n) for (graph, at), n in side.parts.items() if at == path))
            for side in sides
        ]
        counts = [each[path] for each in breaks]
        if path is not None or any(graphs) or any(counts):
            yield Part(path, kind, graphs[0], graphs[1], counts[0], counts[1])


def _sites_at(report: Report | None, place: Break) -> Iterable[SiteRecord]:
    sites = () if report is None else report.sites
    return [each for each in sites if (each.file, each.line) == (place.file, place.line)]


def _treatment(site: SiteRecord) -> Treatment:
    slug = site.refusal or ""
    detail = site.detail.strip().partition("\n")[0]
    how = ": ".join(filter(None, (site.lowering, slug, detail)))
    hint = advice_for(slug, detail, site.file, site.kind)
    return Treatment(site.name, site.kind, site.status, how, hint)
