"""Finds where code in files has sites: nothing of it is imported and nothing runs."""
