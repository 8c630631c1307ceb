"""Code objects taken apart and put together: the only part that knows CPython versions."""
