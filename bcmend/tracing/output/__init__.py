"""Output statements and checks as records that are delivered after the graph."""
