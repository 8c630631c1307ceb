"""The tables of all kinds that were measured, as a page of the documentation."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from corpus.towers.kind import Kind
from corpus.towers.measure import Measurement, Way

_INTRODUCTION: Final = """\
# Numbers out of tensors

Small modules that read numbers out of tensors, each after a kind of code in the vision, video,
audio and text models of libraries, with random weights. Each is called twenty times in at least
five layouts (so many images, clips or texts of such sizes), as it is and mended, each without and
with `fullgraph=True`. It is also called as written by hand, with its numbers read in front of the
call. Written with torch {release} by

```sh
python -m corpus.towers --out FILE
python -m corpus.towers --train --out FILE
python -m corpus.towers --backend inductor --out FILE NAME ...
python -m corpus.towers --out FILE --write docs/towers.md
```

*Graphs* are those that run in a call, from the fewest to the most; *compiled* are all that the
twenty calls compile; *whole* tells whether each call is one graph under `fullgraph=True`, equal to
eager execution. With the back end `counting`, which compiles nothing, equal is to the bit. In
training each call is a step of an optimizer.
"""


def whole(results: Iterable[Measurement], way: str) -> int:
    """Return how many kinds are whole in a way."""
    return sum(way in each.ways and each.ways[way].is_whole for each in results)


def graphs(way: Way | None) -> str:
    """Return how many graphs run in a call."""
    if way is None:
        return ""
    if not way.ran:
        return "fails"
    fewest, most = min(way.ran), max(way.ran)
    return str(most) if fewest == most else f"{fewest}-{most}"


def compiled(way: Way | None) -> str:
    """Return how many graphs all calls compile."""
    return "" if way is None or not way.ran else str(sum(way.compiled))


def page(results: Sequence[Measurement], kinds: Sequence[Kind], release: str) -> str:
    """Return the page in Markdown: a table for each back end and mode."""
    lines = [_INTRODUCTION.format(release=release)]
    about = {each.name: _about(each) for each in kinds}
    for backend, mode in dict.fromkeys((each.backend, each.mode) for each in results):
        found = [each for each in results if (each.backend, each.mode) == (backend, mode)]
        lines += [f"## {backend}, {mode}", "", *_summary(found, len(kinds)), ""]
        lines += [*_table(found, about), ""]
    return "\n".join(lines)


def _about(kind: Kind) -> str:
    """Return the first sentence of what a kind says of itself."""
    text = inspect.getdoc(kind.make) or ""
    return " ".join(text.split()).partition(". ")[0].rstrip(".")


def _summary(found: Sequence[Measurement], number: int) -> Iterator[str]:
    stock, mended = whole(found, "stock, fullgraph"), whole(found, "mended, fullgraph")
    yield f"- measured: {len(found)} of {number}"
    yield f"- whole: {stock} with stock, {mended} mended, {whole(found, 'by hand')} by hand"
    yield f"- different from eager execution, mended: {sum(bool(each.faults) for each in found)}"


def _table(found: Iterable[Measurement], about: dict[str, str]) -> Iterator[str]:
    yield "| kind | | stock: graphs, compiled | mended: the same | by hand: compiled | whole |"
    yield "|---|---|---|---|---|---|"
    for each in found:
        stock, mended, hand = map(each.ways.get, ("stock", "mended", "by hand"))
        cells = (
            each.name,
            about.get(each.name, ""),
            f"{graphs(stock)}, {compiled(stock)}",
            f"{graphs(mended)}, {compiled(mended)}",
            compiled(hand),
            _whole_with(each),
        )
        yield f"| {' | '.join(cells)} |"


def _whole_with(found: Measurement) -> str:
    if found.stopped:
        return found.stopped
    stock, mended = (whole([found], f"{way}, fullgraph") for way in ("stock", "mended"))
    return "with stock" if stock and mended else "yes" if mended else "no"
