"""Tables: output callables, replaced calls, effects of operators, names that bytecode shows.

What the static part reads of it imports no torch.
"""
