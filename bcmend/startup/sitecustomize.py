"""What Python runs as a process starts whose parent was run by ``python -m bcmend run``.

It imports what it stands in front of: another ``sitecustomize`` further down the path.
"""

import importlib
import os
import sys


def _begin() -> None:
    here = os.path.dirname(os.path.abspath(__file__))
    path = list(sys.path)
    own = sys.modules.pop("sitecustomize", None)
    sys.path[:] = [each for each in path if os.path.abspath(each or ".") != here]
    try:
        importlib.import_module("sitecustomize")  # another one
    except ImportError:
        if own is not None:
            sys.modules["sitecustomize"] = own
    finally:
        sys.path[:] = path
    if os.environ.get("BCMEND") == "1":
        try:
            from bcmend.installation import install_with_torch
        except ImportError:
            return  # another Python, which has no bcmend
        install_with_torch()


_begin()
