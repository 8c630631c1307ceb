"""Hypothesis strategies for small PyTorch programs and their calls, as text."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from hypothesis import strategies as st

from tests.fuzz.prelude import needed_by
from tests.fuzz.programs import INDENT, Program
from tests.fuzz.statements import Statements
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


@st.composite
def programs(draw: st.DrawFn, *, training: bool | None = None) -> Program:
    """Draw a program with its calls.

    Args:
        draw: of hypothesis.
        training: whether gradients flow; drawn if it is `None`.
    """

    def pick(choices: Sequence[Any]) -> Any:
        return draw(st.sampled_from(choices))

    flowing = pick((False, True)) if training is None else training
    module = pick((False, False, True))
    others = draw(st.lists(st.sampled_from(sorted(_PARAMETERS)), max_size=3, unique=True))
    required = [name for name in others if _PARAMETERS[name] not in _DEFAULTS]
    optional = [name for name in others if _PARAMETERS[name] in _DEFAULTS]
    kinds = {"x": VECTOR, **{name: _PARAMETERS[name] for name in (*required, *optional)}}
    lines = Statements(pick, training=flowing, module=module).body(kinds)
    parameters = [*(["self"] if module else []), "x", *required, *_with_defaults(optional, pick)]
    body = _definition(parameters, lines, module)
    calls = tuple(_arguments(kinds, optional, pick) for _ in range(3))
    helpers = needed_by(f"{body}\n{' '.join(calls)}")
    return Program(f"{helpers}\n\n{body}".strip() + "\n", calls, flowing)


def _with_defaults(names: list[str], pick: Any) -> list[str]:
    parameters = [f"{name}={_DEFAULTS[_PARAMETERS[name]]}" for name in names]
    if parameters and pick((False, False, True)):
        parameters.insert(0, "*")
    return parameters


def _definition(parameters: list[str], lines: list[str], module: bool) -> str:
    name = "forward" if module else "program"
    text = "\n".join(
        f"{INDENT}{line}" for line in [f"def {name}({', '.join(parameters)}):", *_indented(lines)]
    )
    if module:
        return f"{_MODULE}{text}\n\n\nmake = Model\n"
    return f"def make():\n{text}\n\n{INDENT}return program\n"


def _indented(lines: list[str]) -> list[str]:
    return [INDENT + line for line in lines]


def _arguments(kinds: dict[str, str], optional: list[str], pick: Any) -> str:
    texts = []
    for name, kind in kinds.items():
        if name not in optional:
            texts.append(pick(ARGUMENTS[kind]))
        elif pick((True, True, False)):
            texts.append(f"{name}={pick(ARGUMENTS[kind])}")
    return ", ".join(texts)
