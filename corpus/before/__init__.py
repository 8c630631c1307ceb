"""Code of public projects as it was before its authors removed a graph break by hand, and after.

Each case is a pair of small modules with the same weights and arguments. ``before`` has the form
that breaks the graph, ``fixed`` the form that the authors, or others in their place, wrote instead.
``cases`` has the pairs, ``measure`` compares them, ``python -m bench.before`` times them.
"""
