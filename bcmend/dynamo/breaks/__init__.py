"""Graph breaks, noted where Dynamo makes them."""
