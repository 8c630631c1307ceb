"""Code objects of CPython as canonical instructions, and back; all that knows its versions."""
