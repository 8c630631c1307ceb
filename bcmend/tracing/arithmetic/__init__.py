"""Functions and operators of Python and numpy, of numbers out of tensors."""
