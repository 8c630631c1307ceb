"""What rewritten bytecode calls: decided while Dynamo traces, inert in plain Python.

Imports torch and nothing else of bcmend.
"""
