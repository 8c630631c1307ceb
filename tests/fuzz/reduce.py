"""Make a program that shows a failure as small as it gets in the time there is.

Reads a program and a question about programs; tries one removal after another in its syntax tree,
the largest first, and keeps what still answers yes. Hypothesis shrinks what was drawn; this
shrinks the text, which takes fewer runs of a compiler.
"""

from __future__ import annotations

import ast
import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tests.fuzz.programs import Program

Question = Callable[[Program], bool]


def reduced(program: Program, still_fails: Question, seconds: float = 60.0) -> Program:
    """Return the smallest program found of which `still_fails` is true."""
    end = time.monotonic() + seconds
    seen = {program}
    again = True
    while again:
        again = False
        for candidate in _smaller(program):
            if time.monotonic() > end:
                return program
            if candidate in seen:
                continue
            seen.add(candidate)
            if still_fails(candidate):
                program, again = candidate, True
                break
    return program


def _smaller(program: Program) -> Iterator[Program]:
    """Yield programs with something removed."""
    for index in range(len(program.calls)):
        if len(program.calls) > 1:
            yield replace(program, calls=program.calls[:index] + program.calls[index + 1 :])
    if program.training:
        yield replace(program, training=False)
    if program.policy:
        yield replace(program, policy="")
    tree = ast.parse(program.body)
    for body in sorted({*_edited(tree)}, key=len):
        if len(body) < len(program.body):
            yield replace(program, body=f"{body}\n")


def _edited(tree: ast.Module) -> Iterator[str]:
    """Yield the text of every tree that is this one with one place made smaller."""
    count = sum(1 for _ in ast.walk(tree))
    for position in range(count):
        for choice in range(_choices(_at(tree, position))):
            edited = copy.deepcopy(tree)
            if _edit(edited, position, choice):
                try:
                    text = ast.unparse(ast.fix_missing_locations(edited))
                    compile(text, "reduced", "exec")
                except (SyntaxError, ValueError):
                    continue
                yield text


def _at(tree: ast.AST, position: int) -> ast.AST:
    for index, node in enumerate(ast.walk(tree)):
        if index == position:
            return node
    raise IndexError(position)


def _lists_of(node: ast.AST) -> list[list[ast.stmt]]:
    names = ("body", "orelse", "finalbody", "handlers")
    found = (getattr(node, name, None) for name in names)
    return [each for each in found if isinstance(each, list) and each]


def _choices(node: ast.AST) -> int:
    """Return in how many ways a node can be made smaller."""
    statements = sum(2 * len(each) for each in _lists_of(node))
    return statements + len(_parts(node))


def _edit(tree: ast.Module, position: int, choice: int) -> bool:
    node = _at(tree, position)
    for statements in _lists_of(node):
        if choice < 2 * len(statements):
            index, hoist = divmod(choice, 2)
            inside = [each for inner in _lists_of(statements[index]) for each in inner]
            if hoist and not all(isinstance(each, ast.stmt) for each in inside):
                return False
            if hoist and not inside:
                return False
            statements[index : index + 1] = inside if hoist else []
            if not statements and statements is getattr(node, "body", None):
                statements.append(ast.Pass())
            return True
        choice -= 2 * len(statements)
    return _replaced(tree, node, _parts(node)[choice])


def _parts(node: ast.AST) -> list[ast.expr]:
    """Return expressions that may stand in place of an expression."""
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, ast.BoolOp):
        return list(node.values)
    if isinstance(node, ast.BinOp):
        return [node.left, node.right]
    if isinstance(node, ast.UnaryOp):
        return [node.operand]
    if isinstance(node, ast.Call):
        receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
        return [*receiver, *(each for each in node.args if not isinstance(each, ast.Starred))]
    if isinstance(node, (ast.List, ast.Tuple)) and isinstance(node.ctx, ast.Load):
        return [each for each in node.elts if not isinstance(each, ast.Starred)]
    if isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
        return [node.value]
    return []


def _replaced(tree: ast.Module, old: ast.AST, new: ast.expr) -> bool:
    for node in ast.walk(tree):
        for name, value in ast.iter_fields(node):
            if value is old:
                setattr(node, name, new)
                return True
            if isinstance(value, list) and any(each is old for each in value):
                value[[each is old for each in value].index(True)] = new
                return True
    return False
