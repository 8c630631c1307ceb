"""Trace an arm of a branch beside the main graph."""
