"""The adapter for torch: the only package that imports private names of torch or replaces methods.

``compat`` has every private name, ``hooks`` every replaced method; ``python -m bcmend doctor``
prints both. What the rest of bcmend needs of Dynamo beyond plain classes has a typed form in the
other modules of this package.
"""
