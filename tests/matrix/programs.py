"""Programs of an effect in a construct under an observer, and a choice that covers all pairs.

Reads the tables; produces the text of a module that defines ``make``, which returns the program,
the object ``s``, whether that is an argument, and the function that looks at the effect.
"""

from __future__ import annotations

import itertools
import linecache
import random
import re
import sys
import textwrap
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import ModuleType
from typing import Any, Final

from tests.matrix import (
    python_containers,
    python_objects,
    python_process,
    torch_effects,
    torch_training,
)
from tests.matrix.constructs import (
    CONSTRUCTS,
    OBSERVERS,
    OTHERS,
    PREDICATES,
    VARIATIONS,
    Construct,
    Observer,
)
from tests.matrix.effect import Effect
from tests.matrix.surroundings import NOTHING, SURROUNDINGS

FILE: Final = "matrix_program.py"
EFFECTS: Final = (
    *python_objects.EFFECTS,
    *python_containers.EFFECTS,
    *python_process.EFFECTS,
    *torch_effects.EFFECTS,
    *torch_training.EFFECTS,
)

_MODULES: Final = """
abc array atexit bisect collections contextlib contextvars copy copyreg csv dataclasses decimal
enum functools gc heapq importlib importlib.machinery inspect io itertools logging numpy operator
os pickle queue random struct sys tempfile threading torch torch.utils.checkpoint types warnings
weakref
""".split()

_HEADER: Final = (
    "\n".join(f"import {name}" for name in _MODULES)
    + """
from torch import nn
from torch.nn import functional as F


class Box:
    pass


class Seen(Exception):
    pass


def kept(value):
    if isinstance(value, torch.Tensor):
        return value.clone()
    return value


def same(one, other):
    if isinstance(one, torch.Tensor):
        return one.shape == other.shape and bool((one == other).all())
    if isinstance(one, (tuple, list)):
        return len(one) == len(other) and all([same(a, b) for a, b in zip(one, other)])
    return one == other
"""
)


@dataclass(frozen=True, slots=True)
class Case:
    """An effect, a construct and an observer, by name, and what the seed adds to them."""

    effect: str
    construct: str
    observer: str
    predicate: str = PREDICATES[0]
    other: str = OTHERS[0]
    variation: str = "plain"
    training: bool = False
    argument: bool = True
    first: bool = True
    around: str = NOTHING

    @property
    def name(self) -> str:
        return f"{self.effect} | {self.construct} | {self.observer}"

    @property
    def options(self) -> str:
        """What the seed has added, in words."""
        reach = "s is an argument" if self.argument else "s is of the closure"
        grad = "with gradients" if self.training else "without gradients"
        order = "+-+--+" if self.first else "-+-++-"
        words = (self.predicate, f"else {self.other}", self.variation, grad, reach, order)
        return "; ".join([*words, *[f"in {self.around}"] * (self.around != NOTHING)])


def _by_name(rows: Sequence[Any]) -> dict[str, Any]:
    found = {each.name: each for each in rows}
    assert len(found) == len(rows), "two rows have one name"
    return found


EFFECT: Final[dict[str, Effect]] = _by_name(EFFECTS)
CONSTRUCT: Final[dict[str, Construct]] = _by_name(CONSTRUCTS)
OBSERVER: Final[dict[str, Observer]] = _by_name(OBSERVERS)


def kind_of(effect: str) -> str:
    """Return the kind of an effect: its name up to the colon."""
    return effect.partition(":")[0]


def is_possible(kind: str, construct: str) -> bool:
    """Return whether a construct can have it: a method reaches no variable of its caller."""
    return not (MEMBERS[kind][0].local and CONSTRUCT[construct].is_method)


MEMBERS: Final = {
    kind: [each for each in EFFECTS if kind_of(each.name) == kind]
    for kind in dict.fromkeys(kind_of(each.name) for each in EFFECTS)
}


# --- the choice ----------------------------------------------------------------------------------

Triple = tuple[str, str, str]
Pair = tuple[int, int, str, str]


def pairs_of(triple: Triple) -> Iterator[Pair]:
    """Yield the three pairs that a program covers."""
    names = (kind_of(triple[0]), *triple[1:])
    for one, other in itertools.combinations(range(3), 2):
        yield one, other, names[one], names[other]


def all_pairs() -> set[Pair]:
    """Return every pair that there can be."""
    return {
        pair
        for triple in itertools.product(MEMBERS, CONSTRUCT, OBSERVER)
        if is_possible(*triple[:2])
        for pair in pairs_of(triple)
    }


def covering(seed: int, *, every: bool = False) -> list[Triple]:
    """Return triples that cover all pairs of kinds, constructs and observers.

    Each pair of a kind and a construct needs a program of its own. Its effect is the next one of
    the kind, so that all have their turn; its observer is one that both have met least.

    Args:
        seed: what the order and the choice are drawn from.
        every: whether every effect meets every construct, and not just one of its kind.
    """
    source = random.Random(seed)
    cells = [*_cells_of_all()] if every else [*_cells_in_turn(source)]
    source.shuffle(cells)
    times: Counter[tuple[str, str]] = Counter()
    found = []
    for effect, construct in cells:
        kind = kind_of(effect)
        names = source.sample(list(OBSERVER), len(OBSERVER))
        observer = min(names, key=lambda each: _met(times, kind, construct, each))
        times[kind, observer] += 1
        times[construct, observer] += 1
        found.append((effect, construct, observer))
    return found + _left_by(found, source)


def _cells_of_all() -> Iterator[tuple[str, str]]:
    for effect, construct in itertools.product(EFFECT, CONSTRUCT):
        if is_possible(kind_of(effect), construct):
            yield effect, construct


def _cells_in_turn(source: random.Random) -> Iterator[tuple[str, str]]:
    """Yield an effect of each kind for each construct; all have their turn."""
    for kind, members in MEMBERS.items():
        turns = itertools.cycle(source.sample(members, len(members)))
        for construct in source.sample(list(CONSTRUCT), len(CONSTRUCT)):
            if is_possible(kind, construct):
                yield next(turns).name, construct


def _left_by(found: Sequence[Triple], source: random.Random) -> list[Triple]:
    """Return triples for the pairs with an observer that others have left."""
    covered = {pair for triple in found for pair in pairs_of(triple)}
    added = []
    for one, _, name, observer in sorted(all_pairs() - covered):
        kinds, constructs = list(MEMBERS), list(CONSTRUCT)
        (kinds if one == 0 else constructs)[:] = [name]
        cells = [each for each in itertools.product(kinds, constructs) if is_possible(*each)]
        kind, construct = source.choice(cells)
        added.append((MEMBERS[kind][0].name, construct, observer))
    return added


def _met(times: Counter[tuple[str, str]], kind: str, construct: str, observer: str) -> Any:
    """Return how often a kind and a construct have met an observer, a first meeting foremost."""
    one, other = times[kind, observer], times[construct, observer]
    return min(one, 1), min(other, 1), 2 * one + other


def case_of(triple: Triple, seed: int, around: str | None = None) -> Case:
    """Return the case of a triple; the same for the same seed, whatever else is chosen.

    ``around`` is what stands round its calls, where that is not drawn from the seed.
    """
    effect, _, observer = triple
    source = random.Random(zlib.crc32(f"{seed} {triple}".encode()))
    training = OBSERVER[observer].backward or EFFECT[effect].training or source.random() < 0.4
    return Case(
        *triple,
        predicate=source.choice(PREDICATES),
        other=source.choice(OTHERS),
        variation=source.choice(VARIATIONS),
        training=training,
        argument=source.random() < 0.5,
        first=source.random() < 0.5,
        around=_surrounding(source) if around is None else around,
    )


def _surrounding(source: random.Random) -> str:
    """Return what stands round every second program; nothing round the others."""
    return source.choice(list(SURROUNDINGS)) if source.random() < 0.5 else NOTHING


# --- the text ------------------------------------------------------------------------------------


def source_of(case: Case, *, act: str | None = None) -> str:
    """Return the text of a program's module; `act` takes the place of the effect's statements."""
    return f"{_HEADER}\n\n{body_of(case, act=act)}"


def body_of(case: Case, *, act: str | None = None) -> str:
    """Return the definitions of a program behind the common header."""
    effect, construct = EFFECT[case.effect], CONSTRUCT[case.construct]
    act = effect.act if act is None else act
    inner = [*_body(case, effect, construct, act)]
    helpers = [] if effect.local else [*_helpers(case, effect, construct, act)]
    lines = [
        *effect.setup.strip().splitlines(),
        "",
        "",
        "def make():",
        *_indented(_STATE),
        *_indented(effect.state.splitlines()),
        *_indented([] if construct.is_method else helpers),
        *_indented(_program(case, construct, helpers, inner)),
        *_indented(["def look():", f"    return {'None' if effect.local else effect.look}"]),
        f"    return program, s, {case.argument}, look",
    ]
    return "\n".join(lines).strip() + "\n"


_STATE: Final = (
    "s = Box()",
    "s.w = nn.Parameter(torch.full((1,), 1.25))",
    "s.t = torch.zeros(4)",
    "s.log = []",
    "s.other = None",
)


def _program(
    case: Case, construct: Construct, helpers: Sequence[str], inner: Sequence[str]
) -> Iterator[str]:
    arguments = "x, p, s" if case.argument else "x, p"
    if not construct.is_method:
        yield f"def program({arguments}):"
        yield from _indented(inner)
        return
    yield "class Program(nn.Module):"
    methods = [each for each in helpers if each.strip()]
    yield from _indented(each.replace("def helper(", "def helper(self, ") for each in methods)
    yield f"    def forward(self, {arguments}):"
    yield from _indented(_indented(inner))
    yield "program = Program()"


def _body(case: Case, effect: Effect, construct: Construct, act: str) -> Iterator[str]:
    observer = OBSERVER[case.observer]
    yield from effect.declare.splitlines()
    yield "seen = []"
    yield "y = x * s.w" if case.training else "y = x * 1.5"
    if effect.local:
        yield effect.local
        yield from _helpers(case, effect, construct, act)
    elif "CALL" in construct.body and construct.is_method:
        yield from _helpers(case, effect, construct, act)
    yield from _observing(observer.before, effect)
    yield from _filled(construct.body, case, effect, act)
    yield from _end(observer, effect)


def _end(observer: Observer, effect: Effect) -> Iterator[str]:
    yield from _observing(observer.after, effect)
    if not observer.after.startswith("raise"):
        yield "return y, seen, z" if effect.local else "return y, seen"


def _observing(text: str, effect: Effect) -> list[str]:
    names = {"LOOK": f"({effect.look})", "THING": f"({effect.thing})"}
    return re.sub(r"\b(LOOK|THING)\b", lambda found: names[found[0]], text).splitlines()


def _helpers(case: Case, effect: Effect, construct: Construct, act: str) -> Iterator[str]:
    """Yield the functions that a construct calls."""
    if re.search(r"\bCALL\b", construct.body):
        body = "def act(s, x, y):\n    DECLARE\n    ACT\n    return y\n"
        yield from _filled(body, case, effect, act)
    yield from _filled(construct.helper, case, effect, act)


def _filled(text: str, case: Case, effect: Effect, act: str) -> Iterator[str]:
    """Yield the lines of a construct with everything in its place."""
    parts = {
        "ACT": act.splitlines(),
        "OTHER": [case.other],
        "DECLARE": effect.declare.splitlines() or ["nonlocal z"] * bool(effect.local),
        "RETURN": [*_end(OBSERVER[case.observer], effect)],
    }
    text = re.sub(r"\bPREDICATE\b", case.predicate, text)
    text = re.sub(r"\bCALL\b", "act(s, x, y)", text)
    for line in text.strip().splitlines():
        inner = line.strip()
        if inner in parts:
            yield from textwrap.indent("\n".join(parts[inner]), line[: -len(inner)]).splitlines()
        else:
            yield line


def _indented(lines: Any) -> list[str]:
    return [f"    {each}" if each else "" for each in lines]


def module_of(source: str) -> ModuleType:
    """Run the text of a program's module."""
    module = sys.modules["matrix_program"] = ModuleType("matrix_program")
    linecache.cache[FILE] = (len(source), None, source.splitlines(True), FILE)
    exec(compile(source, FILE, "exec"), vars(module))
    return module
