"""Everything that tracing an arm may change and that no rule merges, compared and put back.

An arm is accepted only if all that tracing it did is accounted for. ``arms`` makes effects of what
the rules of ``merging`` merge: stores to attributes, contents of containers, tensors changed in
place. All the rest is compared here, before and after: the other tables of Dynamo's side effects
and of the trace, known to this module or not, the graphs around the arm, settings of torch.
"""

from __future__ import annotations

import copy
import operator
from collections import OrderedDict, deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch
from torch.fx import Graph, Node

from bcmend.dynamo import compat, fx_graph, slots
from bcmend.dynamo.models import effect_tables
from bcmend.tracing.programs import host_draws
from bcmend.tracing.speculation import torch_settings
from bcmend.tracing.speculation.setter_nodes import setter_in

_CONTAINERS: Final = (list, dict, set, OrderedDict, deque)
_TABLES: Final = (*_CONTAINERS, bool, int, str, type(None))

#: Tables of side effects that are no matter of the program: Dynamo's, and those of ``arms``.
_NOTES: Final = effect_tables.NOTES | {"_remembered", "_outside"}
#: Slugs of tables of side effects, and what a change of each is.
_SLUGS: Final[Mapping[str, tuple[str, str]]] = {
    effect_tables.TENSOR_HOOKS: ("arm-hook", "a hook of a tensor is registered or removed"),
    effect_tables.SAVED_FOR_BACKWARD: ("arm-effects", "save_for_backward"),
    effect_tables.LOCAL_GENERATORS: ("consumes-iterator", "a generator that does not end"),
    effect_tables.INPUTS_BEFORE_STORES: ("arm-effects", "an input gets the data of another tensor"),
}

#: What an arm did and no rule merges: the slug of a reason, and a line beside it.
Unmerged = tuple[str, str]


class DynamoTables:
    """The tables of an object of Dynamo's, by name, as they are now."""

    def __init__(self, owner: Any, but: frozenset[str] = frozenset()) -> None:
        self._owner, self._but = owner, but
        self._before = {name: _copied(value) for name, value in self._now()}

    def _now(self) -> Iterator[tuple[str, Any]]:
        for name, value in vars(self._owner).items():
            if name not in self._but and isinstance(value, _TABLES):
                yield name, value

    def before(self, name: str) -> Any:
        """Return what a table was."""
        return self._before[name]

    def changed(self) -> list[str]:
        """Return the names of the tables that have changed, are new or are gone."""
        now, before = dict(self._now()), self._before
        return [
            name
            for name in {**before, **now}
            if name not in now or name not in before or now[name] != before[name]
        ]

    def restore(self, but: Collection[str] = ()) -> None:
        """Give every table its contents again, but for some."""
        for name in self.changed():
            if name in but:
                continue
            if name in self._before:
                setattr(self._owner, name, _copied(self._before[name]))
            else:
                delattr(self._owner, name)


def _copied(value: Any) -> Any:
    """Return a copy of a table, also of the tables in it."""
    if not isinstance(value, _CONTAINERS):
        return value
    copied = copy.copy(value)
    if isinstance(copied, dict):
        for key, each in copied.items():
            if isinstance(each, _CONTAINERS):
                copied[key] = copy.copy(each)
    return copied


class _Around:
    """A graph around the arm, and its last node."""

    def __init__(self, graph: Graph) -> None:
        self.graph, self._last = graph, next(iter(reversed(graph.nodes)), None)

    def new_nodes(self) -> list[Node]:
        """Return operations that were added, the last one first."""
        found = []
        for node in reversed(self.graph.nodes):
            if node is self._last:
                break
            if not (fx_graph.is_known_by_a_source(node) or _is_computed_where_made(node)):
                found.append(node)
        return found


def _is_computed_where_made(node: Node) -> bool:
    """Return whether Dynamo computes something in the graph in which the operands were made.

    It does so with parts of tensors, and with numbers.
    """
    is_number = isinstance(node.meta.get("example_value"), (torch.SymInt, torch.SymFloat))
    is_of_python = getattr(node.target, "__module__", None) in ("builtins", "math", "_operator")
    return node.target in (getattr, operator.getitem) or (is_number and is_of_python)


@dataclass(frozen=True, slots=True)
class World:
    """What lies outside of an arm, as it was before.

    Attributes:
        effects: Dynamo's side effects, but for what ``arms`` makes effects of.
        trace: the tables of the trace, but for what it has found out.
        torch_functions: the modes of torch functions, as the trace knows them.
        around: the graphs around the arm.
        settings: the settings of torch.
        blocks_entered: how many functions Dynamo calls at the end of the trace, which leave blocks.
        put_slots_back: gives bcmend's own slots their values again, for an arm that is refused.
    """

    effects: DynamoTables
    trace: DynamoTables
    torch_functions: DynamoTables
    around: tuple[_Around, ...]
    settings: torch_settings.Settings
    output: compat.OutputGraph
    blocks_entered: int
    put_slots_back: Callable[[], None]

    def change(self, graph: Graph) -> Unmerged | None:
        """Return what an arm, of which ``graph`` is the graph, did and no rule merges."""
        for name in self.effects.changed():
            if name not in _NOTES:
                return _SLUGS.get(name, ("arm-effects", f"a side effect of Dynamo's: {name}"))
        settings = torch_settings.changed(self.settings)
        if settings:
            return "arm-setting", settings[0]
        setter = setter_in(graph)
        if setter:
            return "arm-setting", setter
        if self.torch_functions.changed():
            return "arm-setting", "modes of torch functions"
        for each in self.around:
            for node in each.new_nodes():
                return "arm-effects", f"{node.target} in the graph around the arm"
        tables = [name for name in self.trace.changed() if not self._is_no_effect(name)]
        for name in tables:
            return _SLUGS.get(name, ("arm-effects", f"a table of the trace: {name}"))
        return None

    def _is_no_effect(self, name: str) -> bool:
        """Return whether a table of the trace has changed without an effect."""
        if name in effect_tables.CHANGES_BY_STREAM:
            return True  # the changes themselves are merged
        if name == effect_tables.RANDOM_CALLS:
            before = len(self.trace.before(name))
            return host_draws.are_draws(self.output.random_calls[before:])
        if name != effect_tables.LOCAL_GENERATORS:
            return False
        return effect_tables.closes_new_generators_unseen(self.output, self.trace.before(name))

    def put_back(self) -> None:
        """Restore all of it, but for the slots: those of an arm that is merged stay."""
        leaving = self.output.cleanup_hooks
        while len(leaving) > self.blocks_entered:
            leaving.pop()()
        calls = effect_tables.RANDOM_CALLS
        self.trace.restore((calls,) if self._is_no_effect(calls) else ())
        self.effects.restore()
        self.torch_functions.restore()
        for each in self.around:
            for node in each.new_nodes():
                if not node.users:
                    each.graph.erase_node(node)
                    fx_graph.ERASED.put(self.output, True)
        torch_settings.restore(self.settings)


def outside_of_an_arm(tx: compat.Tracer) -> World:
    """Return what lies outside of an arm that is about to be traced."""
    return World(
        DynamoTables(tx.output.side_effects, effect_tables.MERGED),
        DynamoTables(tx.output, _FOUND_OUT),
        DynamoTables(effect_tables.tables_of_functions(tx)),
        tuple(_Around(each.graph) for each in fx_graph.tracers(tx)),
        torch_settings.read(),
        tx.output,
        len(tx.output.cleanup_hooks),
        slots.remember(tx.output),
    )


#: Tables of a trace that may change. ``_bcmend`` holds our own slots, each of which says whether it
#: is put back. The rest is compared.
_FOUND_OUT: Final = effect_tables.FOUND_OUT | {"_bcmend"}
