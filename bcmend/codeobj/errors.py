"""The exceptions of taking code objects apart and putting them together: a leaf."""

from __future__ import annotations


class DecodeError(ValueError):
    """Raised for a code object that has no canonical form."""


class UnknownOpcode(DecodeError):
    """Raised for an opcode that has no row of facts."""


class AssembleError(ValueError):
    """Raised for instructions that do not make a sound code object."""
