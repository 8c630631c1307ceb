"""What runs after the graph of a call: records, exceptions, phis without a common form.

Public torch only; imports neither ``bcmend.dynamo`` nor ``bcmend.tracing``.
"""
