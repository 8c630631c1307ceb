"""Every kind of effect in every construct under every observer, in pairs.

``python -m tests.matrix``; see `docs/matrix.md`, which the command writes.
"""
