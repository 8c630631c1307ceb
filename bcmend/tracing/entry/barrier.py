"""Withdraw a site whose mending goes wrong half-way."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bcmend.dynamo import compat
from bcmend.tracing.sites import body_states, site_table, strict
from bcmend.tracing.sites.refusal import HalfWritten, Refusal, SiteChanged
from bcmend.tracing.speculation import arm_failures


@contextmanager
def withdrawn_if_it_fails(site: site_table.LiveSite) -> Iterator[None]:
    """Withdraw the site and restart the trace of the frame, where a block fails."""
    try:
        yield
    except (
        compat.RestartAnalysis,
        compat.SkipFrame,
        body_states.MendedFurther,
        arm_failures.BothRaise,
    ):
        raise
    except Exception as error:
        if not isinstance(error, (HalfWritten, Refusal)):
            strict.require_foreign(error)
        first = str(error).strip().splitlines()[:1]
        site.withdraw("not-captured", f"{type(error).__name__}: {' '.join(first)}")
        raise SiteChanged(restart_reason=f"bcmend: {site.key} withdrawn") from error
