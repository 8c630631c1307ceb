"""Random expressions of each kind, over the variables that are bound where they stand.

An expression has the kind that was asked for whatever its operands hold, so that most programs get
somewhere; it may still fail on the data, as real ones do.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from tests.fuzz import values
from tests.fuzz.values import (
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

Item = TypeVar("Item")
Pick = Callable[[Sequence[Item]], Item]

# What is in braces is an expression of that kind; the plainest forms come first.
_FORMS: Final[dict[str, tuple[str, ...]]] = {
    VECTOR: (
        "{vector} + 1",
        "{vector} * 2",
        "{vector} - {vector}",
        "{vector} * {vector}",
        "{vector} + {scalar}",
        "{vector} * {float}",
        "{vector} * {int}",
        "{vector} / {vector}",
        "torch.relu({vector})",
        "{vector}.clone()",
        "{vector}.sqrt()",
        "{vector}.log()",
        "{vector} @ torch.ones(3, 3)",
        "torch.mv(torch.ones(3, 3), {vector})",
        "{vector}[{integers} % 3]",
        "{vector}[{integers}]",
        "{vector}.sum(dim=0, keepdim=True) * {vector}",
        "{vector} * torch.rand(3)",
        "{vector}.clamp(min=-1.0, max={float})",
        "{vector}.clamp(min=0).sqrt()",
        "{vector}.abs()",
        "{vector}.detach()",
        "{vector}.flip(0)",
        "{vector}.view(3)",
        "torch.where({mask}, {vector}, {vector})",
        "({vector} if {test} else {vector})",
        "{matrix}[0]",
        "{matrix}.sum(0)",
        "{matrix}.amax(0)",
        "{pair}[0]",
        "{list}[0]",
        "{list}[{int}]",
        "{table}['a']",
        "{table}.get('c', {vector})",
        "{box}.value",
        "scaled({vector})",
        "scaled({vector}, {vector}, by={float})",
        "scaled(*{list}, flip={bool})",
        "scaled({vector}, **{'by': {float}, 'flip': True})",
        "require({vector})",
        "shift_({vector}.clone())",
        "signed({vector})[0]",
        "sum(pieces({vector})) + {vector}",
        "torch.rand(3)",
        "functional.dropout({vector}, 0.5)",
        "{integers}.float()",
        "{half}.float()",
        "{vector}[torch.tensor([2, 0, 1])]",
        "torch.stack([{scalar} for _ in range(3)])",
    ),
    MATRIX: (
        "{matrix} * 2",
        "{matrix} + {vector}",
        "{matrix} - {float}",
        "torch.stack([{vector}, {vector}])",
        "{vector}.expand(2, 3)",
        "{matrix}.softmax(-1)",
        "({matrix} if {test} else {matrix})",
        "torch.sin({matrix})",
    ),
    SCALAR: (
        "{vector}.sum()",
        "{vector}.max()",
        "{vector}.mean()",
        "{vector}[0]",
        "{vector}[{int}]",
        "{matrix}.sum()",
        "torch.tensor({float})",
        "{scalar} * {scalar}",
        "{vector}.norm()",
        "({vector} @ {vector})",
    ),
    HALF: ("{half} * 2", "{half} + {half}", "{vector}.half()", "{half}.abs()"),
    INTEGERS: (
        "{integers} + 1",
        "{integers} * {int}",
        "{vector}.sign().long()",
        "{integers} // 2",
        "{integers} // {integers}",
        "torch.arange(3)",
        "{vector}.argsort()",
    ),
    MASK: ("{vector} > 0", "{vector} < {vector}", "{integers} != 0", "~{mask}", "{mask} & {mask}"),
    INT: (
        "1",
        "0",
        "2",
        "-1",
        "{int} + 1",
        "{int} * {int}",
        "len({list})",
        "{vector}.shape[0]",
        "{matrix}.shape[0]",
        "{pair}[1]",
        "{box}.count",
        "level({vector})",
        "int({scalar})",
        "({int} if {test} else {int})",
        "{mask}.sum().item()",
        "len({table})",
    ),
    FLOAT: (
        "1.0",
        "0.5",
        "-2.0",
        "{float} * 2",
        "float({scalar})",
        "{vector}.sum().item()",
        "({float} if {test} else {float})",
        "{float} + {int}",
    ),
    BOOL: ("True", "False", "{bool} and {bool}", "bool({data})", "not {bool}", "{int} > 1"),
    TEXT: ("'a'", "'b'", "({text} if {test} else {text})", "f'''{{int}}'''", "{text} + 'x'"),
    MAYBE: ("None", "{vector}", "kept({vector})", "({vector} if {test} else None)"),
    LIST: (
        "[{vector}, {vector}]",
        "[{vector}]",
        "[v * 2 for v in {list}]",
        "[v for v in {list} if v.sum() > 0]",
        "[v if v.max() > 1 else -v for v in {list}]",
        "list({list})",
        "[*{list}, {vector}]",
    ),
    PAIR: ("({vector}, {int})", "({vector}, len({list}))", "({pair}[0] + 1, 2)"),
    TABLE: ("{'a': {vector}, 'b': {vector}}", "dict({table})", "{**{table}, 'c': {vector}}"),
    BOX: ("Box({vector})", "Box({vector}, {int})"),
}

# Conditions that depend on the data of tensors.
_DATA: Final = (
    "{vector}.sum() > 0",
    "{scalar} > 0",
    "({vector} > 0).any()",
    "({vector} > 0).all()",
    "{mask}.any()",
    "{vector}.max() < {vector}.max()",
    "{scalar} <= {float}",
    "0 < {vector}.sum() < 5",
    "{vector}.mean().item() > {float}",
    "bool({vector}.min() < 0)",
    "torch.isnan({vector}).any()",
    "torch.equal({vector}, {vector})",
    "torch.equal({vector}, {vector}.abs())",
    "is_positive({vector})",
    "{scalar} == {scalar}",
    "{integers}[0] > 0",
    "{half}.sum() > 1",
    "{matrix}.sum() > {scalar}",
    "any(v.sum() > 3 for v in {list})",
    "{scalar}",
)
_PLAIN: Final = (
    "{bool}",
    "{int} > 1",
    "{maybe} is None",
    "{maybe} is not None",
    "{text} == 'a'",
    "'a' in {table}",
    "{table}.get('c') is None",
    "{list}",
    "isinstance({any}, torch.Tensor)",
)
_TESTS: Final = (
    "{data}",
    "{data}",
    "{data}",
    "{data}",
    "{plain}",
    "not {data}",
    "{data} and {test}",
    "{data} or {test}",
    "{plain} and {data}",
)
_CONDITIONS: Final = {"test": _TESTS, "data": _DATA, "plain": _PLAIN}
#: Where the forms of a theme's own kind no longer stand in each other.
_INNERMOST: Final = -2


class Expressions:
    """Draws expressions.

    Args:
        pick: takes one of a sequence, the first if that does as well.
    """

    def __init__(self, pick: Pick[str]) -> None:
        self._pick = pick
        self._more: dict[str, tuple[str, ...]] = {}

    def allow(self, kind: str, *forms: str) -> None:
        """Add forms that make sense in this program only."""
        self._more[kind] = (*self._more.get(kind, ()), *forms)

    def of(self, kind: str, bound: Mapping[str, str], depth: int = 2) -> str:
        """Return an expression of a kind.

        Args:
            kind: one of `tests.fuzz.values`, or "test", "data", "plain", or one of a theme's own.
            bound: kinds of the variables that it may name.
            depth: how many forms may stand in each other.
        """
        more = self._more.get(kind, ())
        forms = _CONDITIONS.get(kind)
        if forms is not None:
            return self._filled(self._pick([*forms, *more, *more]), bound, depth)
        if kind in self._more and kind not in _FORMS:
            own = more if depth > _INNERMOST else more[:1]
            return self._filled(self._pick(own), bound, depth - 1)
        if kind == values.ANY:
            return self._pick(list(bound) or ["None"])
        names = [name for name, of_kind in bound.items() if of_kind == kind]
        if depth <= 0:
            return self._pick(names) if names else _simplest(kind, bound)
        few = depth > 1 or len(names) > 2
        choices = [*names, *[""] * (2 * len(names) if few else 1)]
        chosen = self._pick(choices) if names else ""
        if chosen:
            return chosen
        return self._filled(self._pick([*_FORMS[kind], *more, *more]), bound, depth - 1)

    def filled(self, form: str, bound: Mapping[str, str], depth: int = 1) -> str:
        """Put expressions into the braces of a form."""
        return self._filled(form, bound, depth)

    def _filled(self, form: str, bound: Mapping[str, str], depth: int) -> str:
        written = ""
        while form:
            before, brace, form = form.partition("{")
            written += before
            kind, closed, rest = form.partition("}")
            if closed and (kind in _KINDS or kind in self._more):
                text = self.of(kind, bound, depth - (kind in ("test", "data", "plain")))
                written += _grouped(text, before, rest)
                form = rest
            elif brace:
                written += brace
        return written


_KINDS: Final = frozenset([*_FORMS, "test", "data", "plain", "any"])
_OPENING: Final = ("(", "[", ", ", ": ", "=", "*", "{", "return ")


def _grouped(text: str, before: str, rest: str) -> str:
    """Put parentheses around an expression where its neighbours would take it apart."""
    if text.isidentifier() or text.replace(".", "").isdigit():
        return text
    alone = (not before.strip() or before.endswith(("(", "[", ", ", "= "))) and (
        not rest or rest[0] in ")],:"
    )
    return text if alone or _is_closed(text) else f"({text})"


def _is_closed(text: str) -> bool:
    """Return whether brackets hold everything of a text together, but for a name in front."""
    depth = 0
    for position, character in enumerate(text):
        if character in " -+~" and depth == 0:
            return False
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or position < 0:
            return False
    return True


def _simplest(kind: str, bound: Mapping[str, str]) -> str:
    vector = next((name for name, each in bound.items() if each == VECTOR), "torch.ones(3)")
    return {
        VECTOR: vector,
        MATRIX: f"torch.stack([{vector}, {vector}])",
        SCALAR: f"{vector}.sum()",
        HALF: f"{vector}.half()",
        INTEGERS: "torch.arange(3)",
        MASK: f"({vector} > 0)",
        INT: "2",
        FLOAT: "2.0",
        BOOL: "True",
        TEXT: "'a'",
        MAYBE: vector,
        LIST: f"[{vector}, {vector} * 2]",
        PAIR: f"({vector}, 1)",
        TABLE: f"{{'a': {vector}, 'b': -{vector}}}",
        BOX: f"Box({vector})",
    }[kind]
