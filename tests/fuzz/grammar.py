"""Small PyTorch programs and their calls, as text: by Hypothesis, or from a random source."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.expressions import Pick
from tests.fuzz.prelude import needed_by
from tests.fuzz.programs import INDENT, Program
from tests.fuzz.statements import Statements
from tests.fuzz.themes import THEMES
from tests.fuzz.values import (
    ARGUMENTS,
    BOOL,
    BOX,
    FLOAT,
    HALF,
    INT,
    INTEGERS,
    LIST,
    MASK,
    MATRIX,
    MAYBE,
    PAIR,
    SCALAR,
    TABLE,
    TENSORS,
    TEXT,
    VECTOR,
)

#: Arguments that a program may have beside `x`; `b` has a default.
_PARAMETERS: Final = {
    "y": VECTOR,
    "n": INT,
    "s": SCALAR,
    "mask": MAYBE,
    "scale": FLOAT,
    "flag": BOOL,
    "items": LIST,
    "grid": MATRIX,
    "table": TABLE,
    "box": BOX,
    "mode": TEXT,
    "ids": INTEGERS,
    "chosen": MASK,
    "low": HALF,
    "both": PAIR,
}
#: How many statements a program has; a small one compiles in a tenth of a second.
_SIZES: Final = (3, 1, 3, 5, 6, 9)
_CALLS: Final = 5
#: What a program may be compiled with; mostly what everybody has.
_POLICIES: Final = (
    *[""] * 9,
    "branch='where'",
    "branch='cond'",
    "guards='keep', output='keep'",
    "output='drop'",
    "include=('torch.nn',)",
    "off=('*:output', '*:branch#2')",
)
_DEFAULTS: Final = {INT: "2", FLOAT: "0.5", BOOL: "False", MAYBE: "None", TEXT: "'a'"}

_MODULE: Final = """\
class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 3)
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("total", torch.zeros(3))
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

"""
_LAYERS: Final = """\
class Block(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.norm = nn.BatchNorm1d(3)
        self.scale = scale

    def forward(self, x):
        if x.sum() > 4:
            return x / self.scale
        return self.norm(torch.stack([x, x * 2, -x]))[0]


def hook(module, arguments, result):
    if result.sum() > 0:
        return result * 2


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.ReLU())
        self.blocks = nn.ModuleList([Block(2.0), Block(0.5)])
        self.norm = nn.BatchNorm1d(3, momentum=0.3)
        self.drop = nn.Dropout(0.4)
        self.weight = nn.Parameter(torch.tensor([1.0, -2.0, 0.5]))
        self.register_buffer("total", torch.zeros(3))
        self.linear.register_forward_hook(hook)
        self.count = 0
        self.limit = 1.5
        self.last = None
        self.kept = []

"""


@st.composite
def programs(draw: st.DrawFn, *, training: bool | None = None) -> Program:
    """Draw a program with its calls.

    Args:
        draw: of hypothesis.
        training: whether gradients flow; drawn if it is `None`.
    """

    return program_of(lambda choices: draw(st.sampled_from(choices)), training=training)


def random_program(source: random.Random) -> Program:
    """Return a program from a source of random numbers.

    Hypothesis goes back to what it has drawn before, to find what is alike; a long search does
    better with programs that have nothing in common.
    """
    return program_of(source.choice)


class Choices:
    """Choices that are noted, so that another program may make most of them again.

    Args:
        source: of random numbers.
        first: the numbers between 0 and 1 behind the first choices.
    """

    def __init__(self, source: random.Random, first: Sequence[float] = ()) -> None:
        self._source, self._first = source, first
        self.made: list[float] = []

    def pick(self, choices: Sequence[Any]) -> Any:
        known = len(self.made) < len(self._first)
        self.made.append(self._first[len(self.made)] if known else self._source.random())
        return choices[int(self.made[-1] * len(choices))]

    def varied(self, source: random.Random) -> Choices:
        """Return choices that begin as these have been, but for a few or for all behind some place.

        A choice that is made otherwise may turn all behind it to something else.
        """
        made = list(self.made)
        for _ in range(source.randint(1, 4)):
            made[source.randrange(len(made))] = source.random()
        end = source.randrange(len(made)) if source.random() < 0.5 else len(made)
        return Choices(source, made[:end])


def program_of(pick: Pick[Any], *, training: bool | None = None) -> Program:
    """Return the program that a sequence of choices leads to."""
    chosen = [THEMES[each] for each in _chosen_themes(pick)]
    wanted = any(theme.gradients for theme in chosen)
    flowing = pick((False, True, wanted)) if training is None else training
    module = pick((False, False, True))
    layered = module and pick((False, True))
    others = list(dict.fromkeys(pick(sorted(_PARAMETERS)) for _ in range(pick((0, 1, 2, 3)))))
    required = [name for name in others if _PARAMETERS[name] not in _DEFAULTS]
    optional = [name for name in others if _PARAMETERS[name] in _DEFAULTS]
    kinds = {"x": VECTOR, **{name: _PARAMETERS[name] for name in (*required, *optional)}}
    size = pick(_SIZES)
    state = ("layers" if layered else "plain") if module else ""
    lines = Statements(pick, training=flowing, module=state, size=size, themes=chosen).body(kinds)
    parameters = [*(["self"] if module else []), "x", *required, *_with_defaults(optional, pick)]
    body = _definition(parameters, lines, state)
    calls = _calls(kinds, optional, pick)
    helpers = needed_by(f"{body}\n{' '.join(calls)}")
    policies = [each for theme in chosen for each in theme.policies]
    policy = pick([*_POLICIES, *policies, *policies])
    return Program(f"{helpers}\n\n{body}".strip() + "\n", calls, flowing, policy)


def _chosen_themes(pick: Pick[Any]) -> list[int]:
    found = [pick((None, *range(len(THEMES)))) for _ in range(pick((1, 2, 2, 0)))]
    return [each for each in dict.fromkeys(found) if each is not None]


def _with_defaults(names: list[str], pick: Any) -> list[str]:
    parameters = [f"{name}={_DEFAULTS[_PARAMETERS[name]]}" for name in names]
    if parameters and pick((False, False, True)):
        parameters.insert(0, "*")
    return parameters


def _definition(parameters: list[str], lines: list[str], module: str) -> str:
    name = "forward" if module else "program"
    text = "\n".join(
        f"{INDENT}{line}" for line in [f"def {name}({', '.join(parameters)}):", *_indented(lines)]
    )
    if module:
        return f"{_LAYERS if module == 'layers' else _MODULE}{text}\n\n\nmake = Model\n"
    return f"def make():\n{text}\n\n{INDENT}return program\n"


def _indented(lines: list[str]) -> list[str]:
    return [INDENT + line for line in lines]


def _calls(kinds: dict[str, str], optional: list[str], pick: Any) -> tuple[str, ...]:
    """Return the arguments of some calls.

    Another number or list has a program compiled again; other tensors take each branch both ways at
    no cost. So most calls have only other tensors than the first.
    """
    given = [name for name in kinds if name not in optional or pick((True, True, False))]
    first = {name: pick(ARGUMENTS[kinds[name]]) for name in given}
    calls = [first]
    for _ in range(_CALLS - 1):
        same_form = pick((True, True, True, False))
        others = {name: pick(_like(text, kinds[name], same_form)) for name, text in first.items()}
        calls.append(others)
    return tuple(_written(each, optional) for each in calls)


def _like(text: str, kind: str, same_form: bool) -> Sequence[str]:
    """Return the arguments that may take the place of one."""
    if not same_form:
        return ARGUMENTS[kind]
    if kind in TENSORS or text.startswith("torch."):
        return [each for each in ARGUMENTS[kind] if each.startswith("torch.")]
    if kind in (LIST, PAIR, TABLE, BOX):
        return [each for each in ARGUMENTS[kind] if each.count("tensor") == text.count("tensor")]
    return [text]


def _written(call: dict[str, str], optional: list[str]) -> str:
    return ", ".join(f"{name}={text}" if name in optional else text for name, text in call.items())
