"""Writes what bcmend relies on of the running torch: ``python -m tests.dynamo.contract``.

A release that was recorded before stays tested on the Pythons that it was, unless a flag
says otherwise of the one that runs.
"""

from __future__ import annotations

import argparse

from bcmend.bytecode import behavior
from bcmend.dynamo.contract import recorded
from bcmend.patching import torch_check


def main() -> None:
    """Write the file, and print its path."""
    parser = argparse.ArgumentParser(prog="python -m tests.dynamo.contract", description=__doc__)
    marks = parser.add_mutually_exclusive_group()
    marks.add_argument("--tested", dest="tested", action="store_true", default=None)
    marks.add_argument("--untested", dest="tested", action="store_false")
    tested: bool | None = parser.parse_args().tested
    facts = torch_check.described()
    from bcmend.dynamo.contract import description

    version, git_version = description.versions()
    before = recorded.of_version(version)
    pythons = set() if before is None else {*before.pythons}
    if tested is not None:
        pythons = pythons | {behavior.PYTHON} if tested else pythons - {behavior.PYTHON}
    print(recorded.write(recorded.Release(version, git_version, tuple(sorted(pythons)), facts)))


if __name__ == "__main__":
    main()
