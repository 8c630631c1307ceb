"""Answers to calls and operations of Python and torch that would end the graph."""
