"""Loads the programs as code of a user: under other names than those of the package.

Neither Dynamo nor bcmend traces what stands in the folder of bcmend, so that the modules of
``programs`` are compiled as if they stood beside it. They are never imported under their own names.
"""

from __future__ import annotations

import importlib.util
import sys
from importlib.machinery import SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Final

from bcmend.liveness.program import Program, programs_among

_FOLDER: Final = Path(__file__).with_name("programs")
#: The folder that the code of programs says it is from.
PLACE: Final = str(_FOLDER.parents[2] / "bcmend_programs")


class _Loader(SourceFileLoader):
    def get_code(self, fullname: str) -> CodeType:
        return compile(self.get_data(self.path), _place(self.path), "exec", dont_inherit=True)


def _place(file: str | Path) -> str:
    return str(Path(PLACE) / Path(file).name)


def load(file: Path) -> dict[str, object]:
    """Return the names of a module of programs."""
    name = f"bcmend_programs_{file.stem}"
    if name not in sys.modules:
        spec = importlib.util.spec_from_file_location(name, file, loader=_Loader(name, str(file)))
        assert spec is not None and spec.loader is not None
        module = sys.modules[name] = importlib.util.module_from_spec(spec)  # Dynamo looks there
        module.__file__ = _place(file)  # by which the module of a code object is found
        spec.loader.exec_module(module)
    return vars(sys.modules[name])


def programs() -> tuple[Program, ...]:
    """Return all programs, by module in alphabetical order."""
    files = [file for file in sorted(_FOLDER.glob("*.py")) if file.stem != "__init__"]
    return tuple(program for file in files for program in programs_among(load(file).values()))
