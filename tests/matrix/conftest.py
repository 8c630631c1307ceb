"""Where this process cannot be copied by now, a test of the matrix runs in one that can."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bcmend.trials.apart import makes_copies


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run the test anew where no copy of this process goes back.

    That is so in a build of torch for an accelerator, once something compiled has gone back.
    """
    if makes_copies(goes_back=True):
        return None
    options = ["-q", "-p", "no:cacheprovider", "--sample", "1"]
    command = [sys.executable, "-m", "pytest", *options, pyfuncitem.nodeid]
    found = subprocess.run(
        command, cwd=pyfuncitem.config.rootpath, capture_output=True, text=True, check=False
    )
    if found.returncode:
        pytest.fail(found.stdout[-5000:], pytrace=False)
    return True
