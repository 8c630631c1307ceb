"""Propose one lowering or one refusal for each site of a function."""
