"""Torch's own database of operators (OpInfo): what each does, and each in a mended program.

``python -m tests.opinfo`` runs the whole.
"""
