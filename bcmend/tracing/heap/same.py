"""Whether two values of a trace are one: the only function that says so.

What can be told from an equal one (``1`` and ``True``, two empty lists) is another one. Keys of
containers are asked by ``containers.is_same_key``, which takes constants for one by the same rule.
"""

from __future__ import annotations

from bcmend.dynamo import compat
from bcmend.dynamo.models import constants
from bcmend.dynamo.values import Value, example_of
from bcmend.tracing.sites.phi import Phi


def is_same(one: Value | None, other: Value | None) -> bool:
    """Return whether nobody can tell one value from another; ``None`` stands for no value."""
    if one is other or one is None or other is None:
        return one is other
    # A lazy one says of itself that it cannot be changed, and of what it stands for what it equals.
    one, other = one.realize(), other.realize()
    if one is other:
        return True
    if isinstance(one, Phi) or isinstance(other, Phi):
        return False  # it answers no question without ending the trace
    if isinstance(one, compat.TensorVariable) and isinstance(other, compat.TensorVariable):
        # ``x += 1`` gives ``x`` another node, but leaves it the same tensor.
        return type(one) is type(other) and example_of(one) is example_of(other)
    if isinstance(one, compat.SymNodeVariable) and isinstance(other, compat.SymNodeVariable):
        return one.as_proxy().node is other.as_proxy().node
    for each in (one, other):
        is_number = isinstance(each, compat.SymNodeVariable)
        if is_number or each.mutation_type is not None or not each.is_python_constant():
            return False
    return constants.is_same(one, other)
