"""An arm of a choice as pieces, cut where a choice stands in it.

Choices one in another are written as choices one behind another (``flat_choices``): each piece
becomes a choice of its own, taken where the arm is. What one piece hands to a later one is a result
of its choice then, so it has to be a tensor of which zeros can stand in.
"""

from __future__ import annotations

import operator
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from typing import Any, Final

import torch
from torch.fx import Graph, GraphModule, Node

from bcmend import meta_keys
from bcmend.dynamo import compat
from bcmend.dynamo.shape_env import symbols_in
from bcmend.tracing.deopt import block_settings, undo_log
from bcmend.tracing.effects import change_counts
from bcmend.tracing.effects.operator_runs import storages_of, target_name, tensors_of
from bcmend.tracing.sites.nesting_limits import Nesting

#: Operators that cost nothing and cannot fail: they are computed whichever side is taken.
_NAMES: Final = "clone detach full getitem logical_and logical_not logical_or permute to view zeros"
_LIGHT: Final = frozenset([*_NAMES.split(), "zeros_like"])
#: Operators whose derivatives are finite where what they are given is.
_SMOOTH: Final = frozenset(
    """
    add add_ iadd sub sub_ isub neg mul mul_ imul square sum mean matmul mm bmm mv dot addmm baddbmm
    einsum linear bilinear conv1d conv2d conv3d embedding
    lstm gru rnn_tanh rnn_relu lstm_cell gru_cell rnn_tanh_cell rnn_relu_cell recurrent_layer
    sigmoid tanh relu relu_ leaky_relu elu gelu silu hardtanh hardsigmoid hardswish softplus
    softmax log_softmax exp sin cos erf dropout layer_norm scaled_dot_product_attention
    clamp maximum minimum max min amax amin abs where masked_fill gather index_select select
    getitem narrow cat stack chunk split unbind squeeze unsqueeze view view_as reshape flatten
    transpose permute t contiguous expand expand_as repeat to float type_as clone
    """.split()
)
#: What has a backward that reads none of what it was given, but a condition.
_KEEP_NOTHING: Final = ("clone", torch.where)
#: What is known of a piece: its nodes, or the one choice that it is.
Segment = list[Node]


def nesting_of(node: Node) -> Nesting | None:
    """Return how large a choice of ours is; ``None`` for other nodes."""
    found: Nesting | None = node.meta.get(meta_keys.CONDS)
    return found


def is_cut_at(node: Node) -> bool:
    """Return whether an arm is cut at a node: at a choice that can be flat itself."""
    found = nesting_of(node)
    return found is not None and found.is_flat


def segments_of(graph: Graph) -> list[Segment]:
    """Return the pieces of an arm, in order; a choice at which it is cut is one by itself.

    Items stand in the piece in which that is made which they are items of.
    """
    found: list[Segment] = [[]]
    place: dict[Node, int] = {}
    for node in graph.nodes:
        if node.op in ("placeholder", "output") or _is_of_a_cut(node):
            continue
        if is_cut_at(node):
            found += [[node], []]
            place[node] = len(found) - 2
            continue
        source = node.args[0] if node.target is operator.getitem else None
        if isinstance(source, Node) and source in place and not is_tensor(source):
            place[node] = place[source]
        else:
            place[node] = len(found) - 1
        found[place[node]].append(node)
    return [each for each in found if each]


def _is_of_a_cut(node: Node) -> bool:
    """Return whether a node stands for a graph that a choice is given at which an arm is cut."""
    return node.op == "get_attr" and bool(node.users) and all(map(is_cut_at, node.users))


def is_tensor(node: Node) -> bool:
    return isinstance(node.meta.get("example_value"), torch.Tensor)


def is_deep(graph: Graph) -> bool:
    """Return whether a side is cut into pieces."""
    return any(map(is_cut_at, graph.nodes))


def is_light(node: Node) -> bool:
    """Return whether a node may be computed whichever side is taken."""
    if node.op == "get_attr" or target_name(node) not in _LIGHT:
        return False
    return node.target is not operator.getitem or isinstance(node.args[1], int)


def handed_on(segment: Segment) -> list[Node]:
    """Return the nodes of a piece that are read elsewhere."""
    inside = set(segment)
    return [
        each
        for each in segment
        if meta_keys.ABSENT not in each.meta and any(user not in inside for user in each.users)
    ]


def forward_copies(graph: Graph, mode: Any) -> None:
    """Have what is copied into a tensor of the arm be read in its place.

    So a branch in an arm writes back what it has changed there: a piece behind it would write to
    memory of a piece before it.
    """
    order = {node: at for at, node in enumerate(graph.nodes)}
    records = torch.is_grad_enabled()
    for node in list(graph.nodes):
        if node.target is compat._set_grad_enabled_now:
            records = bool(node.args[0])
        elif node.target == "copy_" and len(node.args) == 2 and not node.kwargs:
            _forward(graph, node, order, mode, is_recorded=records)
    for node in list(graph.nodes):
        is_block = node.target is compat._set_grad_enabled_now
        if is_block and node.next.target is node.target and node.args[0] is False:
            graph.erase_node(node.next)
            graph.erase_node(node)


def _forward(
    graph: Graph, copy: Node, order: Mapping[Node, int], mode: Any, *, is_recorded: bool
) -> None:
    """Have the source of a copy be read in place of its target, if nothing can tell."""
    target, source = copy.args
    if not (isinstance(target, Node) and isinstance(source, Node)):
        return
    if not _is_replaced_by(target, source, is_recorded=is_recorded):
        return
    later = {each for each in graph.nodes if order.get(each, -1) > order[copy]}
    memory, others = storages_of(target), storages_of(source)
    if any(not others.isdisjoint(undo_log.written_by(each, mode)) for each in later):
        return
    inside = (each for each in graph.nodes if each.op != "placeholder")
    names = [each for each in inside if not memory.isdisjoint(storages_of(each))]
    readers = [(name, user) for name in names for user in name.users if user in later]
    is_whole = all(_has_form_of(name, target) for name, _ in readers)
    if not is_whole or any(undo_log.written_by(user, mode) & memory for _, user in readers):
        return
    is_uncounted = target.target is compat._get_data_attr
    if is_uncounted and _may_be_kept(names, {copy, *later}):
        return  # a backward reads what was changed so
    copy.replace_all_uses_with(source)
    for name, user in readers:
        user.replace_input_with(name, source)
    graph.erase_node(copy)
    if is_uncounted and not target.users:
        graph.erase_node(target)


def _is_replaced_by(target: Node, source: Node, *, is_recorded: bool) -> bool:
    """Return whether a copy into a tensor leaves there all that its source is."""
    one, other = _plain_example(target), _plain_example(source)
    if one is None or other is None:
        return False
    if (one.shape, one.dtype, one.device) != (other.shape, other.dtype, other.device):
        return False
    has_history = one.requires_grad or other.requires_grad
    is_apart = storages_of(target).isdisjoint(storages_of(source))
    return is_apart and (is_recorded or not has_history or not torch.is_grad_enabled())


def _may_be_kept(names: Sequence[Node], later: Container[Node]) -> bool:
    """Return whether what was done with a tensor before may read it in its backward."""
    users = {(name, user) for name in names for user in name.users if user not in later}
    return torch.is_grad_enabled() and any(
        user not in names
        and user.target not in _KEEP_NOTHING
        and name not in change_counts.statistics_of(user)
        for name, user in users
    )


def _has_form_of(node: Node, other: Node) -> bool:
    """Return whether two nodes are one tensor, if they share memory."""
    one, two = _plain_example(node), _plain_example(other)
    if one is None or two is None:
        return False
    forms = [(e.shape, e.stride(), e.storage_offset(), e.dtype) for e in (one, two)]
    return forms[0] == forms[1]


def _plain_example(node: Node) -> torch.Tensor | None:
    example = node.meta.get("example_value")
    return example if type(example) is compat.FakeTensor else None


def can_be_cut(graph: Graph, mode: Any) -> bool:
    """Return whether what the pieces of an arm hand on can be handed from choice to choice.

    Where gradients are recorded, a piece behind which another is not taken gets gradients of zero.

    Args:
        mode: the fake mode of the trace.
    """
    if block_settings.are_set_in(graph):
        return False
    given = [each.meta.get("example_value") for each in graph.find_nodes(op="placeholder")]
    segments = segments_of(graph)
    if torch.is_grad_enabled() and not all(map(_is_smooth, _before_a_cut(segments))):
        return False
    heavy = (each for each in segments if not all(map(is_light, each)))
    handed = [node for segment in heavy for node in handed_on(segment)]
    can_be = all(_can_be_handed_on(each, given) for each in handed)
    return can_be and not _writes_across(graph, segments, mode)


def _before_a_cut(segments: Sequence[Segment]) -> set[Node]:
    """Return the nodes of pieces, behind which there is a choice, that gradients come back to."""
    last = max((at for at, each in enumerate(segments) if is_cut_at(each[0])), default=0)
    found = set[Node]()
    for piece in segments[:last]:
        inside = {each for each in piece if not is_cut_at(each)}
        waiting = [each for each in handed_on(piece) if each in inside and _has_gradient(each)]
        while waiting:
            node = waiting.pop()
            if node not in found:
                found.add(node)
                given = inside.intersection(node.all_input_nodes)
                waiting += [each for each in given if _has_gradient(each)]
    return found


def _has_gradient(node: Node) -> bool:
    return any(each.requires_grad for each in tensors_of(node))


def _is_smooth(node: Node) -> bool:
    """Return whether a gradient of zero stays zero on the way back through a node.

    That is what comes back from a choice whose side was not taken.
    """
    name, given = target_name(node), node.args[1:]
    if name == "batch_norm":
        epsilon = node.args[7] if len(node.args) > 7 else node.kwargs.get("eps", 1e-5)
        return isinstance(epsilon, (int, float)) and epsilon > 0
    if name in ("pow", "truediv", "div") and given:
        number = given[0]
        return isinstance(number, (int, float)) and number != 0 and (name != "pow" or number >= 1)
    return name in _SMOOTH


def _can_be_handed_on(node: Node, given: Sequence[Any]) -> bool:
    if is_cut_at(node):  # its items are looked at
        return all(user.target is operator.getitem for user in node.users)
    example = _plain_example(node)
    return (
        node.op != "get_attr"
        and example is not None
        and example.layout is torch.strided
        and symbols_in(list(example.shape)) <= _told(given)
    )


def _told(given: Iterable[Any]) -> set[Any]:
    """Return the numbers that something given is, or has for a size."""
    given = list(given)
    sizes = (size for each in given if isinstance(each, torch.Tensor) for size in each.shape)
    numbers = [each for each in (*given, *sizes) if isinstance(each, torch.SymInt)]
    return {each.node.expr for each in numbers}


def telling(
    examples: Iterable[torch.Tensor], given: Sequence[Node], operands: Sequence[Node]
) -> list[Node]:
    """Return ``given``, and what else tells the sizes of tensors like ``examples``."""
    wanted = symbols_in([list(each.shape) for each in examples])
    found = list(given)
    for node in (*given, *operands):
        told = _told([node.meta.get("example_value")]) & wanted
        if told and node not in found:
            found.append(node)
        wanted -= told
    return found


def _writes_across(graph: Graph, segments: Sequence[Segment], mode: Any) -> bool:
    """Return whether a piece writes to memory that was there before it."""
    made = _made(graph, segments)
    return any(
        made.get(memory) != place
        for place, segment in enumerate(segments)
        for node in segment
        for memory in undo_log.written_by(node, mode)
    )


def _made(graph: Graph, segments: Sequence[Segment]) -> dict[int, int]:
    """Return the piece that has made each memory; none for what an arm is given."""
    found: dict[int, int] = {}
    for node in graph.find_nodes(op="placeholder"):
        if not _is_copied_first(node):
            found.update(dict.fromkeys(storages_of(node), -1))
    for place, segment in enumerate(segments):
        for node in segment:
            for memory in storages_of(node):
                found.setdefault(memory, place)
    return found


def _is_copied_first(given: Node) -> bool:
    """Return whether an arm reads a copy of something given, since it changes it."""
    example = given.meta.get("example_value")
    return any(
        user.target == "clone" and user.meta.get("example_value") is example for user in given.users
    )


def sides_that_read(
    node: Node, inside: Collection[Node], following: Any, owner: GraphModule
) -> set[bool]:
    """Return on which sides of the choice behind its piece a value is read; both if elsewhere."""
    found: set[bool] = set()
    user: Any
    for user in node.users:
        if user is not following:
            found |= set() if user in inside else {True, False}
            continue
        for side, target in zip((True, False), following.args[1:3], strict=True):
            graph = getattr(owner, str(target.target)).graph
            given = zip(graph.find_nodes(op="placeholder"), following.args[3], strict=True)
            if any(operand is node and entered.users for entered, operand in given):
                found.add(side)
    return found
