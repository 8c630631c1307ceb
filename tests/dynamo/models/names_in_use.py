"""Finds names of Dynamo's objects in code, and what the classes of Dynamo define.

Goes by names alone: what a name is read off is not known. A name that public classes or bcmend's
own have as well is taken for theirs.
"""

from __future__ import annotations

import ast
import contextvars
import dis
import functools
import inspect
import sys
import types
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Final, NamedTuple

import jinja2
import sympy
import torch

from bcmend.dynamo import compat

_TORCH: Final = Path(torch.__file__).parent
_MODULES: Final = """
    bytecode_transformation codegen convert_frame exc guards output_graph resume_execution
    side_effects source symbolic_convert types
""".split()
#: Classes whose attributes have names that Dynamo uses, too.
_PUBLIC: Final[tuple[type, ...]] = (
    *(int, str, bytes, float, list, dict, set, frozenset, tuple, slice, range, type, property),
    OrderedDict,
    *(BaseException, ImportError, SyntaxError, types.CodeType, types.FrameType, types.FunctionType),
    *(types.MethodType, types.TracebackType, types.GeneratorType, dis.Instruction),
    *(inspect.Signature, inspect.Parameter, sympy.Symbol, Path),
    *(torch.Tensor, torch.nn.Module, torch.Generator, torch.SymInt, torch.UntypedStorage),
    *(torch.fx.Node, torch.fx.Proxy, torch.fx.Graph, torch.fx.GraphModule, torch.fx.Tracer),
    *(torch.autograd.function.FunctionCtx, torch.library.Library, contextvars.ContextVar),
    *(torch.sparse.check_sparse_tensor_invariants, compat.ValueRanges, compat.FakeTensorMode),
    *(compat.AotAutograd, compat.ProxyTorchDispatchMode, torch._C.Value, jinja2.Template),
)
#: Names that objects have and no class: of a proxy, a compiler of AOTAutograd, a mode of dispatch,
#: ranges and assertions of numbers, a context of autograd; an argument of ``torch._check_with``;
#: tables of kernels of an operator; methods of deques and of Python's generators of numbers.
_OF_OBJECTS: Final = frozenset(
    """
    node compiler_fn tracer is_int expr needs_input_grad saved_tensors error_type default_value
    popleft py_kernels python_key_table _dispatch_cache appendleft sample shuffle
    """.split()
)
_DEFINITIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
#: Functions that are given the name of an attribute as their second argument.
_TAKE_A_NAME: Final = ("getattr", "hasattr", "setattr", "delattr", "object_behind")
_DECLARE_A_HOOK: Final = ("hooks.around", "hooks.watch", "handlers.method")


class Use(NamedTuple):
    """A name in code, and where it stands."""

    name: str
    place: str


class Defined(NamedTuple):
    """A class in code: its bases, and the names that it defines."""

    bases: tuple[str, ...]
    names: frozenset[str]


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        yield from node.targets
    elif isinstance(node, ast.AnnAssign):
        yield node.target


def _names_of(definition: ast.ClassDef) -> frozenset[str]:
    """Return the methods, the class's own attributes, and the attributes set on ``self``."""
    found = {each.id for node in definition.body for each in _targets(node) if hasattr(each, "id")}
    conditional = [
        each for node in definition.body if isinstance(node, ast.If) for each in node.body
    ]
    functions = [*definition.body, *conditional]
    found |= {node.name for node in functions if isinstance(node, _DEFINITIONS)}
    for node in ast.walk(definition):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"):
                found.add(node.attr)
    return frozenset(found)


def classes_in(trees: Iterable[ast.AST]) -> dict[str, Defined]:
    """Return the classes that modules define, by name; those of one name are taken together."""
    found: dict[str, Defined] = defaultdict(lambda: Defined((), frozenset()))
    for tree in trees:
        for node in _definitions_in(tree):
            bases = tuple(ast.unparse(each) for each in node.bases)
            known = found[node.name]
            found[node.name] = Defined(known.bases + bases, known.names | _names_of(node))
    return dict(found)


def _definitions_in(block: ast.AST) -> Iterator[ast.ClassDef]:
    """Yield the definitions of classes, also those in functions and in conditional statements."""
    for node in (*getattr(block, "body", ()), *getattr(block, "orelse", ())):
        if isinstance(node, ast.ClassDef):
            yield node
        yield from _definitions_in(node)


@functools.cache
def of_dynamo() -> dict[str, Defined]:
    """Return the classes of Dynamo."""
    files = [
        *sorted((_TORCH / "_dynamo" / "variables").glob("*.py")),
        *(_TORCH / "_dynamo" / f"{each}.py" for each in _MODULES),
        _TORCH / "_guards.py",
    ]
    return classes_in(ast.parse(file.read_text(encoding="utf-8")) for file in files)


def names_in(kind: str, classes: dict[str, Defined]) -> frozenset[str]:
    """Return the names that a class and those above it define."""
    names: set[str] = set()
    waiting, seen = [kind], set()
    while waiting:
        name = waiting.pop().rpartition(".")[2]
        if name in classes and name not in seen:
            seen.add(name)
            names |= classes[name].names
            waiting += classes[name].bases
    return frozenset(names)


def public_names() -> frozenset[str]:
    """Return the names of attributes of classes that are not Dynamo's."""
    found = {name for kind in (*_PUBLIC, sys, torch, torch.cuda) for name in dir(kind)}
    return frozenset(found) | _OF_OBJECTS | frozenset(dis.opmap)


class Code:
    """The modules of a package, without those of one folder in it."""

    def __init__(self, sources: dict[str, str]) -> None:
        self._trees = {place: ast.parse(text) for place, text in sources.items()}
        self._classes = classes_in(self._trees.values())
        self._aliases = dict(found for tree in self._trees.values() for found in _aliases_in(tree))

    def _bases_in_dynamo(self) -> dict[str, frozenset[str]]:
        """Return the names that Dynamo's classes above and beside each class define."""
        # A class that is mixed into a model defines methods of the model.
        found: dict[str, set[str]] = defaultdict(set)
        for name in self._classes:
            above = self._above(name)
            known = {each.removeprefix("compat.") for each in above if each.startswith("compat.")}
            inherited = {each for kind in known for each in names_in(kind, of_dynamo())}
            for each in (name, *above):
                found[each] |= inherited
        return {name: frozenset(names) for name, names in found.items()}

    def _above(self, name: str) -> list[str]:
        found: list[str] = []
        for base in self._classes[name].bases if name in self._classes else ():
            known = self._aliases.get(base, base)
            found += [known, *self._above(known)]
        return found

    def own_names(self) -> frozenset[str]:
        """Return the names that the classes of the package define for themselves."""
        inherited = self._bases_in_dynamo()
        return frozenset(
            name for kind, known in self._classes.items() for name in known.names - inherited[kind]
        )

    def overrides(self) -> list[Use]:
        """Return what classes define in place of what Dynamo's classes above them do."""
        inherited = self._bases_in_dynamo()
        return [
            Use(name, kind)
            for kind, known in self._classes.items()
            for name in known.names & inherited[kind]
        ]

    def attributes(self) -> list[Use]:
        """Return the names of attributes, but those of modules."""
        return [
            Use(name, f"{place}:{node.lineno}")
            for place, tree in self._trees.items()
            for node, name in _attributes_in(tree)
        ]

    def of_private_classes(self) -> list[Use]:
        """Return what is read off classes of Dynamo themselves, whatever else has such a name."""
        return [
            Use(node.attr, f"{place}:{node.lineno}")
            for place, tree in self._trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Attribute)
            and _dotted(node.value).removeprefix("compat.") in of_dynamo()
        ]

    def words(self) -> list[Use]:
        """Return the words of strings that are no docstrings."""
        return [
            Use(word, f"{place}:{node.lineno}")
            for place, tree in self._trees.items()
            for node in _strings_in(tree)
            for word in node.value.split()
        ]

    def hooks_by_text(self) -> list[Use]:
        """Return the names of hooked methods that are given as texts."""
        return [
            Use(ast.unparse(node.args[1]), f"{place}:{node.lineno}")
            for place, tree in self._trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and _dotted(node.func) in _DECLARE_A_HOOK
            and not isinstance(node.args[1], (ast.Name, ast.Attribute))
        ]

    def constructors(self) -> list[Use]:
        """Return the private classes of torch that are called."""
        return [
            Use(node.func.attr, f"{place}:{node.lineno}")
            for place, tree in self._trees.items()
            for node in ast.walk(tree)
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _dotted(node.func.value) == "compat"
            and node.func.attr[0].isupper()
        ]


def _dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` for an attribute of an attribute of a variable; else an empty text."""
    if isinstance(node, ast.Name):
        return node.id
    before = _dotted(node.value) if isinstance(node, ast.Attribute) else ""
    return f"{before}.{node.attr}" if before and isinstance(node, ast.Attribute) else ""


def _aliases_in(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the names that stand for private classes, with these."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and _dotted(node.value).startswith("compat."):
            yield ast.unparse(node.targets[0]), ast.unparse(node.value)


def _attributes_in(tree: ast.AST) -> Iterator[tuple[ast.expr | ast.pattern, str]]:
    modules = {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in node.names
        if (alias.asname or alias.name).islower()
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            before = _dotted(node.value)
            if not (before.islower() and before.partition(".")[0] in modules):
                yield node, node.attr
        elif isinstance(node, ast.MatchClass):
            yield from ((node, name) for name in node.kwd_attrs)
        elif isinstance(node, ast.Call) and len(node.args) > 1:
            name = node.args[1]
            is_by_name = _dotted(node.func).rpartition(".")[2] in _TAKE_A_NAME
            if is_by_name and isinstance(name, ast.Constant) and isinstance(name.value, str):
                yield node, name.value


def _strings_in(tree: ast.AST) -> Iterator[ast.Constant]:
    texts = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in texts:
            yield node
