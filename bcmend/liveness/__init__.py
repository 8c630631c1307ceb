"""Whether the running torch still calls what bcmend replaces: small programs, and what they show.

A method that torch has, and does not call any more, would leave results wrong without a word. Each
program says which hooks it has called; ``runner`` compares it with eager execution and counts.
Nothing here is imported before it is run.
"""
