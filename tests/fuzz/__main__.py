"""``python -m tests.fuzz``: see `tests.fuzz.jobs`."""

import sys

from tests.fuzz.jobs import main

if __name__ == "__main__":
    sys.exit(main())
