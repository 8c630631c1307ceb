"""What a test can assert of what is compiled: an ``AssertionError`` says what is not so."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from bcmend.dynamo.breaks.noted_breaks import Break, noted_breaks
from bcmend.errors import CallError
from bcmend.knowledge.domains import Domain
from bcmend.reports.explanation import Explanation, listed
from bcmend.reports.places import named_break, shown_place, source_line
from bcmend.reports.texts import plural
from bcmend.reports.verdict import Verdict
from bcmend.testing.limits import require_count, require_limit
from bcmend.trials import captures
from bcmend.trials.capturing import raised_as_one_graph
from bcmend.trials.explaining import explain
from bcmend.trials.verifying import verify


def assert_one_graph(obj: Any, *args: Any, **kwargs: Any) -> None:
    """Fail unless a call of ``obj``, mended, is captured with ``fullgraph=True``.

    The text of the failure has each graph break that remains, with its place and its reason. The
    calls are made as for `bcmend.explain`, and leave nothing behind.

    Args:
        obj: an ``nn.Module``, a Python function, a bound method, or what ``torch.compile`` made of
            one of these.
        args, kwargs: what it is called with.

    Raises:
        AssertionError: it is not captured in one graph, or the call raises.
        BcmendError: as for `bcmend.explain`.
    """
    __tracebackhide__ = True  # pytest shows the line of the test
    raised = raised_as_one_graph(obj, *args, **kwargs)
    if raised:
        raise AssertionError(_not_one_graph(explain(obj, *args, backend="eager", **kwargs), raised))


def assert_same_as_eager(obj: Any, *args: Any, **kwargs: Any) -> Verdict:
    """Fail unless mended calls of ``obj`` show what eager ones do; return the verdict.

    The arguments and the errors are those of `bcmend.verify`.

    Raises:
        AssertionError: something differs, or each call raised, so that nothing else was compared.
        BcmendError: as for `bcmend.verify`.
    """
    __tracebackhide__ = True
    verdict = verify(obj, *args, **kwargs)
    if not verdict.equal or verdict.each_call_raised:
        raise AssertionError(str(verdict))
    return verdict


def check_capture(
    target: Callable[..., Any],
    domain: Domain,
    *,
    programs: int = 18,
    seed: int = 0,
    backend: str = "eager",
    train: bool = False,
) -> None:
    """Fail unless calls of ``target`` are captured, and equal, wherever they stand in a program.

    Programs are made of the domain: the call by itself, twice, in one arm and in both, in a loop,
    in a handler, behind a check, printed, stored. Each is called four times in a row, and compared
    with eager execution as `bcmend.verify` does. Where the call stands by itself, it has to be
    captured in one graph. What stock torch shows in the same way is left out.

    Args:
        target: what was registered with `bcmend.register_capture`, or what bcmend captures.
        domain: with which arguments it is called; see `bcmend.testing.domain`.
        programs: how many are tried; nine have each form once.
        seed: chooses forms and arguments.
        backend: of `torch.compile`, as for `bcmend.verify`.
        train: have gradients go back through what the programs return.

    Raises:
        AssertionError: a program differs, which the text has whole; or a call by itself is not
            captured.
        CallError: an argument is none of those.
        TrialError: the calls could not be made.
    """
    __tracebackhide__ = True
    require_count("check_capture(programs=...)", programs)
    if not callable(target):
        raise CallError(f"check_capture takes something to be called, got {target!r}")
    if not isinstance(domain, Domain):
        raise CallError(f"check_capture takes a bcmend.testing.domain(...), got {domain!r}")
    chooser = random.Random(seed)
    for program in itertools.islice(captures.programs(domain, chooser), programs):
        found = captures.tried(program, target, backend=backend, trains=train)
        if found.difference is not None and not found.difference.stock:
            raise AssertionError(f"{found.difference}\n\n{program}")
        if program.form == captures.ALONE and not found.is_one_graph:
            raise AssertionError(f"the call is not captured in one graph\n\n{program}")


@contextmanager
def graph_breaks(*, max: int) -> Iterator[None]:
    """Fail where what is compiled in the block has more than ``max`` graph breaks, all together.

    What was compiled before is dropped (`torch.compiler.reset`) and compiled anew when it is
    called, so that its breaks count too. A frame that Dynamo leaves to Python as a whole counts as
    one. Other threads must not compile meanwhile.

    Args:
        max: how many graph breaks there may be, 0 or more.

    Raises:
        AssertionError: there are more; the text has each, with its place and its reason.
        CallError: ``max`` is no such number.
    """
    __tracebackhide__ = True
    require_limit(max)
    torch.compiler.reset()
    with noted_breaks() as found:
        yield
    if len(found) > max:
        raise AssertionError(_too_many(found, max))


def _not_one_graph(found: Explanation, raised: str) -> str:
    if found.raised:
        return f"the call of {found.subject} raises {found.raised}"
    lines = [
        f"{found.subject} is not captured in one graph",
        *listed(found.remaining, found.subject),
    ]
    if not found.remaining:
        lines.append(f"the call raises with fullgraph=True: {raised}")
    return "\n".join(lines)


def _too_many(found: Sequence[Break], limit: int) -> str:
    lines = [f"{plural(len(found), 'graph break')}, at most {limit} allowed"]
    for number, each in enumerate(found, 1):
        lines += ["", f"{number}. {shown_place(each.file, each.line)}  {each.function}"]
        details = f"| {source_line(each.file, each.line)}", named_break(each.number, each.kind)
        lines += [f"   {line}" for line in (*details, each.explanation) if line.strip("| ")]
    return "\n".join(lines)
