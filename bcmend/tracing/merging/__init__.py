"""Make one value, or one effect, of what the two arms of a branch leave."""
