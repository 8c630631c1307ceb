"""`python -m corpus.patterns [--training] [--backend NAME] [PART OF A NAME, OR TOPIC ...]`.

Runs the patterns and shows a table: what was expected of each, what became of it, and whether it
could be told from eager execution. Then says how many there are of each kind. Exits with 1 if
anything is not as expected.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from corpus.patterns.pattern import Pattern, found_outcome, run, wrong_with
from corpus.patterns.registry import PATTERNS, topic_of, topics


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m corpus.patterns", description=__doc__)
    parser.add_argument(
        "names",
        nargs="*",
        help="run the patterns with such a part in the name, or of such a topic",
    )
    parser.add_argument("--training", action="store_true", help="with gradients")
    parser.add_argument("--backend", default="inductor", help="eager, aot_eager or inductor")
    parser.add_argument(
        "--refused",
        action="store_true",
        help="print the topics and why what is refused is, and run nothing",
    )
    parser.add_argument("--details", action="store_true", help="show every difference")
    return parser


def _totals(patterns: Sequence[Pattern]) -> str:
    branching = [each for each in patterns if each.is_control_flow]
    refused = sum(each.is_refused for each in branching)
    unsettled = sum(bool(each.unsettled_here or each.unequal) for each in branching)
    return (
        f"{len(patterns)} patterns, {len(branching)} of them of control flow: "
        f"{refused} refused for good, {unsettled} not as expected yet"
    )


def page() -> str:
    """Return the page of the topics, of each refused pattern, and of what is not reached yet."""
    count = Counter(map(topic_of, PATTERNS))
    lines = [
        "# Patterns",
        "",
        "Printed by `python -m corpus.patterns --refused`; the programs are in `corpus/patterns`.",
        "What every slug means is said in [refusals.md](refusals.md).",
        "",
        "## Topics",
        "",
        "Each pattern is in the module of one topic: the first of these rows that says what the",
        "pattern is about.",
        "",
        "| topic | what belongs there | patterns |",
        "|---|---|---|",
        *(f"| {name} | {what} | {count[name]} |" for name, what in topics().items()),
        "",
        "## Refused",
        "",
        "| pattern | refusal | when | why |",
        "|---|---|---|---|",
    ]
    for pattern in PATTERNS:
        if pattern.is_refused:
            by_mode = {
                "always": pattern.outcome,
                "with gradients": pattern.training_outcome or (),
            }
            for when, outcome in by_mode.items():
                slugs = [each.removeprefix("refused: ") for each in outcome if "refused" in each]
                lines += [f"| {pattern.name} | {s} | {when} | {pattern.because} |" for s in slugs]
    open_points = [
        (
            each.name,
            each.unsettled or each.unsettled_from_3_12 or each.unsettled_from_2_15 or each.unequal,
        )
        for each in PATTERNS
    ]
    rows = [f"| {name} | {point} |" for name, point in open_points if point]
    if rows:
        lines += ["", "## Not as expected yet", "", "| pattern | how |", "|---|---|", *rows]
    return "\n".join(lines) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the patterns and show the table; 1 if anything is not as expected."""
    options = _parser().parse_args(arguments)
    if options.refused:
        print(page(), end="")
        return 0
    logging.getLogger("torch._dynamo").setLevel(logging.CRITICAL)
    table = Table(title=f"Patterns, back end {options.backend}")
    for heading in ("pattern", "expected", "found", "graphs", "as expected"):
        table.add_column(heading, overflow="fold")
    chosen = [
        each
        for each in PATTERNS
        if not options.names
        or any(name in each.name or name == topic_of(each) for name in options.names)
    ]
    failed = 0
    for pattern in chosen:
        if options.training and not pattern.training:
            continue
        found = run(
            pattern,
            backend=options.backend,
            fullgraph=pattern.is_whole(training=options.training),
            training=options.training,
        )
        wrong = wrong_with(pattern, found, training=options.training)
        open_point = pattern.unsettled_here or pattern.unequal
        failed += bool(wrong) and not open_point
        verdict = "yes" if not wrong else "; ".join(wrong if options.details else wrong[:1])
        if wrong and open_point:
            verdict = f"not yet: {open_point}"
        outcome = found_outcome(found.report) if found.report is not None else ()
        expected = pattern.expected(training=options.training)
        cells = (pattern.name, ", ".join(expected), ", ".join(outcome), str(found.graphs))
        table.add_row(*map(Text, (*cells, verdict)))
    console = Console(width=160)
    console.print(table)
    console.print(_totals(chosen))
    return 1 if failed else 0


if __name__ == "__main__":
    raise SystemExit(main())
