"""No module of tracing is left out, whose hooks would then not exist."""

from __future__ import annotations

import json
from pathlib import Path

import bcmend.tracing
from tests import new_process

ROOT = Path(bcmend.tracing.__file__).parent

_ASK = """
import json, sys
from bcmend.tracing.entry import primitive_namespace
print(json.dumps([name for name in sys.modules if name.startswith("bcmend.tracing.")]))
"""


def test_what_mended_code_reaches_imports_every_module() -> None:
    ran = new_process.run("-c", _ASK)
    assert ran.returncode == 0, ran.stderr
    imported = set(json.loads(ran.stdout))
    modules = {
        "bcmend.tracing." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in ROOT.rglob("*.py")
        if path.name != "__init__.py"
    }
    assert sorted(modules - imported) == []
