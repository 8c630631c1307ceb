"""Rearrange a function before its sites are planned, so that more of them can be mended."""
