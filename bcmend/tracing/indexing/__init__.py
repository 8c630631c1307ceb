"""Indices with data-dependent parts."""
