"""The adapter for torch: the only package that imports private names of torch or replaces methods.

``compat`` has every private name, ``hooks`` every replaced method; ``python -m bcmend doctor``
prints both. ``models`` has what is read, called and constructed of Dynamo's objects. What the rest
of bcmend needs beyond that has a typed form in the other modules of this package.
"""
