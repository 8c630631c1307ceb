"""`python -m bcmend`: see `bcmend.cli`."""

from __future__ import annotations

import sys

from bcmend.cli import main

if __name__ == "__main__":
    sys.exit(main())
