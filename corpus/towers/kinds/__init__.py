"""The kinds of code, by what they do with their numbers."""
