"""The exceptions that bcmend raises on its own behalf, and its warnings.

Each is also an instance of the built-in exception that a caller would expect for the same mistake.
"""

from __future__ import annotations


class BcmendError(Exception):
    """Base of every exception that bcmend raises on its own behalf."""


class UnsupportedObject(BcmendError, TypeError):
    """An object was passed whose bytecode cannot be rewritten; nothing has been changed."""


class PolicyError(BcmendError, ValueError):
    """A `Policy` field was given a value that it does not take."""


class OutputError(BcmendError, ValueError):
    """What was to be registered as an output is neither a callable nor the name of one."""


class CaptureError(BcmendError, ValueError):
    """What was to be captured, or what stands in for it, is nothing that can be called."""


class NotPatched(BcmendError, ValueError):
    """An operation needs a patched object and was given one that is not patched."""


class CallError(BcmendError, TypeError):
    """A call that was to be tried is none that the object takes; nothing has been changed."""


class TrialError(BcmendError, RuntimeError):
    """Calls of an object could not be tried; nothing of the caller's has been changed."""


class MissingInTorch(BcmendError, AttributeError):
    """The running torch lacks methods that bcmend replaces; nothing has been changed."""


class OutputDropped(UserWarning):
    """Code with output statements was exported; the exported program writes nothing."""


class ChecksDropped(UserWarning):
    """Code with checks was exported to a form that has none; they are left out."""


class UntestedTorch(UserWarning):
    """The running torch is none that bcmend is tested with: nothing changes, or some is refused."""
