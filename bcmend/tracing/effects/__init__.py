"""What the operations of a graph do: fail, draw, write."""
