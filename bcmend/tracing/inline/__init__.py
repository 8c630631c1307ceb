"""Records that run at their place in the graph."""
