"""What torch's source says of a function or a class, in the same words on every Python.

Docstrings, comments and annotations count for nothing. The files come in any order, but one after
the other: the tree of only one is kept.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import inspect
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import torch

_TORCH: Final = str(Path(torch.__file__).parent)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_WITHOUT_MEANING: Final = frozenset("annotation ctx kind returns type_comment type_params".split())
_DIGITS: Final = 6


def function_behind(found: Any) -> Any:
    """Return the function of a method that is static, a property, or wrapped by torch itself."""
    found = getattr(found, "__func__", found)
    found = found.fget if isinstance(found, property) else found
    while hasattr(found, "__wrapped__") and file_of(found).startswith(_TORCH):
        found = found.__wrapped__
    return found


def file_of(function: Any) -> str:
    """Return the file in which a function stands; an empty text for one that is not Python."""
    code = getattr(function, "__code__", None)
    if code is None:  # such as a cache: what it wraps says it
        inner = getattr(function, "__wrapped__", None)
        return "" if inner is None else file_of(inner)
    return str(code.co_filename)


def body(function: Callable[..., Any]) -> str:
    """Return a short hash of what a function does."""
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    try:
        node = _statements(code.co_filename).get(code.co_firstlineno)
    except OSError:  # what is made of a text
        node = None
    return "unknown" if node is None else hash_of(node)


def hash_of(node: ast.AST) -> str:
    """Return a short hash of a definition, which includes its decorators."""
    text = "".join(_canonical(node))
    return hashlib.blake2b(text.encode(), digest_size=_DIGITS).hexdigest()


def _canonical(node: Any) -> Iterator[str]:
    """Yield a text of a tree that leaves out whatever is empty, which Pythons have or have not."""
    if isinstance(node, list):
        yield "["
        for each in node:
            yield from _canonical(each)
        yield "]"
    elif not isinstance(node, ast.AST):
        yield f"{node!r} "
    else:
        yield f"{type(node).__name__}("
        for name, value in ast.iter_fields(node):
            if name == "body" and isinstance(value, list) and _has_docstring(node):
                value = value[1:]
            if name not in _WITHOUT_MEANING and value not in (None, []):
                yield f"{name}="
                yield from _canonical(value)
        yield ")"


def _has_docstring(node: ast.AST) -> bool:
    is_definition = isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Module))
    return is_definition and ast.get_docstring(node, clean=False) is not None  # type: ignore[arg-type]


def parameters(function: Callable[..., Any]) -> str:
    """Return the names of the parameters: ``*`` before a tuple, ``=`` behind what has a default."""
    try:
        found = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # what is written in C, without a signature
        return "?"
    return ", ".join(map(_parameter, found))


_STARS: Final[dict[Any, str]] = {
    inspect.Parameter.VAR_POSITIONAL: "*",
    inspect.Parameter.VAR_KEYWORD: "**",
}


def _parameter(each: inspect.Parameter) -> str:
    mark = "" if each.default is inspect.Parameter.empty else "="
    by_name = "!" if each.kind is inspect.Parameter.KEYWORD_ONLY else ""
    return f"{by_name}{_STARS.get(each.kind, '')}{each.name}{mark}"


def fields(kind: type, file: str) -> list[str]:
    """Return the names that a class gives values to: its own, and those of ``self``."""
    node = _classes(file).get(kind.__name__)
    if node is None:
        return []
    found = {each.id for part in node.body for each in _targets(part) if isinstance(each, ast.Name)}
    for each in ast.walk(node):
        if isinstance(each, ast.Attribute) and isinstance(each.ctx, ast.Store) and _is_self(each):
            found.add(each.attr)
    return sorted(found)


def _is_self(attribute: ast.Attribute) -> bool:
    return isinstance(attribute.value, ast.Name) and attribute.value.id == "self"


def _targets(node: ast.AST) -> list[ast.expr]:
    if isinstance(node, ast.Assign):
        return node.targets
    return [node.target] if isinstance(node, ast.AnnAssign) else []


def assignments(file: str) -> dict[str, ast.expr]:
    """Return what a module gives its variables, the first time that each is given something."""
    found: dict[str, ast.expr] = {}
    for node in _tree(file).body:
        for each in _targets(node):
            value = getattr(node, "value", None)
            if isinstance(each, ast.Name) and value is not None:
                found.setdefault(each.id, value)
    return found


@functools.lru_cache(maxsize=1)
def _tree(file: str) -> ast.Module:
    return ast.parse(Path(file).read_text(encoding="utf-8"))


@functools.lru_cache(maxsize=1)
def _statements(file: str) -> dict[int, ast.AST]:
    """Return the functions of a file by the first line of each, decorators included."""
    found: dict[int, ast.AST] = {}
    for node in _definitions(_tree(file)):
        if isinstance(node, _FUNCTIONS):
            first = min(each.lineno for each in (node, *node.decorator_list))
            found[first] = node
    return found


@functools.lru_cache(maxsize=1)
def _classes(file: str) -> dict[str, ast.ClassDef]:
    nodes = (node for node in _definitions(_tree(file)) if isinstance(node, ast.ClassDef))
    return {node.name: node for node in nodes}


def _definitions(node: ast.AST) -> Iterator[ast.AST]:
    """Yield functions and classes, wherever they are defined."""
    for name in ("body", "orelse", "finalbody", "handlers", "cases"):
        for each in getattr(node, name, None) or ():
            if isinstance(each, (*_FUNCTIONS, ast.ClassDef)):
                yield each
            if isinstance(each, (ast.stmt, ast.ExceptHandler, ast.match_case)):
                yield from _definitions(each)
