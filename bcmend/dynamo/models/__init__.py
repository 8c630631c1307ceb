"""What the rest of bcmend reads, calls and constructs of Dynamo's objects, by one name for each.

What differs between releases of torch, or is private there, has a function or a constant in a
module of this package. What has been the same in all of them is used by Dynamo's own name, and
``stable_names`` lists it. ``tests/dynamo/models`` finds any other name.
"""
