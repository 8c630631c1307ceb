"""What a theme is: what a program may do beside the rest. Each program has one or two.

A theme adds forms of expressions, and statements that are written as templates: in braces stands
the kind of an expression, `{v:=vector}` is a variable of that kind that `{v}` names from there on,
a line `<block>` stands for other statements, and of `<one|other>` one is taken. A comment in front
of a template says what its block has bound, what is bound behind it, and whether it is a loop.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

BLOCK: Final = "<block>"
#: A variable that a template assigns to: what it calls it, and its kind.
NAMED: Final = re.compile(r"\{(\w+):=(\w+)\}")
#: Several texts in a template, of which one is taken; a line may end behind a bar.
ONE_OF: Final = re.compile(r"<([^<>]*\|[^<>]*)>")
BAR: Final = re.compile(r"\|(?:\n\s*)?")

_BOUND: Final = re.compile(r"(\w+):(\w+)")


@dataclass(frozen=True, slots=True)
class Template:
    """A statement; `inner` are the kinds that its block has bound, `binds` those behind it."""

    text: str
    binds: Mapping[str, str] = field(default_factory=dict)
    inner: Mapping[str, str] = field(default_factory=dict)
    is_loop: bool = False


@dataclass(frozen=True, slots=True)
class Theme:
    """Forms of expressions by kind, and statements.

    Attributes:
        name: what the theme is about.
        forms: of expressions, by kind. A kind of the theme's own is one more, of which the
            plainest form, with none of its own kinds in it, comes first.
        statements: as templates.
        gradients: whether there is more to see where gradients flow.
        policies: under which there is more to see, each as the text of its arguments.
    """

    name: str
    forms: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    statements: tuple[Template, ...] = ()
    gradients: bool = False
    policies: tuple[str, ...] = ()


def templates(text: str) -> tuple[Template, ...]:
    """Return the templates of a text, which blank lines part."""
    return tuple(template(each) for each in text.strip().split("\n\n"))


def template(text: str) -> Template:
    """Return one template, with what the comment in front of it says."""
    first, _, rest = text.partition("\n")
    if not first.startswith("# "):
        return Template(text)
    said = dict.fromkeys(("inside", "behind", "loop"), "")
    for part in first[2:].split(", "):
        word, _, names = part.partition(" ")
        said[word] = names or "yes"
    bound = {word: dict(_BOUND.findall(names)) for word, names in said.items()}
    return Template(rest, bound["behind"], bound["inside"], bool(said["loop"]))
