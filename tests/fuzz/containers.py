"""Random programs about containers: who holds what, and what of it is one object.

Each variable keeps the kind of its first value, so that every statement may read any of them. Most
statements make a second holder of a container, change one in place, or put another one in a place;
what is read afterwards decides numbers of the result, and at the end the program returns which of
its containers are one. So an alias that is lost shows in the result as well as in the state.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.fuzz.expressions import Pick
from tests.fuzz.programs import INDENT, Program
from tests.fuzz.values import ARGUMENTS, VECTOR

Lines = list[str]


@dataclass(frozen=True, slots=True)
class Kind:
    """What there is of one kind of container.

    Attributes:
        places: the variables that hold one, attributes and items among them.
        new: expressions of a new one.
        changes: statements that change `{a}` in place; `{b}` is another one, `{n}` a number.
        reads: numbers that `{a}` and `{b}` give.
    """

    places: tuple[str, ...]
    new: tuple[str, ...]
    changes: tuple[str, ...]
    reads: tuple[str, ...]


_LISTS: Final = Kind(
    ("a", "b", "c", "holder.items", "shared['items']", "given"),
    ("[{n}]", "[]", "[{n}, {m}]", "list({a})", "{a} + [{n}]", "{a}[:1]"),
    (
        "{a}.append({n})",
        "{a} += [{n}]",
        "{a}.extend({b})",
        "{a}.insert(0, {n})",
        "{a}[:] = [{n}, {m}]",
        "{a}.clear()",
        "del {a}[:1]",
        "if {a}: {a}[0] = {n}",
        "if {a}: {a}.pop()",
        "put({a})",
    ),
    ("len({a})", "sum({a})", "({n} in {a})", "({a} == {b})", "(0 if not {a} else {a}[-1])"),
)
_TABLES: Final = Kind(
    ("d", "e", "f", "holder.table", "shared['table']"),
    ("{{}}", "{{'k': {n}}}", "dict({a})", "{{**{a}, 'm': {n}}}"),
    (
        "{a}['k'] = {n}",
        "{a}['m'] = {n}",
        "{a}.update({b})",
        "{a}.update(n={n})",
        "{a}.setdefault('s', {n})",
        "{a}.pop('k', None)",
        "{a}.clear()",
        "{a} |= {{'o': {n}}}",
    ),
    ("len({a})", "{a}.get('k', 0)", "('m' in {a})", "({a} == {b})", "sum({a}.values())"),
)
_SETS: Final = Kind(
    ("s", "t", "holder.seen"),
    ("{{{n}}}", "set()", "set({a})", "{a} | {{{n}}}"),
    (
        "{a}.add({n})",
        "{a} |= {{{n}}}",
        "{a}.discard({n})",
        "{a}.update({b})",
        "{a} -= {b}",
        "{a}.clear()",
    ),
    ("len({a})", "({n} in {a})", "({a} == {b})", "sum({a})"),
)
_QUEUES: Final = Kind(
    ("q", "r", "holder.queue"),
    ("collections.deque([{n}])", "collections.deque()", "collections.deque({a})"),
    (
        "{a}.append({n})",
        "{a}.appendleft({n})",
        "{a}.extend({b})",
        "if {a}: {a}.popleft()",
        "{a}.rotate(1)",
        "{a}.clear()",
    ),
    ("len({a})", "({n} in {a})", "sum({a})", "(0 if not {a} else {a}[0])"),
)
_NODES: Final = Kind(
    ("o", "p", "holder.node", "shared['node']"),
    ("Node({n})", "Node({n}, {list})", "copy.copy({a})"),
    (
        "{a}.n += {n}",
        "{a}.n = {n}",
        "{a}.items.append({n})",
        "{a}.items = {list}",
        "{list} = {a}.items",
        "{a}.other = {b}",
        "if {a}.other is not None: {a}.other.n += 1",
    ),
    ("{a}.n", "len({a}.items)", "({a}.items is {list})", "({a}.other is {b})"),
)
_NESTED: Final = Kind(
    ("g", "h", "holder.lists"),
    ("[{list}]", "[{list}, {list}]", "[[{n}], {list}]", "list({a})", "[*{a}, {list}]"),
    (
        "{a}.append({list})",
        "{a}[0] = {list}",
        "{a}[-1].append({n})",
        "{a}[0] += [{n}]",
        "{list} = {a}[-1]",
        "{a}.append({a}[0])",
        "if len({a}) > 1: {list} = {a}.pop()",
        "{a}[:] = {a}[:3]",
    ),
    ("len({a})", "len({a}[-1])", "({a}[0] is {list})", "({a}[0] is {a}[-1])", "sum({a}[0])"),
)
_BY_KEY: Final = Kind(
    ("j", "k"),
    ("{{'u': {list}}}", "{{'u': {list}, 'v': {list}}}", "dict({a})"),
    (
        "{a}['u'] = {list}",
        "{a}['v'] = {a}['u']",
        "{a}['u'].append({n})",
        "{list} = {a}['u']",
        "{a}.setdefault('v', {list}).append({n})",
    ),
    ("len({a}['u'])", "({a}['u'] is {list})", "({a}.get('v') is {a}['u'])", "len({a})"),
)
_TUPLES: Final = Kind(
    ("v", "w", "holder.pair"),
    ("({list}, {n})", "({list}, {list})", "({a}[0], {n})"),
    ("{a}[0].append({n})", "{list} = {a}[0]", "{a} = ({b}[0], {n})"),
    ("len({a}[0])", "({a}[0] is {list})", "({a}[0] is {a}[1])", "({a}[0] is {b}[0])"),
)
_ARRAYS: Final = Kind(
    ("z", "y", "holder.array"),
    ("numpy.array([{n}, {m}])", "numpy.zeros(2)", "{a}.copy()"),
    ("{a}[0] = {n}", "{a} += {n}", "{a}[:] = {b}", "{a} *= 2"),
    ("float({a}.sum())", "float({a}[0])"),
)
_TENSORS: Final = Kind(
    ("lt", "mt", "holder.tensors"),
    ("[x * {n}]", "[x, x + {n}]", "list({a})"),
    (
        "{a}.append(x * {n})",
        "{a}[-1] = x + {n}",
        "last = x - {n}; {a}.append(last); holder.last = last",
        "{a}[0] = {a}[0] * 2",
        "if len({a}) > 2: {a}.pop(0)",
    ),
    ("len({a})", "{a}[-1].sum().detach()", "{a}[0].max().detach()"),
)

_KINDS: Final = {
    "list": _LISTS,
    "table": _TABLES,
    "set": _SETS,
    "queue": _QUEUES,
    "node": _NODES,
    "nested": _NESTED,
    "by key": _BY_KEY,
    "tuple": _TUPLES,
    "array": _ARRAYS,
    "tensors": _TENSORS,
}

_HELPERS: Final = """\
class Node:
    def __init__(self, n, items=None):
        self.n = n
        self.items = [] if items is None else items
        self.other = None


class Holder{base}:
    def __init__(self):
        {first}
        self.items, self.table, self.seen = [0], {{}}, set()
        self.queue, self.node = collections.deque(), Node(0)
        self.lists, self.pair = [self.items], (self.items, 0)
        self.array = numpy.array([1.0, 2.0])
        self.tensors, self.last = [torch.ones(3)], None


shared = {{"items": [1], "table": {{"k": 1}}, "node": Node(1)}}

"""


@dataclass(slots=True)
class _Writer:
    """Writes the statements of one program."""

    pick: Pick[Any]
    kinds: dict[str, tuple[Kind, list[str]]]
    size: int
    count: int = 0
    functions: list[str] = field(default_factory=list)

    def places(self, name: str) -> list[str]:
        return self.kinds[name][1]

    def two(self, name: str) -> list[str]:
        """Return two places of a kind."""
        one = self.pick(self.places(name))
        return [one, self.pick([each for each in self.places(name) if each != one])]

    def kind(self) -> str:
        return str(self.pick(list(self.kinds)))

    def filled(self, text: str, name: str) -> str:
        """Return a template with variables of a kind, and with lists, numbers put in."""
        one, other = self.two(name)
        return text.format(
            a=one,
            b=other,
            n=self.pick(("1", "2", "0", "i", "len(shared)")),
            m=self.pick(("2", "3")),
            list=self.pick(self.places("list")),
        )

    def new(self, name: str) -> str:
        return self.filled(self.pick(self.kinds[name][0].new), name)

    def read(self) -> str:
        name = self.kind()
        one, other = self.two(name)
        forms = [self.filled(self.pick(self.kinds[name][0].reads), name), f"({one} is {other})"]
        return str(self.pick([*forms, forms[1]]))

    def data(self) -> str:
        return str(
            self.pick(
                (
                    "x.sum() > 0",
                    "x[0] > 0",
                    "x.max() > 1",
                    "x.sum() > 2",
                    "x.min() < 0",
                    f"x.sum() > {self.read()}",
                    "x[1] > 0 and x[0] > 0",
                )
            )
        )

    def block(self, depth: int, in_loop: bool, least: int = 1) -> Lines:
        lines: Lines = []
        for _ in range(self.pick((least, 2, 3))):
            lines += self.statement(depth, in_loop)
            if lines[-1].lstrip() in ("break", "continue") or lines[-1].startswith("return"):
                break
        return lines

    def statement(self, depth: int, in_loop: bool) -> Lines:
        self.count += 1
        simple = [self._alias] * 4 + [self._change] * 6 + [self._new] * 2 + [self._use] * 2
        simple += [self._two_places, self._swap, self._chosen]
        if depth and self.count < self.size:
            simple += [self._if] * 7 + [self._loop] * 2 + [self._asked, self._leave]
            if in_loop:
                simple += [self._out_of_loop]
        lines: Lines = self.pick(simple)(depth, in_loop)
        return lines

    def _alias(self, depth: int, in_loop: bool) -> Lines:
        return [" = ".join(self.two(self.kind()))]

    def _new(self, depth: int, in_loop: bool) -> Lines:
        name = self.kind()
        return [f"{self.pick(self.places(name))} = {self.new(name)}"]

    def _two_places(self, depth: int, in_loop: bool) -> Lines:
        """Put one new container in two places."""
        name = self.kind()
        return [f"{' = '.join(self.two(name))} = {self.new(name)}"]

    def _swap(self, depth: int, in_loop: bool) -> Lines:
        one, other = self.two(self.kind())
        return [f"{one}, {other} = {other}, {one}"]

    def _chosen(self, depth: int, in_loop: bool) -> Lines:
        name = self.kind()
        one, other = self.two(name)
        third = self.pick((one, self.new(name)))
        return [f"{self.pick(self.places(name))} = {other} if {self.data()} else {third}"]

    def _change(self, depth: int, in_loop: bool) -> Lines:
        name = self.kind()
        return [self.filled(self.pick(self.kinds[name][0].changes), name)]

    def _use(self, depth: int, in_loop: bool) -> Lines:
        form = self.pick(("x = x + {}", "x = x * (1 + {})", "x = x - 1 * {}", "n = {}; x = x + n"))
        return [form.format(self.read())]

    def _if(self, depth: int, in_loop: bool) -> Lines:
        lines = [f"if {self.data()}:", *_indented(self.block(depth - 1, in_loop))]
        if self.pick((True, False)):
            lines += ["else:", *_indented(self.block(depth - 1, in_loop))]
        return lines

    def _asked(self, depth: int, in_loop: bool) -> Lines:
        return [f"if {self.read()}:", *_indented(self.block(depth - 1, in_loop))]

    def _loop(self, depth: int, in_loop: bool) -> Lines:
        if in_loop:
            return self._change(depth, in_loop)
        head = self.pick(("for i in range(2):", "for i in range(3):"))
        return [head, *_indented(self.block(depth - 1, True, 2)), "i = 0"]

    def _out_of_loop(self, depth: int, in_loop: bool) -> Lines:
        lines = self._change(depth, in_loop) if self.pick((True, False)) else []
        return [f"if {self.data()}:", *_indented([*lines, self.pick(("break", "continue"))])]

    def _leave(self, depth: int, in_loop: bool) -> Lines:
        lines = self._change(depth, in_loop) if self.pick((True, False)) else []
        return [f"if {self.data()}:", *_indented([*lines, f"return x + {self.read()}, 'early'"])]


def _indented(lines: Sequence[str]) -> Lines:
    return [INDENT + line for line in lines]


def random_containers(source: random.Random) -> Program:
    """Return a program about containers from a source of random numbers."""
    return containers_of(source.choice)


def containers_of(pick: Pick[Any]) -> Program:
    """Return the program about containers that a sequence of choices leads to."""
    others = [each for each in _KINDS if each != "list"]
    names = list(dict.fromkeys(["list", *(pick(others) for _ in range(pick((0, 1, 1, 2))))]))
    kinds = {name: (_KINDS[name], _some(pick, _KINDS[name].places)) for name in names}
    writer = _Writer(pick, kinds, size=pick((4, 6, 9, 12)))
    module = pick((False, True))
    lines = ["i = 0", *_first(pick, writer)]
    closure = pick((False, True))
    lines += _closure(pick, writer) if closure else ["put = shared['items'].extend"]
    for _ in range(pick((1, 2, 3))):
        lines += pick((writer._if, writer._if, writer._loop, writer._alias))(2, False)
        lines += writer.block(2, False)
    lines += [f"return x, {', '.join(_facts(kinds))}"]
    return Program(_body(lines, module), _calls(pick), False, "")


def _some(pick: Pick[Any], places: Sequence[str]) -> list[str]:
    """Return a few places of a kind; the first is a variable."""
    rest = [pick(places[1:]) for _ in range(pick((1, 2, 2, 3)))]
    return list(dict.fromkeys([places[0], *rest]))


def _first(pick: Pick[Any], writer: _Writer) -> Lines:
    """Bind each variable: to a new container, to what is held already, or to another one's."""
    lines: Lines = []
    plain = {"list": "[0]", "table": "{}", "set": "set()", "queue": "collections.deque()"}
    plain |= {"node": "Node(0)", "nested": "[a]", "by key": "{'u': a}", "tuple": "(a, 0)"}
    plain |= {"array": "numpy.array([1.0, 2.0])", "tensors": "[x]"}
    for name, (_, places) in writer.kinds.items():
        bound = [each for each in places if "." in each or "[" in each or each == "given"]
        for each in places:
            if each not in bound:
                lines.append(f"{each} = {pick([plain[name], *bound, *bound])}")
                bound.append(each)
    return lines


def _closure(pick: Pick[Any], writer: _Writer) -> Lines:
    """Define `put`, which holds a list of the function around it, and may replace it."""
    own = [each for each in writer.places("list") if each in ("a", "b", "c")]
    name = pick(own)
    change = pick(
        (f"{name}.append(9)", f"{name} = other", f"{name} = [9]", f"other.extend({name})")
    )
    return ["def put(other):", f"{INDENT}nonlocal {name}", f"{INDENT}{change}"]


def _facts(kinds: dict[str, tuple[Kind, list[str]]]) -> list[str]:
    """Return what is one object, what is in each container, and containers themselves."""
    facts = []
    for name, (_, places) in kinds.items():
        pairs = zip(places, [*places[1:], places[0]], strict=True)
        facts += [f"{one} is {other}" for one, other in pairs if one != other]
        facts += [f"len({each})" for each in places if name not in ("node", "array", "tuple")]
    held = ("holder.items is shared['items']", "holder.node.items is holder.items")
    parts = {"nested": "[each is a for each in g]", "by key": "[each is a for each in j.values()]"}
    parts |= {"tuple": "[each is a for each in v]", "node": "(o.n, o.items is a)"}
    facts += [*held, *(text for name, text in parts.items() if name in kinds), "a"]
    return facts


def _body(lines: Lines, module: bool) -> str:
    base, first = ("(nn.Module)", "super().__init__()") if module else ("", "pass")
    text = _HELPERS.format(base=base, first=first)
    name = "forward(self, x, given)" if module else "program(x, given)"
    body = _indented([f"def {name}:", *_indented((["holder = self"] if module else []) + lines)])
    if module:
        return f"{text}\nclass Model(Holder):\n" + "\n".join(body) + "\n\n\nmake = Model\n"
    whole = ["def make():", f"{INDENT}holder = Holder()", "", *body]
    return text + "\n" + "\n".join([*whole, "", f"{INDENT}return program"]) + "\n"


_CALLS: Final = 5


def _calls(pick: Pick[Any]) -> tuple[str, ...]:
    vectors = [each for each in ARGUMENTS[VECTOR] if "nan" not in each and "inf" not in each]
    given = pick(("[1]", "[]", "[1, 2]"))
    return tuple(f"{pick(vectors)}, {given}" for _ in range(_CALLS))
