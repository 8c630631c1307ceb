"""``python -m tests.fuzz``: see `tests.fuzz.jobs`, and `tests.fuzz.reached` for ``--coverage``."""

import sys
from importlib import import_module

if __name__ == "__main__":
    name = "tests.fuzz.reached" if "--coverage" in sys.argv else "tests.fuzz.jobs"
    sys.exit(import_module(name).main())
