"""Recurrent layers, and the packed sequences that they are given."""
