"""What of torch bcmend relies on, release by release, and how the running torch differs from it.

``description`` describes the running torch; each recorded release has a file with such a
description (``2.13.0.json``). ``comparison`` finds the differences of two, ``groups`` says what of
bcmend each concerns. ``python -m tests.dynamo.contract`` writes the file of the running torch.
"""
