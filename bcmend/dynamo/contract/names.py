"""Private names of torch that ``compat`` takes, found in its text, since a name may be missing.

And which modules of bcmend use which name: any word behind a dot, or in quotes, is a use of it.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Final

from bcmend.knowledge.own_code import PACKAGE

_COMPAT: Final = PACKAGE / "dynamo" / "compat.py"
#: The package of programs that prove hooks alive, by their targets.
_PROGRAMS: Final = "bcmend.liveness."
#: Modules that only list names, for others to use.
_LISTS: Final = frozenset(f"bcmend.dynamo.models.{each}" for each in ("methods", "stable_names"))
_WORDS: Final = re.compile(r"""\.(\w+)|["'](\w+)["']""")


def missing(text: str | None = None) -> list[str]:
    """Return what ``compat`` takes from torch and is not there, in alphabetical order."""
    tree = ast.parse(_COMPAT.read_text(encoding="utf-8") if text is None else text)
    found: set[str] = set()
    for node in tree.body:
        if isinstance(node, ast.Try):
            # One of the ways is enough.
            ways = [node.body, *(each.body for each in node.handlers)]
            lacking = [[name for part in way for name in _missing_in(part)] for way in ways]
            found.update(sorted(lacking, key=len)[0])
        else:
            found.update(_missing_in(node))
    return sorted(found)


def _missing_in(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.ImportFrom):
        module = node.module or ""
        if module.partition(".")[0] == "torch":
            for each in node.names:
                if not _is_there(f"{module}.{each.name}"):
                    yield f"{module}.{each.name}"
    elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
        yield from filter(lambda name: not _is_there(name), _chains(node.value))


def _chains(value: ast.AST) -> Iterator[str]:
    """Yield ``torch.a.b`` for the attributes that an expression reads when it is evaluated."""
    if isinstance(value, ast.Lambda):
        return
    if isinstance(value, ast.Attribute):
        dotted = ast.unparse(value)
        if re.fullmatch(r"(torch|_C)(\.\w+)+", dotted):
            yield re.sub(r"^_C\b", "torch._C", dotted)
            return
    for each in ast.iter_child_nodes(value):
        yield from _chains(each)


def _is_there(name: str) -> bool:
    """Return whether a dotted name leads to something."""
    first, *rest = name.split(".")
    found: Any = import_module(first)
    path = first
    for each in rest:
        path = f"{path}.{each}"
        if not hasattr(found, each):
            try:
                import_module(path)
            except ImportError:
                return False
        found = getattr(found, each, None)
    return True


@functools.cache
def _modules() -> dict[str, frozenset[str]]:
    """Return the words that each module of bcmend uses."""
    found = {}
    for file in PACKAGE.rglob("*.py"):
        module = ".".join(("bcmend", *file.relative_to(PACKAGE).with_suffix("").parts))
        if module in _LISTS or module.startswith(_PROGRAMS):
            continue
        text = file.read_text(encoding="utf-8")
        found[module] = frozenset(word for pair in _WORDS.findall(text) for word in pair if word)
    return found


@functools.cache
def users() -> Callable[[str], tuple[str, ...]]:
    """Return what finds the modules of bcmend that use a name, by themselves or as a constant."""
    from bcmend.dynamo.models import methods

    by_word: dict[str, set[str]] = defaultdict(set)
    for module, words in _modules().items():
        for word in words:
            by_word[word].add(module)
    constants: dict[str, set[str]] = defaultdict(set)
    for constant, value in vars(methods).items():
        if constant.isupper() and isinstance(value, str):
            constants[value].add(constant)

    def find(name: str) -> tuple[str, ...]:
        words = {name, *constants.get(name, ())}
        return tuple(sorted({module for word in words for module in by_word.get(word, ())}))

    return find
