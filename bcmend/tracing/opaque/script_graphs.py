"""The graph of a module that ``torch.jit.script`` has compiled, as a function of its tensors.

Parameters, buffers and constant tensors become inputs, and all other attributes constants, which
whoever calls the function has to guard. Graphs that do more than compute results are refused:
those that draw, print, store attributes, write statistics, or ask how autograd is set.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, Final

import torch
from torch import Tensor

from bcmend.knowledge import effects
from bcmend.weak_tables import ByIdentity

#: What graphs may hold beside operators of ATen.
_ALLOWED: Final = frozenset(
    f"prim::{name}"
    for name in (
        "Constant DictConstruct If ListConstruct ListUnpack Loop NumToTensor RaiseException"
        " TupleConstruct TupleIndex TupleSlice TupleUnpack Uninitialized device dtype is_cuda"
        " layout max min unchecked_cast"
    ).split()
)
#: What does something beside, or may decide by what is no part of the graph.
_REFUSED: Final = frozenset(
    f"aten::{name}"
    for name in (
        "_set_item backward data_ptr grad get_autocast_dtype"
        " is_autocast_cpu_enabled"
        " is_autocast_enabled is_grad_enabled is_leaf is_scripting manual_seed output_nr"
        " requires_grad requires_grad_ resize_ resize_as_ retain_grad retains_grad save"
        " set_ set_data set_grad_enabled warn"
    ).split()
)
_JIT: Final[Any] = torch.jit  # which does not say what of it is public
_PLAIN: Final = (type(None), bool, int, float, str)
_HOOKS: Final = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")

Path = tuple[str, ...]


class NotLifted(Exception):
    """A module does more than an operator of the graph can do for it."""


@dataclass(frozen=True, slots=True, eq=False)
class Functions:
    """The function of a graph, once for each way in which it is run.

    TorchScript compiles a function for the tensors that it is given first.
    """

    forward: Any
    backward: Any
    fake: Any


@dataclass(frozen=True, slots=True, eq=False)
class Lifted:
    """A module as a function.

    Attributes:
        key: finds the functions; there is no second one like it, in whatever process.
        state: where the tensors of the module are that the function is given.
        constants: tensors of the graph itself, which it is given behind these.
        attributes: all other attributes that the graph reads, with their values.
    """

    key: str
    state: tuple[Path, ...]
    constants: tuple[Tensor, ...]
    attributes: tuple[tuple[Path, Any], ...]

    def holds_of(self, module: Any) -> bool:
        """Return whether the module still is what the function was made of."""
        if any(getattr(module, name) for name in _HOOKS):
            return False
        return all(_is_same(attribute(module, path), value) for path, value in self.attributes)


#: The functions by their keys. They hold no tensor and no module.
FUNCTIONS: Final[dict[str, Functions]] = {}
_LIFTED: Final[ByIdentity[Any, list[Lifted]]] = ByIdentity()


def attribute(module: Any, path: Path) -> Any:
    """Return an attribute of a module, or of one inside."""
    return reduce(getattr, path, module)


def _is_same(one: Any, other: Any) -> bool:
    return type(one) is type(other) and repr(one) == repr(other)


def lifted(module: Any) -> Lifted:
    """Return a module as a function.

    Raises:
        NotLifted: it does more than to compute results.
    """
    if any(getattr(module, name) for name in _HOOKS):
        raise NotLifted("it has hooks")
    known = _LIFTED.setdefault(module, list)
    found = next((each for each in known if each.holds_of(module)), None)
    if found is None:
        found = _made(module)
        known.append(found)
    return found


def _made(module: Any) -> Lifted:
    if not hasattr(module, "forward"):
        raise NotLifted("it cannot be called")
    graph = module.inlined_graph.copy()
    state, attributes = _lift_attributes(graph, module)
    constants = _lift_constants(graph)
    graph.eraseInput(0)
    _require_pure(graph)
    key = uuid.uuid4().hex
    ways = (_JIT.CompilationUnit().create_function("forward", graph.copy()) for _ in range(3))
    FUNCTIONS[key] = Functions(*ways)
    return Lifted(key, tuple(state), tuple(constants), tuple(attributes.items()))


def _nodes(block: Any) -> Iterator[Any]:
    for node in list(block.nodes()):
        yield node
        for inner in node.blocks():
            yield from _nodes(inner)


def _lift_attributes(graph: Any, module: Any) -> tuple[dict[Path, Any], dict[Path, Any]]:
    """Make inputs of the tensors of a module, and constants of its other attributes."""
    paths: dict[str, Path] = {next(iter(graph.inputs())).debugName(): ()}
    state: dict[Path, Any] = {}
    attributes: dict[Path, Any] = {}
    reads = [node for node in _nodes(graph) if node.kind() == "prim::GetAttr"]
    for node in reads:
        owner = node.input().debugName()
        if owner not in paths:
            raise NotLifted("it has an object that is no module")
        path = (*paths[owner], node.s("name"))
        value = attribute(module, path)
        if isinstance(value, torch.nn.Module):
            paths[node.output().debugName()] = path
        elif isinstance(value, Tensor):
            if path not in state:
                state[path] = graph.addInput()
            node.output().replaceAllUsesWith(state[path])
        else:
            attributes[path] = value
            _insert_constant(graph, node, value)
    for node in reversed(reads):
        _require_unused(node.output())
        node.destroy()
    _require_unused(next(iter(graph.inputs())))
    return state, attributes


def _require_unused(module: Any) -> None:
    if list(module.uses()):
        raise NotLifted("it uses a module otherwise than by calling it")


def _insert_constant(graph: Any, node: Any, value: Any) -> None:
    is_plain = type(value) in _PLAIN
    if not is_plain and not (type(value) is tuple and all(type(each) in _PLAIN for each in value)):
        raise NotLifted(f"it has an attribute of type {type(value).__name__}")
    with graph.insert_point_guard(node):
        node.output().replaceAllUsesWith(graph.insertConstant(value))


def _lift_constants(graph: Any) -> list[Tensor]:
    found = []
    for node in list(_nodes(graph)):
        is_tensor = node.kind() == "prim::Constant" and isinstance(node.output().toIValue(), Tensor)
        if is_tensor:
            found.append(node.output().toIValue())
            node.output().replaceAllUsesWith(graph.addInput())
            node.destroy()
    return found


def _run_nodes(block: Any) -> Iterator[Any]:
    """Yield the nodes of a block but those in branches that the attributes rule out."""
    for node in block.nodes():
        yield node
        inner = list(node.blocks())
        condition = _known(node.input()) if node.kind() == "prim::If" else _OPEN
        if condition is not _OPEN:
            inner = inner[:1] if condition else inner[1:]
        for each in inner:
            yield from _run_nodes(each)


def _require_pure(graph: Any) -> None:
    for node in _run_nodes(graph):
        kind = node.kind()
        if kind in _ALLOWED:
            continue
        if not kind.startswith("aten::") or kind in _REFUSED:
            raise NotLifted(f"it has {kind}")
        if not _is_pure(node):
            raise NotLifted(f"{kind} does more than to compute a result")


def _is_pure(node: Any) -> bool:
    name, _, overload = node.schema().partition("(")[0].removeprefix("aten::").partition(".")
    packet = getattr(torch.ops.aten, name, None)
    operator = getattr(packet, overload or "default", None)
    if operator is None:
        return False  # one of TorchScript's own
    facts = effects.facts_of_target(operator)
    given = [_known(each) for each in node.inputs()]
    statistics = facts.statistics
    writes_statistics = (
        statistics is not None
        and not statistics.switch.is_off(given, {})
        and given[statistics.first] is not None
    )
    does_more = (
        writes_statistics,
        facts.draws(given, {}),
        facts.replaces_storage,
        facts.is_collective,
        facts.sets_default,
        facts.draws_on_host,
        facts.handles_generator,
        facts.has_hidden_state,
    )
    return not any(does_more)


_OPEN: Final = object()


def _known(value: Any) -> Any:
    """Return the value of an argument of a node; an object of its own where it has none yet."""
    if value.node().mustBeNone():
        return None
    found = value.toIValue()
    return _OPEN if found is None else found


def named(module: Any, args: Sequence[Any], kwargs: dict[str, Any], make: Any) -> list[Any]:
    """Return the arguments of a call by place, with the defaults that the module has.

    Raises:
        NotLifted: the module does not take them.
    """
    rest, found = dict(kwargs), list(args)
    parameters = list(module.forward.schema.arguments)[1:]
    for parameter in parameters[len(found) :]:
        if parameter.name in rest:
            found.append(rest.pop(parameter.name))
        elif parameter.has_default_value() and type(parameter.default_value) in _PLAIN:
            found.append(make(parameter.default_value))
        else:
            raise NotLifted("it lacks an argument")
    if rest or len(found) != len(parameters):
        raise NotLifted("it is given more than it takes")
    return found
