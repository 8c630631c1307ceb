"""Calls that a graph has as one operator each, since torch cannot trace what they consist of."""
