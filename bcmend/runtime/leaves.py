"""``Variable(t)``, ``t.requires_grad_()`` and ``t.requires_grad = ...`` in the graph.

Dynamo can make a leaf of a tensor of the graph, but AOTAutograd forgets that when it differentiates
the graph as a whole. That is equal where it cannot be told: where all that leaves the graph would
require gradients without the new leaf too, or requires none with it. Nobody sees the gradient of
the leaf itself then, since the leaf stays in the graph.

Refines the check that Dynamo makes (``OutputGraph._check_requires_grad_intermediate_outputs``), to
which any output that is computed from a leaf is an obstacle.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import torch
from torch._dynamo import exc
from torch._dynamo.output_graph import OutputGraph
from torch._dynamo.variables import BuiltinVariable, TensorVariable, TupleVariable
from torch._dynamo.variables.base import VariableTracker
from torch.fx import Node

from bcmend import substitutes
from bcmend.runtime.merge import constant, example_of
from bcmend.runtime.per_trace import kept
from bcmend.runtime.sites import LiveSite
from bcmend.runtime.substitution import Call, Refused, answers_to, is_patched, withdraw

__all__ = ["install"]


@answers_to("variable")
def _variable(call: Call) -> VariableTracker | None:
    """``Variable(data=None, requires_grad=False, volatile=False)``: a tensor beside its history."""
    names = ("data", "requires_grad", "volatile")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    data = given.pop("data", None)
    data = None if data is None else data.realize()
    if not is_plain(data):
        raise Refused("not of a plain tensor")
    flags = {name: _flag(value) for name, value in given.items()}
    if not flags.keys() <= set(names) or len(call.args) > len(names):
        raise Refused("other arguments")
    if flags.get("volatile", False):
        raise Refused("it warns that `volatile` has no effect")
    assert isinstance(data, TensorVariable)
    wanted = flags.get("requires_grad", False)
    if wanted and not _may_require(data):
        raise Refused("it fails, since such numbers have no gradients")
    result = data.call_method(call.tx, "detach", [], {})
    if wanted:
        _make_leaf(call, result)
    return result


def _flag(value: VariableTracker) -> bool:
    known = value.realize()
    if known.is_python_constant() and isinstance(known.as_python_constant(), (bool, int)):
        return bool(known.as_python_constant())
    raise Refused("a flag that is no constant")


def is_plain(value: Any) -> bool:
    """Whether a value is a tensor of no subclass, strided, and with no transform over it."""
    if type(value) is not TensorVariable:
        return False
    example = example_of(value)
    kind = getattr(value, "class_type", torch.Tensor)
    return (
        kind in (torch.Tensor, torch.nn.Parameter)
        and example.layout is torch.strided
        and not example.is_quantized
    )


def _may_require(value: TensorVariable) -> bool:
    example = example_of(value)
    return example.is_floating_point() or example.is_complex()


@answers_to("requires_grad")
def _requires_grad(call: Call) -> VariableTracker | None:
    """``t.requires_grad_(wanted)``."""
    tensor = call.owner
    if type(tensor) is not TensorVariable:
        raise Refused("not of a plain tensor")
    (given,) = (*call.args, *call.kwargs.values()) or (constant(True),)
    wanted = _flag(given)
    example = example_of(tensor)
    is_store = call.row.name not in substitutes.TABLE
    if not example.is_leaf and (is_store or not wanted):
        raise Refused("it fails, since the tensor was computed from others that require gradients")
    if wanted == example.requires_grad:
        return tensor
    if tensor.source is not None:
        raise Refused("the tensor comes from outside the call, where the change can be seen")
    if not _may_require(tensor):
        raise Refused("it fails, since such numbers have no gradients")
    _make_leaf(call, tensor, wanted)
    return tensor


def _make_leaf(call: Call, tensor: VariableTracker, wanted: bool = True) -> None:
    assert isinstance(tensor, TensorVariable)
    tensor.method_requires_grad_(call.tx, constant(wanted))
    _sites_of(call.tx.output).append(call.site)


def _sites_of(output: Any) -> list[LiveSite]:
    return kept(output, "sites_of_leaves", list)


_DYNAMOS_ISINSTANCE: Final = BuiltinVariable.call_isinstance


def _is_instance(
    self: BuiltinVariable, tx: Any, arg: VariableTracker, isinstance_type_var: VariableTracker
) -> VariableTracker:
    """``isinstance(x, Variable)``, which the metaclass answers by ``isinstance(x, Tensor)``."""
    if _names_variable(isinstance_type_var.realize()) and is_patched(tx):
        kinds = _kinds_in(isinstance_type_var.realize())
        tensor: VariableTracker = VariableTracker.build(tx, torch.Tensor)
        changed = [tensor if _names_variable(each) else each for each in kinds]
        isinstance_type_var = TupleVariable(changed)
    return _DYNAMOS_ISINSTANCE(self, tx, arg, isinstance_type_var)


def _kinds_in(given: VariableTracker) -> list[VariableTracker]:
    return [each.realize() for each in given.items] if type(given) is TupleVariable else [given]


def _names_variable(given: VariableTracker) -> bool:
    """Whether a class, or one in a tuple of them, is ``Variable``."""
    return any(getattr(each, "value", None) is torch.autograd.Variable for each in _kinds_in(given))


# What leaves the graph


def _require_by_themselves(nodes: Iterable[Node], leaves: set[Node]) -> set[Node]:
    """Return the nodes whose tensors would require gradients without ``leaves``."""
    found: set[Node] = set()
    for node in nodes:
        example = node.meta.get("example_value")
        if not isinstance(example, (torch.Tensor, tuple, list)) or node in leaves:
            continue
        if isinstance(example, torch.Tensor) and not example.requires_grad:
            continue
        if node.op == "call_function" or node.op == "call_method":
            if any(each in found for each in node.all_input_nodes):
                found.add(node)
        else:
            found.add(node)
    return found


_DYNAMOS_CHECK: Final = OutputGraph._check_requires_grad_intermediate_outputs


def _check(self: Any, rv: list[VariableTracker], tx: Any) -> None:
    """Have Dynamo look only at outputs that owe it to a leaf that they require gradients."""
    leaves = {
        each.as_proxy().node
        for each in self.leaf_var_creation_order
        if isinstance(each, TensorVariable) and not each.source
    }
    if leaves and is_patched(tx):
        fine = _require_by_themselves(self.graph.nodes, leaves)
        rv = [each for each in rv if not (_requires(each) and each.as_proxy().node in fine)]
    try:
        _DYNAMOS_CHECK(self, rv, tx)
    except (exc.Unsupported, exc.RequiresGradRestartAnalysis):
        for site in _sites_of(self):
            raise withdraw(site, "what leaves the graph requires gradients only so") from None
        raise


def _requires(value: VariableTracker) -> bool:
    return isinstance(value, TensorVariable) and bool(value.requires_grad)


def install() -> None:
    """Refine Dynamo's check, and its idea of ``Variable``."""
    BuiltinVariable.call_isinstance = _is_instance  # type: ignore[method-assign]
    OutputGraph._check_requires_grad_intermediate_outputs = _check  # type: ignore[method-assign]
