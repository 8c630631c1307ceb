"""Leaves in the graph: ``Variable(t)``, ``t.requires_grad = True``, ``ones(2, requires_grad=...)``.

Dynamo can make a leaf of a tensor of the graph, but AOTAutograd forgets that when it differentiates
the graph as a whole. The difference cannot be observed where all that leaves the graph would
require gradients without the new leaf too, or requires none with it: the leaf itself stays in the
graph, and so does its gradient. A leaf that only leaves the graph is told so behind it, by a
record. Refines the check of Dynamo
(``OutputGraph._check_requires_grad_intermediate_outputs``), to which any output that is computed
from a leaf is an obstacle.

``create_aot_state`` (torch/_functorch/aot_autograd.py) asks inputs, and not leaves inside, whether
there is anything to differentiate. Reproduced on torch 2.13.0;
``tests/tracing/backends/test_faults_of_torch.py`` fails when it is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NoReturn

import torch
from torch.fx import Node

from bcmend.delivery import records
from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.handlers import PASS, Answer, Call
from bcmend.dynamo.models import methods, translators
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import Value, constant, example_of, function_of
from bcmend.knowledge.substitute_rows import TABLE
from bcmend.tracing.effects import sharing
from bcmend.tracing.effects.operator_runs import is_in_place, run_of, storages_of
from bcmend.tracing.gradients import inner_backward, inner_gradients, input_leaves
from bcmend.tracing.output import record_builder
from bcmend.tracing.search.assumptions import Claim, Finding
from bcmend.tracing.search.falsified import falsify
from bcmend.tracing.sites import capture_mode, nesting_limits
from bcmend.tracing.sites.site_table import LiveSite
from bcmend.tracing.substitutes import dispatch
from bcmend.tracing.substitutes.dispatch import (
    ReplacedCall,
    answers_to,
    bound,
    is_patched,
    require_always,
    require_its_place,
    require_one_graph,
    unequal,
    withdraw,
)


@answers_to("variable")
def _variable(call: ReplacedCall) -> Answer:
    """Answer ``Variable(data=None, requires_grad=False, volatile=False)``: a detached tensor."""
    names = ("data", "requires_grad", "volatile")
    given = {**dict(zip(names, call.args, strict=False)), **call.kwargs}
    data = given.pop("data", None)
    data = None if data is None else data.realize()
    if data is None or not is_plain(data):
        raise unequal("not of a plain tensor")
    flags = {name: flag(value) for name, value in given.items()}
    if not flags.keys() <= set(names) or len(call.args) > len(names):
        raise unequal("other arguments")
    if flags.get("volatile", False):
        raise unequal("it warns that `volatile` has no effect")
    requires_grad = flags.get("requires_grad", False)
    if requires_grad:
        _require_differentiable(data)
    result: compat.TensorVariable = data.call_method(call.tx, "detach", [], {})
    if requires_grad:
        _make_leaf(call, result, True)
    return result


def flag(value: Value) -> bool:
    """Return the value of an argument that is to be a constant truth."""
    known = value.realize()
    if known.is_python_constant() and isinstance(known.as_python_constant(), (bool, int)):
        return bool(known.as_python_constant())
    raise unequal("a flag that is no constant")


def is_plain(value: Any) -> bool:
    """Return whether a value is a strided tensor of no subclass, with no transform over it."""
    if type(value) is not compat.TensorVariable:
        return False
    example = example_of(value)
    kind = getattr(value, "class_type", torch.Tensor)
    is_strided = example.layout is torch.strided and not example.is_quantized
    return is_strided and kind in (torch.Tensor, torch.nn.Parameter)


def _require_differentiable(value: compat.TensorVariable) -> None:
    example = example_of(value)
    if not (example.is_floating_point() or example.is_complex()):
        raise unequal("it fails, since such numbers have no gradients")


@answers_to("requires_grad")
def _requires_grad(call: ReplacedCall) -> Answer:
    """Answer ``t.requires_grad_(wanted)``."""
    tensor = call.owner
    if type(tensor) is not compat.TensorVariable:
        raise unequal("not of a plain tensor")
    (given,) = (*call.args, *call.kwargs.values()) or (constant(True),)
    wanted = flag(given)
    example = example_of(tensor)
    told = _TOLD.of(call.tx.output).get(tensor.as_proxy().node)
    if told is not None and not wanted:
        withdraw(told, _ONLY_SO)
    is_store = call.row.name not in TABLE
    if not example.is_leaf and (is_store or not wanted):
        raise unequal("it fails, since the tensor was computed from others that require gradients")
    if input_leaves.is_raised(call.tx, tensor):
        return _set_back(call, tensor, wanted)
    if wanted == example.requires_grad:
        return tensor
    if tensor.source is not None:
        if input_leaves.is_kept(call.tx, tensor):
            raise unequal("a module or a variable of the module keeps the tensor for later calls")
        _have_input_require_gradients(call, tensor, wanted)
        return tensor
    _require_made_on_this_side(call, tensor)
    sharing.require_alone(call.tx, example)
    _require_differentiable(tensor)
    _make_leaf(call, tensor, wanted)
    return tensor


def _have_input_require_gradients(
    call: ReplacedCall, tensor: compat.TensorVariable, wanted: bool
) -> None:
    """Change an input in front of the graph.

    Raises:
        Refusal: it was changed before, or the change is not made in each such call.
    """
    if not wanted or not input_leaves.may_become_leaf(tensor):
        raise unequal("the tensor comes from outside the call, where the change can be seen")
    require_its_place(call.tx)
    _require_differentiable(tensor)
    if compat.peek_interpreter_stack() is not None:
        raise unequal("it is changed under a transform of `torch.func`")
    before = {view: set(view.users) for view in input_leaves.views_of(tensor)}
    input_leaves.require_gradients(call.tx, tensor)
    if not before:
        return

    def withdraw_it() -> NoReturn:
        withdraw(call.site, "a view that was taken before is used behind")

    def require_unused(_: object) -> None:
        if any(not view.users.keys() <= users for view, users in before.items()):
            withdraw_it()

    at_the_end(call.tx.output, Phase.CHECK, require_unused)
    input_leaves.keep_flags_unread(call.tx, before, withdraw_it)


def _set_back(call: ReplacedCall, tensor: compat.TensorVariable, wanted: bool) -> Value:
    """Have a record set the flag of an input back that the call has set in front of the graph.

    Raises:
        Refusal: the record would not be always delivered.
    """
    tx, node = call.tx, tensor.as_proxy().node
    if wanted == tensor.requires_grad:
        return tensor
    if wanted:
        handlers.break_graph("requires_grad once more", call.row.name, _ONCE)
    require_its_place(tx)
    held = (tensor, constant("requires_grad"), constant(False))
    record_builder.append(tx, record_builder.store_by(tx, call.site, records.store, held))
    tensor.requires_grad = False
    users = set(node.users)

    def require_unused(_: object) -> None:
        if any(user not in users and user.op != "output" for user in node.users):
            withdraw(call.site, "the tensor is used behind")

    at_the_end(tx.output, Phase.CHECK, require_unused)
    return tensor


_ONCE: Final = "A tensor that comes from outside can require gradients once in a call."


@answers_to("gradients")
def _gradients(call: ReplacedCall) -> Answer:
    """Answer ``torch.autograd.grad``, with the arguments that Dynamo takes."""
    require_one_graph(call.tx)
    require_always(call.tx, "computed")
    function = function_of(call.tx, torch.autograd.grad)
    return inner_gradients.computed(call.tx, function, list(call.args), dict(call.kwargs))


@answers_to("backward")
def _backward(call: ReplacedCall) -> Answer:
    """Answer ``loss.backward()`` and ``torch.autograd.backward([one, other])``."""
    given = _of_function(call) if call.owner is None else _of_method(call, call.owner)
    require_one_graph(call.tx)
    require_its_place(call.tx)
    if given is None:
        raise unequal("other arguments")
    found = inner_backward.computed(call.tx, given)
    if not all(inner_backward.is_addable(gradient) for _, gradient in found):
        withdraw(call.site, "a gradient is sparse")
    for leaf, gradient in found:
        inner_backward.add(call.tx, leaf, gradient)
    return constant(None)


def _of_method(call: ReplacedCall, owner: Value) -> dict[str, Value] | None:
    """Return what ``Tensor.backward`` is given, by the names that the function has."""
    names = {"self": "tensors", "gradient": "grad_tensors"}
    given = bound(inner_backward.OF_A_TENSOR, replace(call, args=(owner, *call.args)))
    return given and {names.get(name, name): each for name, each in given.items()}


def _of_function(call: ReplacedCall) -> dict[str, Value] | None:
    """Return what ``torch.autograd.backward`` is given, by name."""
    given = bound(inner_backward.OF_TENSORS, call)
    if given and not given.pop("grad_variables").is_constant_none():
        raise unequal("it warns that `grad_variables` is deprecated")
    return given


def _require_made_on_this_side(call: ReplacedCall, tensor: compat.TensorVariable) -> None:
    """Break the graph in an arm that would tell a tensor from outside of it."""
    tx = call.tx
    if nesting_limits.is_in_an_arm(tx) and tensor.as_proxy().node.graph is not tx.output.graph:
        handlers.break_graph("requires_grad of one side", call.row.name, _OF_ONE_SIDE)


_OF_ONE_SIDE: Final = "A tensor cannot require gradients by the data."


def _make_leaf(call: ReplacedCall, tensor: compat.TensorVariable, wanted: bool) -> None:
    if wanted and not call.site.holds(Claim.STAYS_INSIDE):
        _make_leaf_after_the_graph(call, tensor)
        return
    tensor.method_requires_grad_(call.tx, constant(wanted))
    if wanted:
        _SITES.of(call.tx.output).append(call.site)
        return
    # Dynamo writes `requires_grad_()` for `requires_grad_(False)` too.
    nodes: Iterable[Node] = reversed(tensor.as_proxy().node.graph.nodes)
    told = next(each for each in nodes if each.target == "requires_grad_")
    told.args = (told.args[0], wanted)


def _make_leaf_after_the_graph(call: ReplacedCall, tensor: compat.TensorVariable) -> None:
    """Have a record set what a tensor that leaves the graph is told, if nothing is computed of it.

    Raises:
        Refusal: the record would not be always delivered.
    """
    tx, site = call.tx, call.site
    require_always(tx, "told")
    if tx.export:
        raise unequal("an exported program has no Python behind its graph")
    held = (tensor, constant("requires_grad"), constant(True))
    record_builder.append(tx, record_builder.store_by(tx, site, records.store, held))
    tensor.requires_grad = True
    node = tensor.as_proxy().node
    _TOLD.of(tx.output)[node] = site

    def require_unused(_: object) -> None:
        if any(user.op != "output" for user in node.users):
            withdraw(site, _ONLY_SO)

    at_the_end(tx.output, Phase.CHECK, require_unused)


#: The sites of tensors that records tell to require gradients, by their nodes.
_TOLD: Final[Slot[dict[Node, LiveSite]]] = Slot(dict, rolls_back=True)

#: Why a leaf that leaves the graph is left to torch.
_ONLY_SO: Final = "what leaves the graph requires gradients only so"


#: Functions that make tensors of nothing that requires gradients.
_MAKERS: Final = frozenset(
    (
        *(torch.zeros, torch.ones, torch.empty, torch.full, torch.rand, torch.randn, torch.tensor),
        *(torch.zeros_like, torch.ones_like, torch.empty_like, torch.full_like),
        *(torch.rand_like, torch.randn_like, torch.arange, torch.linspace, torch.eye),
    )
)


@handlers.method(
    compat.TorchInGraphFunctionVariable, methods.CALL_FUNCTION, "tensors made as leaves", place=3
)
def _made_as_leaf(call: Call) -> Answer:
    """Answer ``torch.zeros(2, requires_grad=True)``: ``torch.zeros(2).requires_grad_()``."""
    args, kwargs = call.args
    given = kwargs.get("requires_grad")
    if given is None or call.owner.value not in _MAKERS or not capture_mode.in_mended_code(call.tx):
        return PASS
    given = given.realize()
    if not given.is_python_constant() or given.as_python_constant() is not True:
        return PASS
    rest = {name: each for name, each in kwargs.items() if name != "requires_grad"}
    made = call.owner.call_function(call.tx, args, rest)
    return dispatch.answer_for(call.tx, "torch.Tensor.requires_grad_", made)


_SITES: Final[Slot[list[LiveSite]]] = Slot(list, rolls_back=True)


@hooks.around(
    compat.BuiltinVariable, methods.CALL_ISINSTANCE, "`isinstance(x, torch.autograd.Variable)`"
)
def _is_instance(inner: Any, self: Any, tx: compat.Tracer, arg: Any, kinds: Any) -> Any:
    """Model ``isinstance(x, Variable)``, which the metaclass answers by ``Tensor``."""
    if any(map(_is_variable, _kinds_in(kinds.realize()))) and is_patched(tx):
        tensor = compat.VariableTracker.build(tx, torch.Tensor)
        changed = [tensor if _is_variable(each) else each for each in _kinds_in(kinds.realize())]
        kinds = compat.TupleVariable(changed)
    return inner(self, tx, arg, kinds)


def _kinds_in(given: Any) -> list[Value]:
    is_tuple = type(given) is compat.TupleVariable
    return [each.realize() for each in given.items] if is_tuple else [given]


def _is_variable(kind: Value) -> bool:
    return getattr(kind, "value", None) is torch.autograd.Variable


# What leaves the graph


def _require_by_themselves(nodes: Iterable[Node], leaves: set[Node]) -> set[Node]:
    """Return the nodes whose tensors would require gradients without ``leaves``."""
    found: set[Node] = set()
    before: list[Node] = []
    for node in nodes:
        is_call = node.op in ("call_function", "call_method")
        requires = not is_call or not found.isdisjoint(node.all_input_nodes)
        if is_call and requires and is_in_place(node):
            found.update(_written_by(node, before))
        before.append(node)
        if requires and node not in leaves and _may_require(node.meta.get("example_value")):
            found.add(node)
    return found


def _may_require(example: Any) -> bool:
    if isinstance(example, torch.Tensor):
        return bool(example.requires_grad)
    return isinstance(example, (tuple, list))


def _written_by(node: Node, before: list[Node]) -> list[Node]:
    """Return the earlier nodes whose memory a node writes to: what it writes has a history."""
    run = run_of(node)
    written = set[int]() if run is None else run.storages_written(reshaped=False)
    return [each for each in before if not written.isdisjoint(storages_of(each))]


@hooks.around(
    compat.OutputGraph,
    methods.CHECK_GRADIENTS_OF_OUTPUTS,
    "tensors that become leaves inside the graph",
    gate=None,
)
def _check(inner: Any, self: Any, rv: list[Value], tx: compat.Tracer) -> None:
    """Have Dynamo look only at outputs that require gradients because of a leaf."""
    leaves = {
        each.as_proxy().node
        for each in self.leaf_var_creation_order
        if isinstance(each, compat.TensorVariable) and not each.source
    }
    if leaves and is_patched(tx):
        fine = _require_by_themselves(self.graph.nodes, leaves)
        rv = [each for each in rv if not (_requires(each) and each.as_proxy().node in fine)]
    try:
        inner(self, rv, tx)
    except (compat.Unsupported, compat.RequiresGradRestartAnalysis) as error:
        for site in _SITES.of(self):
            if site.holds(Claim.STAYS_INSIDE):
                falsify(Finding(Claim.STAYS_INSIDE, site))
            withdraw(site, _ONLY_SO)
        if isinstance(error, compat.RequiresGradRestartAnalysis):
            # Such a call breaks the graph from now on. An arm with one is refused then, and the
            # trace goes on elsewhere than Dynamo has noted.
            translators.forget_speculations(tx)
        raise


def _requires(value: Value) -> bool:
    return isinstance(value, compat.TensorVariable) and bool(value.requires_grad)
