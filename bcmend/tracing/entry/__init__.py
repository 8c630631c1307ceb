"""Where Dynamo meets mended code: the boundary, the primitives, the choice of a lowering."""
