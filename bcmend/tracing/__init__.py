"""What mended code does while Dynamo traces it.

Layers, each importing only those behind it: entry, handlers, arithmetic, opaque, recurrent,
substitutes, indexing, loops, two_forms, lowering, merging, output, speculation, numbers, programs,
gradients, accelerators, backends, deopt, effects, heap, sites, search.
Torch's private names come from ``bcmend.dynamo``.
"""
