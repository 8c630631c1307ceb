"""Compute with values that a branch leaves in two forms, without a path for each."""
