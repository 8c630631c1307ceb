"""Names of opcodes stand in ``bcmend/bytecode``, and there each is one of a supported Python.

Elsewhere one would match nothing where a new Python has another, and be answered with no.
"""

from __future__ import annotations

import ast
import dis
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from xdis.op_imports import get_opcode_module

import bcmend
from bcmend.bytecode.decode import numbers_of
from bcmend.bytecode.instructions import UnknownOpcode
from bcmend.bytecode.opcodes import LOCAL_LOADS, LOOPS, ROWS, OpKind, of_kind

HOME = Path(bcmend.__file__).parent
SUPPORTED = ((3, 11), (3, 12), (3, 13), (3, 14))
#: Of each supported Python, the raw names.
RAW = {each: set(get_opcode_module(each, "CPython").opmap) for each in SUPPORTED}
#: Canonical ones, too.
NAMES = set(ROWS).union(*RAW.values())

#: Other words of upper-case letters, by where they stand.
OTHER_WORDS = {
    "bytecode/decode.py": "BACKWARD",  # part of names
    "cli.py": "ARGUMENTS COMMAND FILE PATH SCRIPT VERSION",
    "dynamo/compat.py": "CURRENT_DEVICE NNPACK",
    "dynamo/operators.py": "DEF",
    "dynamo/handlers.py": "PASS",
    "installation.py": "PYTHONPATH RANK",
    "knowledge/opt_out.py": "BCMEND",
    "releases.py": "BCMEND_UNTESTED_TORCH",
    # Of Pythons that are not supported, and that it reads all the same.
    "scan/candidates.py": "CALL_FUNCTION CALL_FUNCTION_KW CALL_METHOD JUMP_ABSOLUTE",
    "startup/sitecustomize.py": "BCMEND",
    "tracing/search/strict.py": "BCMEND_STRICT",
    "trials/side_calls.py": "TORCHINDUCTOR_CACHE_DIR TRITON_CACHE_DIR",
    "trials/workers.py": "PYTHONPATH",
}
#: Names of opcodes outside ``bcmend/bytecode``, in one file: raw ones, of which there are no rows.
#: Let there be no more.
ELSEWHERE = {"scan/candidates.py": "CACHE EXTENDED_ARG JUMP_FORWARD"}

_WORD = re.compile(r"(?=.{3})[A-Z][A-Z0-9]+(_[A-Z0-9]+)*_?")


def _texts(tree: ast.AST) -> Iterator[str]:
    """Yield the constants that are texts, without those of f-strings."""
    formatted = (node for node in ast.walk(tree) if isinstance(node, ast.JoinedStr))
    parts = [part for node in formatted for part in node.values]
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_text and not any(node is each for each in parts):
            yield node.value


def words_in(source: str) -> set[str]:
    """Return the words of the texts that look like nothing but names of opcodes."""
    found: set[str] = set()
    for text in _texts(ast.parse(source)):
        words = text.split()
        if all(_WORD.fullmatch(each) for each in words):
            found.update(words)
    return found


def is_name(word: str) -> bool:
    """Return whether a word is the name of an opcode, or with a line at its end the beginning."""
    return word in NAMES or (word[-1] == "_" and any(each.startswith(word) for each in NAMES))


@pytest.mark.parametrize("file", sorted(str(each.relative_to(HOME)) for each in HOME.rglob("*.py")))
def test_each_name_of_an_opcode_is_one_of_a_supported_python(file: str) -> None:
    words = words_in((HOME / file).read_text(encoding="utf-8"))
    assert {each for each in words if not is_name(each)} == {*OTHER_WORDS.get(file, "").split()}


def test_no_other_package_names_an_opcode() -> None:
    found = {}
    for file in HOME.rglob("*.py"):
        named = [each for each in words_in(file.read_text(encoding="utf-8")) if is_name(each)]
        if named and file.parent != HOME / "bytecode":
            found[str(file.relative_to(HOME))] = " ".join(sorted(named))
    assert found == ELSEWHERE


@pytest.mark.parametrize("text", ["BINARY_SUBSC", "BINARY_OP BINARY_SUBSC", "FORMATS_"])
def test_a_name_that_is_mistyped_is_found(text: str) -> None:
    for source in (f"T = {text!r}.split()", f"def f(x):\n    return x.op == {text!r}"):
        assert [each for each in words_in(source) if not is_name(each)] == text.split()[-1:]


def test_names_in_tables_are_seen() -> None:
    found = set[str]().union(*(words_in(each.read_text()) for each in HOME.rglob("*.py")))
    assert len({each for each in found if is_name(each)}) > 80
    source = 'A = {"SEND": 1}\nB = ("FORMAT_",)\nC = f"{A}_SEND"\nD = "a SEND"\n"""SEND SWAP"""'
    assert words_in(source) == {"SEND", "FORMAT_", "SWAP"}


def test_raw_names_are_those_of_the_interpreter() -> None:
    own = {name for name, opcode in dis.opmap.items() if opcode < 256}
    assert own <= RAW[sys.version_info[:2]]


def test_each_row_is_of_a_supported_python() -> None:
    shortened = {
        re.sub(r"_(FOR|BACK)WARD(?=_IF_)|_(FOR|BACK)WARD(?=$|_NO_)", "", name)
        for names in RAW.values()
        for name in names
    }
    assert set(ROWS) <= shortened


def test_a_kind_that_no_opcode_is_of_is_refused() -> None:
    assert of_kind(OpKind.READ | OpKind.ITEM) == {"BINARY_SUBSCR"}
    with pytest.raises(UnknownOpcode, match="no opcode is of the kind"):
        of_kind(OpKind.READ | OpKind.CALL)


@pytest.mark.parametrize("kind", OpKind)
def test_each_kind_is_that_of_an_opcode(kind: OpKind) -> None:
    assert of_kind(kind)


def test_opcodes_that_this_python_has_none_of_are_refused() -> None:
    assert numbers_of(LOOPS) == {dis.opmap["FOR_ITER"]}
    with pytest.raises(AssertionError, match="this Python has no opcode BINARY_SUBSC"):
        numbers_of(frozenset(["BINARY_SUBSC"]))


def test_numbers_of_fused_opcodes_are_those_of_each_part() -> None:
    fused = {name for name in dis.opmap if "LOAD_FAST" in name[5:]}
    assert {dis.opmap[each] for each in fused} <= numbers_of(LOCAL_LOADS)
