"""Names under which bcmend keeps something on objects of others stand in one module."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import bcmend
from bcmend import meta_keys

HOME = Path(bcmend.__file__).parent
KEYS = [value for name, value in vars(meta_keys).items() if name.isupper()]
_FORM = re.compile(r"_?bcmend_[a-z_]+")
#: Other names of that form: an operator as Dynamo names it, and beginnings of names of modules.
OTHERS = {
    "tracing/lowering/hoist_random.py": "bcmend_branch",
    "liveness/loading.py": "bcmend_programs bcmend_programs_",
}


def test_no_two_keys_are_the_same() -> None:
    assert len(set(KEYS)) == len(KEYS) > 10
    assert all(map(_FORM.fullmatch, KEYS))


def test_keys_stand_in_one_module() -> None:
    found = {}
    for path in HOME.rglob("*.py"):
        nodes = ast.walk(ast.parse(path.read_text()))
        texts = {str(each.value) for each in nodes if isinstance(each, ast.Constant)}
        keys = sorted(filter(_FORM.fullmatch, texts))
        if keys and path.stem != "meta_keys":
            found[str(path.relative_to(HOME))] = " ".join(keys)
    assert found == OTHERS
