"""The releases of torch, and the Pythons, that bcmend is tested with; importable on any.

They are those of ``dynamo/contract`` that are marked as tested on the running Python. A torch that
was built from the commit of one of them is that release. Any other is compared with the nearest
one, if that is tested (``patching/torch_check.py``): it is used if it is equal in all that bcmend
relies on, and but for some hooks if only those are concerned.

``BCMEND_UNTESTED_TORCH`` in the environment says what becomes of the rest: ``refuse``, as without
it, warns and changes nothing, ``warn`` warns and goes on with all hooks that exist, ``error``
raises the warning. On a Python whose bytecode is not known nothing is ever changed.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import torch

from bcmend.bytecode import behavior
from bcmend.dynamo.contract import recorded
from bcmend.errors import BcmendError

if TYPE_CHECKING:
    from bcmend.patching.torch_check import ComparisonResult

#: The first two numbers of each release that is tested, with the Pythons on which it is.
TESTED: Final = {each.minor: each.pythons for each in recorded.releases() if each.pythons}
_VARIABLE: Final = "BCMEND_UNTESTED_TORCH"
_WORDS: Final = ("refuse", "warn", "error")


@dataclass(frozen=True, slots=True)
class Standing:
    """What the running torch is to bcmend.

    Attributes:
        is_as_tested: whether it is a tested release, or equal to one, but for ``finding.aside``.
        finding: how it differs from the release nearest to it, if it was compared.
    """

    is_as_tested: bool
    finding: ComparisonResult | None = None

    @property
    def is_partly_used(self) -> bool:
        """Return whether some hooks are not used, and all else is."""
        return self.is_as_tested and self.finding is not None and bool(self.finding.aside)


def standing() -> Standing:
    """Return what the running torch is to bcmend; it is compared once."""
    return _standing(torch.__version__, str(torch.version.git_version))


@functools.cache
def _standing(version: str, git_version: str) -> Standing:
    known = recorded.of_build(git_version)
    nearest = known or recorded.nearest(version)
    if known is not None or not nearest.is_tested:
        return Standing(nearest.is_tested)
    from bcmend.patching import torch_check

    finding = torch_check.compared(nearest)
    return Standing(not finding.core, finding)


def is_tested() -> bool:
    """Return whether the running torch is a tested release, or equal to one."""
    return standing().is_as_tested and not standing().is_partly_used


def is_used() -> bool:
    """Return whether bcmend works with the running torch, which may be no tested release."""
    chosen = _chosen() == "warn" and behavior.IS_KNOWN
    return standing().is_as_tested or (chosen and not _lacks_names())


def is_an_error() -> bool:
    """Return whether a release that is not tested is an error."""
    return not is_tested() and _chosen() == "error"


def _of_this_build() -> recorded.Release | None:
    return recorded.of_build(str(torch.version.git_version))


def _lacks_names() -> bool:
    if _of_this_build() is not None:
        return False  # what lacks a name cannot be recorded
    from bcmend.patching import torch_check

    return bool(torch_check.missing())


@functools.cache
def prepare() -> None:
    """Leave out the hooks that are not used with this torch, before any is put in place."""
    if is_tested() or not is_used():
        return
    from bcmend.patching import torch_check

    finding = standing().finding
    if _chosen() == "warn":
        torch_check.drop_missing()
    elif finding is not None:
        torch_check.set_aside(finding)


def contract() -> Iterator[str]:
    """Yield a line that says whether the running torch is as the recorded release nearest to it."""
    from bcmend.patching import torch_check

    release = _of_this_build() or recorded.nearest(torch.__version__)
    count = len(torch_check.differences(release))
    if not count:
        yield f"All that bcmend relies on is as recorded of torch {release.version}."
    else:
        yield (
            f"{count} things are not as recorded of torch {release.version}: "
            f"python -m bcmend doctor --against {release.version}"
        )


def _chosen() -> str:
    """Return what the environment chooses. Raises ``BcmendError`` for any other word."""
    word = os.environ.get(_VARIABLE) or _WORDS[0]
    if word not in _WORDS:
        raise BcmendError(f"{_VARIABLE} is {word!r}; set it to one of {', '.join(_WORDS)}")
    return word


def sentence() -> str:
    """Return one sentence that names the running release and the tested ones."""
    running = f"torch {torch.__version__} on Python {behavior.PYTHON}"
    known = f"{running}; bcmend is tested with {_tested()}"
    found = standing()
    why = "" if found.finding is None else found.finding.words()
    if found.is_as_tested:
        return f"{known}{', and ' if why else ''}{why}."
    used = "is used" if is_used() else "changes nothing on any other"
    return f"{known}, and {used}{': ' if why else ''}{why}."


def _tested() -> str:
    """Return the tested releases, those together that are tested on the same Pythons."""
    together: dict[tuple[str, ...], list[str]] = {}
    for minor, pythons in TESTED.items():
        together.setdefault(pythons, []).append(minor)
    return " and ".join(
        f"torch {_listed(minors)} on Python {_listed(pythons)}"
        for pythons, minors in together.items()
    )


def _listed(words: Sequence[str]) -> str:
    return " and ".join(filter(None, (", ".join(words[:-1]), words[-1])))
