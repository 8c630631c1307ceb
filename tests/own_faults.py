"""Errors that count as raised by bcmend's own code: by a frame that has one of its files."""

from __future__ import annotations

from typing import Any

from bcmend.tracing.search import strict

_SCOPE: dict[str, Any] = {}
_TEXT = "def fault(*arguments, **named): raise ValueError('a fault')"
exec(compile(_TEXT, strict.__file__, "exec"), _SCOPE)


def fault(*arguments: Any, **named: Any) -> Any:
    """Raise ``ValueError`` in a frame of bcmend's."""
    return _SCOPE["fault"](*arguments, **named)
