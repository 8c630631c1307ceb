"""Run a script, or a module, as Python does, with all that it compiles mended."""

from __future__ import annotations

import os
import runpy
import sys
from collections.abc import Sequence

from bcmend import installation


def run(arguments: Sequence[str], *, is_module: bool) -> None:
    """Run ``arguments[0]`` as ``__main__``; processes that it starts mend as well."""
    name = arguments[0]
    installation.install_with_torch()
    installation.give_to_children()
    sys.argv[:] = arguments
    if is_module:
        sys.path[0] = os.getcwd()
        runpy.run_module(name, run_name="__main__", alter_sys=True)
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(name))
        runpy.run_path(name, run_name="__main__")
