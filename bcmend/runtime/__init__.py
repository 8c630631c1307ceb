"""What rewritten bytecode calls: decided while Dynamo traces, inert in plain Python.

Imports torch, and of bcmend the names that it shares with the rewritten code.
"""
