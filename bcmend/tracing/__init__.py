"""What mended code does while Dynamo traces it.

Layers, each importing only those behind it: entry, handlers, substitutes, indexing, loops,
lowering, merging, output, speculation, numbers, gradients, deopt, effects, sites. Torch's private
names come from ``bcmend.dynamo``.
"""
