"""The property test of what bcmend captures: each row of the table, and constructs of Python."""
