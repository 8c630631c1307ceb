"""Choices one in another, written as choices one behind another.

Where a loop of few iterations is left early, the rest of the loop is in one arm, with the next
choice in it. Torch takes twice as long for each level (``nesting_limits``). When the graph is
complete, an arm with choices in it is cut there into pieces (``segments``): each becomes a choice
that is taken where the arm is, and the choices inside are taken where the arm is and their own
condition says so. What was not computed is zeros, which nobody reads.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, Final, NamedTuple

import torch
from torch.fx import Graph, GraphModule, Node

from bcmend import meta_keys
from bcmend.dynamo import compat, fx_graph
from bcmend.dynamo.models import graph_inputs
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end_of_a_graph
from bcmend.tracing.backends import known_structures, uncompiled_sides
from bcmend.tracing.effects.hazards import unjudged
from bcmend.tracing.effects.operator_runs import storages_of
from bcmend.tracing.gradients import gates
from bcmend.tracing.gradients.arm_selects import is_marked
from bcmend.tracing.gradients.gradient_flow import Flow
from bcmend.tracing.gradients.gradient_paths import RESULT
from bcmend.tracing.lowering.arm_graphs import (
    copied,
    covered,
    has_no_gradient,
    tellers,
    uncover,
    under_cover,
    with_example,
    zeros_in_form_of,
)
from bcmend.tracing.lowering.segments import (
    Segment,
    can_be_cut,
    forward_copies,
    handed_on,
    is_cut_at,
    is_deep,
    is_light,
    nesting_of,
    segments_of,
    sides_that_read,
    telling,
)
from bcmend.tracing.sites.nesting_limits import FLAT_FROM

_COND: Final = torch.ops.higher_order.cond
_IS_ASKED: Final = Slot(bool, rolls_back=False)


def are_flat(tx: compat.Tracer, graphs: Sequence[Graph]) -> bool:
    """Return whether the choices in arms can stand behind each other; have them do so later."""
    output = tx.output
    if not any(map(is_deep, graphs)):
        return True
    for graph in filter(is_deep, graphs):
        forward_copies(graph, output.fake_mode)
    if not all(can_be_cut(graph, output.fake_mode) for graph in graphs):
        return False
    if not _IS_ASKED.of(output):
        _IS_ASKED.put(output, True)
        at_the_end_of_a_graph(output, Phase.FLATTEN, lambda module: _flatten(output, module))
    return True


def _flatten(output: compat.OutputGraph, module: GraphModule) -> None:
    """Write the choices of a graph behind each other, and those of graphs in it."""
    modules = module._modules
    for node in list(module.graph.nodes):
        size = nesting_of(node)
        if size is not None and size.is_flat and size.depth >= FLAT_FROM:
            _Writer(output, module, node).write()
            continue
        for inside in fx_graph.graphs_given(node, modules):
            _flatten(output, inside)
    for node in reversed(list(module.graph.nodes)):
        if meta_keys.FLAT in node.meta and not node.users:
            module.graph.erase_node(node)
    module.recompile()


class _Value(NamedTuple):
    """What a side of a choice returns at one place.

    Attributes:
        node: ``None`` where nobody reads what the side returns there.
        model: a node that has its form.
    """

    node: Node | None
    model: Node


#: Writes a side into a graph, given what it is called with, and what stands for that there.
_Maker = Callable[[Graph, Mapping[Node, Node]], Iterable[Node]]


class _Writer:
    """Writes one choice of a graph, and those in it, one behind another in front of it."""

    def __init__(self, output: compat.OutputGraph, module: GraphModule, choice: Node) -> None:
        self._output, self._module, self._choice = output, module, choice
        self._graph: Graph = module.graph
        size = nesting_of(choice)
        assert size is not None
        self._records_gradients = size.records_gradients
        self._copies: list[Node] = []

    def write(self) -> None:
        """Write it, and have what reads the choice read what was written."""
        choice: Any = self._choice
        with self._graph.inserting_before(choice):
            results = self._branch(None, choice, choice.args[0], choice.args[3], self._module)
            for user in list(choice.users):
                found = results[_place(user)].node
                assert found is not None  # one side at least returns something
                user.replace_all_uses_with(found)
                self._graph.erase_node(user)
                uncover(found)
        self._graph.erase_node(choice)
        for copy in self._copies:
            _drop_if_alone(copy)

    def _branch(
        self,
        guard: Node | None,
        choice: Any,
        predicate: Node,
        operands: Sequence[Node],
        owner: GraphModule,
    ) -> list[_Value]:
        """Write a choice that is made where ``guard`` is true; return its results."""
        then, orelse = (getattr(owner, str(each.target)) for each in choice.args[1:3])
        taken = self._and(guard, predicate)
        not_taken = self._call(torch.logical_not, (predicate,), predicate)
        others = self._side(self._and(guard, not_taken), orelse, operands)
        ones = _results(then)
        if is_deep(then.graph):
            ones = self._pieces(taken, then, operands)
            return self._joined(taken, ones, others, (), None)
        return self._joined(taken, ones, others, operands, then)

    def _side(self, taken: Node, side: GraphModule, operands: Sequence[Node]) -> list[_Value]:
        """Write a side that is taken where ``taken`` is true; return its results, or zeros."""
        if is_deep(side.graph):
            return self._pieces(taken, side, operands)
        results = _results(side)
        read = [each.model for each in results if each.node is not None]
        if not read:
            return results
        made = iter(
            self._choice_of(taken, operands, _run(side, operands, read), _zeros(read), read, side)
        )
        return [each if each.node is None else _Value(next(made), each.model) for each in results]

    def _joined(
        self,
        taken: Node,
        ones: Sequence[_Value],
        others: Sequence[_Value],
        operands: Sequence[Node],
        side: GraphModule | None,
    ) -> list[_Value]:
        """Return values of one side where ``taken`` is true, and of the other elsewhere.

        Those of ``side`` are computed there; without one they are in the graph.
        """
        pairs = [pair for pair in zip(ones, others, strict=True) if pair[0].node is not None]
        if not pairs:
            return list(others)
        first, second = [one for one, _ in pairs], [other for _, other in pairs]
        models = [_model_of(*pair) for pair in pairs]
        held = [each.node for each in (*second, *(() if side else first)) if each.node]
        given = list(dict.fromkeys([*operands, *held]))
        then = _run(side, operands, [each.model for each in first]) if side else _copied(first)
        made = self._choice_of(taken, given, then, _copied(second), models, side)
        values = map(_Value, made, models)
        return [
            next(values) if one.node else other for one, other in zip(ones, others, strict=True)
        ]

    def _pieces(self, taken: Node, side: GraphModule, operands: Sequence[Node]) -> list[_Value]:
        """Write a side with choices in it, piece by piece; return its results."""
        inputs = side.graph.find_nodes(op="placeholder")
        known: dict[Node, Node] = dict(zip(inputs, operands, strict=True))
        pieces = segments_of(side.graph)
        for piece, following in zip(pieces, [*pieces[1:], []], strict=True):
            if is_cut_at(piece[0]):
                choice: Any = piece[0]
                inside = [known[each] for each in choice.args[3]]
                results = self._branch(taken, choice, known[choice.args[0]], inside, side)
                for item in piece[1:]:
                    found = results[_place(item)].node
                    assert found is not None
                    known[item] = found
            elif all(map(is_light, piece)):
                self._copy_lightly(piece, known)
            else:
                choice = following[0] if following else None
                self._write_piece(taken, side, piece, known, operands, choice)
        return [
            each if each.node is None else _Value(known[each.node], each.model)
            for each in _results(side)
        ]

    def _write_piece(
        self,
        taken: Node,
        side: GraphModule,
        piece: Segment,
        known: dict[Node, Node],
        operands: Sequence[Node],
        following: Any,
    ) -> None:
        """Write a piece as a choice of its own, and say in ``known`` what has become of it.

        ``following`` is the choice that is made behind it.
        """
        handed, inside = handed_on(piece), set(piece)
        read = (each for node in piece for each in node.all_input_nodes if each not in inside)
        sources = {each: known[each] for each in read}
        given = telling(map(_example, handed), list(dict.fromkeys(sources.values())), operands)

        def run(graph: Graph, stands_for: Mapping[Node, Node]) -> Iterable[Node]:
            copies = {each: stands_for[source] for each, source in sources.items()}
            for node in piece:
                copies[node] = graph.node_copy(node, copies.__getitem__)
            if following is not None and following.args[0] in inside:
                decides.append(copies[following.args[0]])
            for each in handed:
                yield copied(graph, copies[each], _example(each))

        def gate(module: GraphModule) -> None:
            if decides and self._records_gradients:
                readers = [sides_that_read(each, inside, following, side) for each in handed]
                self._gate(module, decides[0], readers)

        decides: list[Node] = []
        made = self._choice_of(taken, given, run, _zeros(handed), handed, side, gate)
        known.update(zip(handed, made, strict=True))

    def _gate(
        self, module: GraphModule, predicate: Node, readers: Sequence[Collection[bool]]
    ) -> None:
        """Keep gradients out of a piece that nobody asks for, since the choice behind it says so.

        What comes back from a side that was not taken is zeros (``gates``).
        """
        flow = Flow(self._output.fake_mode, predicates={predicate: 0})
        seeds = [
            flow.paths.through(0, next(iter(sides)), RESULT) if len(sides) == 1 else RESULT
            for sides in readers
        ]
        gates.insert(module, flow.back(module, seeds, ()), flow, with_inputs=True)

    def _choice_of(
        self,
        taken: Node,
        given: Sequence[Node],
        then: _Maker,
        orelse: _Maker,
        models: Sequence[Node],
        owner: GraphModule | None,
        finish: Callable[[GraphModule], None] = lambda _: None,
    ) -> list[Node]:
        """Write a choice between what two sides write; return its results, of the forms of models.

        Args:
            owner: has the graphs that operators of the first side are given.
            finish: is given the first side.
        """
        examples = [_example(each) for each in models]
        given = [*given, *tellers(self._choice, examples, given)]
        sides = []
        for name, side in (("cond_true", then), ("cond_false", orelse)):
            graph = Graph()
            known = {
                each: graph_inputs.placeholder_for(graph, f"operand_{at}", each)
                for at, each in enumerate(given)
            }
            for inner in known.values():
                inner.meta = unjudged(inner.meta)
            made = list(side(graph, known)) or [graph.call_function(torch.zeros, ((),))]
            if examples:
                made = list(map(partial(self._covered, graph), made, examples))
            graph.output(tuple(made))
            module = GraphModule((owner if side is then else None) or torch.nn.Module(), graph)
            if side is then:
                finish(module)
            sides.append(self._installed(name, module))
        entered = tuple(self._without_aliases(given))
        choice = self._graph.call_function(_COND, (taken, *sides, entered))
        if is_marked(self._choice):
            choice.meta[meta_keys.TAKES_A_SIDE] = True
        inside = [self._form(each) for each in examples]
        choice.meta["example_value"] = tuple(inside)
        return [
            self._taken_out(choice, at, inside[at], example) for at, example in enumerate(examples)
        ]

    def _without_aliases(self, given: Sequence[Node]) -> Iterator[Node]:
        """Yield operands, copies of those that share memory with an earlier one."""
        seen: set[int] = set()
        for each in given:
            memory = storages_of(each)
            yield (
                each if memory.isdisjoint(seen) else self._method("clone", (each,), _example(each))
            )
            seen |= memory

    def _covered(self, graph: Graph, result: Node, example: Any) -> Node:
        return covered(graph, result, example) if self._has_to_be_covered(example) else result

    def _has_to_be_covered(self, example: Any) -> bool:
        """Return whether a result is handed on as bits of a fraction (``arm_graphs``)."""
        return self._records_gradients and has_no_gradient(example)

    def _form(self, example: torch.Tensor) -> torch.Tensor:
        """Return an example of what the operator returns for one of a side."""
        form = _apart(example)
        if self._has_to_be_covered(example):
            return form.new_empty(form.size(), dtype=torch.float64)
        return form.requires_grad_() if self._records_gradients else form

    def _taken_out(self, choice: Node, at: int, inside: Any, example: torch.Tensor) -> Node:
        """Return a result of a choice as a piece has it: detached, if it was."""
        found = self._call(operator.getitem, (choice, at), None, inside)
        if self._has_to_be_covered(example):
            bits = self._method("view", (found, torch.int64), inside.view(torch.int64))
            return self._method("to", (bits, example.dtype), _apart(example))
        if self._records_gradients and not example.requires_grad:
            return self._method("detach", (found,), inside.detach())
        return found

    def _installed(self, name: str, side: GraphModule) -> Node:
        """Give the module a side; return what stands for it in its graph."""
        uncompiled_sides.mark_side(side, known_structures.of_modules(side._modules, side.graph))
        names = (f"{name}_of_{at}" for at in count())
        name = next(each for each in names if not hasattr(self._module, each))
        self._module.add_module(name, side)
        return self._graph.get_attr(name)

    def _copy_lightly(self, piece: Segment, known: dict[Node, Node]) -> None:
        """Compute what costs nothing whichever side is taken."""
        for node in piece:
            source = (
                known.get(node.args[0]) if node.args and isinstance(node.args[0], Node) else None
            )
            before = None if source is None else under_cover(node, source)
            if before is None:
                before = self._graph.node_copy(node, known.__getitem__)
                before.meta[meta_keys.FLAT] = True
                with_example(before, _apart(_example(node)))
                if node.target == "clone":
                    self._copies.append(before)
            known[node] = before

    def _and(self, guard: Node | None, condition: Node) -> Node:
        if guard is None:
            return condition
        return self._call(torch.logical_and, (guard, condition), condition)

    def _call(
        self, target: Any, given: tuple[Any, ...], model: Node | None, example: Any = None
    ) -> Node:
        node = self._graph.call_function(target, given)
        node.meta[meta_keys.FLAT] = True
        return with_example(node, example if model is None else _example(model))

    def _method(self, name: str, given: tuple[Any, ...], example: Any) -> Node:
        node = self._graph.call_method(name, given)
        node.meta[meta_keys.FLAT] = True
        return with_example(node, example)


def _place(item: Node) -> int:
    place: Any = item.args[1]
    return int(place)


def _results(side: GraphModule) -> list[_Value]:
    given: Any = side.graph.output_node().args[0]
    return [_Value(None if meta_keys.ABSENT in each.meta else each, each) for each in given]


def _model_of(one: _Value, other: _Value) -> Node:
    """Return a node of the form of a result: gradients may flow back to one side alone."""
    return other.model if other.node and _example(other.model).requires_grad else one.model


def _run(side: GraphModule, operands: Sequence[Node], wanted: Sequence[Node]) -> _Maker:
    """Have a whole side run, and return what is ``wanted`` of it."""

    def run(graph: Graph, stands_for: Mapping[Node, Node]) -> Iterable[Node]:
        inputs = side.graph.find_nodes(op="placeholder")
        copies = {each: stands_for[outer] for each, outer in zip(inputs, operands, strict=True)}
        for node in side.graph.nodes:
            if node.op not in ("placeholder", "output") and meta_keys.ABSENT not in node.meta:
                copies[node] = graph.node_copy(node, copies.__getitem__)
        return [copies[each] for each in wanted]

    return run


def _copied(values: Sequence[_Value]) -> _Maker:
    """Have values of the graph around be copied, and zeros stand for those that nobody reads."""

    def run(graph: Graph, stands_for: Mapping[Node, Node]) -> Iterable[Node]:
        for value in values:
            example = _example(value.model)
            if value.node is None:
                yield zeros_in_form_of(graph, example, list(stands_for))
            else:
                yield copied(graph, stands_for[value.node], example)

    return run


def _zeros(models: Sequence[Node]) -> _Maker:
    return _copied([_Value(None, each) for each in models])


def _example(node: Node) -> torch.Tensor:
    example: torch.Tensor = node.meta["example_value"]
    return example


def _apart(example: torch.Tensor) -> torch.Tensor:
    """Return an example of its form, in memory of its own as a copy is.

    The examples of copies that arms return are those of what they are copies of.
    """
    found = example.detach().new_empty_strided(example.size(), example.stride())
    return found.requires_grad_(example.requires_grad)


def _drop_if_alone(copy: Node) -> None:
    """Have a copy be what it is a copy of, if nobody else reads that: a result of a choice."""
    source = copy.args[0]
    assert isinstance(source, Node)
    is_alone = source.target is operator.getitem and len(source.users) == 1
    if is_alone and _example(source).stride() == _example(copy).stride():
        copy.replace_all_uses_with(source)
