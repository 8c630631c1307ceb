"""Tries of an object that leave no trace: what the compiler makes of it, stock and mended."""
