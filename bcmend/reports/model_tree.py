"""The submodules of a model with their graphs and breaks, stock and mended: rows of one picture.

Reads what `explain` has counted of each submodule. Modules without a break fold together, and so do
equal neighbours, such as the layers of a list: Dynamo compiles their code once, for the first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bcmend.reports.texts import plural

#: What functions that are of no submodule are called.
_FUNCTIONS: Final = "functions"


@dataclass(frozen=True, slots=True)
class Part:
    """A submodule, and what of the graphs and breaks of a first call is its own.

    Attributes:
        path: its path, "" of the object itself; None for functions that are of no submodule.
        kind: the name of its class.
        stock, mended: the numbers of the graphs that hold operators of its own, with how many.
        stock_breaks, mended_breaks: how many graph breaks are in it, and in no submodule of it.
    """

    path: str | None
    kind: str
    stock: tuple[tuple[int, int], ...] = ()
    mended: tuple[tuple[int, int], ...] = ()
    stock_breaks: int = 0
    mended_breaks: int = 0


class Bar(NamedTuple):
    """What of a row one side has: graphs with their operators, the breaks, and how long it is."""

    graphs: tuple[tuple[int, int], ...]
    breaks: int
    share: float

    @property
    def operators(self) -> int:
        """How many operators are in the graphs."""
        return sum(count for _, count in self.graphs)

    @property
    def title(self) -> str:
        """What it shows, in words."""
        graphs = f"{plural(self.operators, 'operator')} in {plural(len(self.graphs), 'graph')}"
        return f"{graphs}, {plural(self.breaks, 'break')} here"


@dataclass(frozen=True, slots=True)
class Row:
    """A line of the picture.

    Attributes:
        depth: how deep it stands in the tree, from 0.
        name: of the submodule, or of what is folded.
        kind: of which class it is; empty for what is folded, and where that is its name.
        paths: the submodules that it shows.
        stock, mended: what each side has.
    """

    depth: int
    name: str
    kind: str
    paths: tuple[str | None, ...]
    stock: Bar
    mended: Bar

    @property
    def path_text(self) -> str:
        """The paths of what it shows; empty for the object itself, and for what is folded."""
        return ", ".join(_FUNCTIONS if each is None else each for each in self.paths)


@dataclass(slots=True)
class _Node:
    """A submodule, or equal ones, with those below."""

    name: str
    kind: str
    paths: list[str | None]
    graphs: tuple[Counter[int], Counter[int]] = field(
        default_factory=lambda: (Counter(), Counter())
    )
    breaks: list[int] = field(default_factory=lambda: [0, 0])
    children: dict[str, _Node] = field(default_factory=dict)

    @property
    def breaks_below(self) -> bool:
        return any(self.breaks) or any(each.breaks_below for each in self.children.values())

    @property
    def size(self) -> int:
        return len(self.paths) + sum(each.size for each in self.children.values())

    def bar(self, side: int, total: int, *, with_breaks: bool = True) -> Bar:
        found = sum((each.graphs[side] for each in self.walk()), Counter[int]())
        share = found.total() / total if total else 0.0
        return Bar(tuple(sorted(found.items())), self.breaks[side] * with_breaks, share)

    def walk(self) -> Iterator[_Node]:
        yield self
        for each in self.children.values():
            yield from each.walk()


def rows_of(subject: str, parts: Iterable[Part]) -> list[Row]:
    """Return the lines of the picture of an object of that name; none where nothing is known."""
    known = list(parts)
    functions = [each for each in known if each.path is None]
    tree = _tree(subject, [each for each in known if each.path is not None])
    roots = [_merged(each) for each in tree] + [_node(_FUNCTIONS, each) for each in functions]
    totals = [sum(n for _, n in found) for found in _both(known)]
    return [row for each in roots for row in _rows(each, 0, totals)]


def _both(parts: Sequence[Part]) -> list[list[tuple[int, int]]]:
    return [
        [pair for each in parts for pair in getattr(each, side)] for side in ("stock", "mended")
    ]


def _node(name: str, part: Part) -> _Node:
    graphs = Counter(dict(part.stock)), Counter(dict(part.mended))
    return _Node(
        name,
        "" if name == part.kind else part.kind,
        [part.path],
        graphs,
        [part.stock_breaks, part.mended_breaks],
    )


def _tree(subject: str, parts: Sequence[Part]) -> list[_Node]:
    """Return the object with its submodules; none where it is no module."""
    nodes: dict[str, _Node] = {}
    for part in parts:
        path = part.path or ""
        outer, _, name = path.rpartition(".")
        nodes[path] = _node(name or subject, part)
        if path:
            # A module between may be known under another path, since it is at two.
            while outer and outer not in nodes:
                outer = outer.rpartition(".")[0]
            nodes[outer].children[path.removeprefix(f"{outer}." if outer else "")] = nodes[path]
    return [nodes[""]] if "" in nodes else []


def _merged(node: _Node) -> _Node:
    """Return a node in which equal neighbours, which have numbers for names, are one."""
    children: dict[str, _Node] = {}
    for run in _runs(list(node.children.items())):
        name, first = run[0]
        for _, other in run[1:]:
            _add(first, other)
        if len(run) > 1:
            first.name = name = f"{run[0][0]} to {run[-1][0]}"
            first.kind = f"{len(run)} \N{MULTIPLICATION SIGN} {first.kind}"
        children[name] = _merged(first)
    node.children = children
    return node


def _runs(children: Sequence[tuple[str, _Node]]) -> list[list[tuple[str, _Node]]]:
    runs: list[list[tuple[str, _Node]]] = []
    for name, child in children:
        last = runs[-1][-1] if runs else None
        is_next = last is not None and last[0].isdecimal() and name.isdecimal()
        if is_next and last is not None and last[1].kind == child.kind:
            runs[-1].append((name, child))
        else:
            runs.append([(name, child)])
    return runs


def _add(node: _Node, other: _Node) -> None:
    """Add a node, and what is below it, to an equal one."""
    node.paths += other.paths
    for mine, its in zip(node.graphs, other.graphs, strict=True):
        mine.update(its)
    node.breaks = [one + two for one, two in zip(node.breaks, other.breaks, strict=True)]
    for name, child in other.children.items():
        if name in node.children:
            _add(node.children[name], child)
        else:
            node.children[name] = child


def _rows(node: _Node, depth: int, totals: Sequence[int]) -> Iterator[Row]:
    """Yield the lines of a node: those of its parts with breaks, and one for all others."""
    bars = [node.bar(side, totals[side]) for side in (0, 1)]
    yield Row(depth, node.name, node.kind, tuple(node.paths), *bars)
    folded = _Node("", "", [])
    for child in node.children.values():
        if child.breaks_below:
            yield from _rows(child, depth + 1, totals)
        else:
            folded.children[child.name] = child
    if folded.children:
        count = folded.size
        name = f"+ {plural(count, 'module')} without a break"
        bars = [folded.bar(side, totals[side]) for side in (0, 1)]
        yield Row(depth + 1, name, "", (), *bars)
