"""Numbers of the program that become inputs of the graph: floats read in arms, and counters.

Dynamo makes an input of a float that differs from call to call, and takes the number out of it at
once. The input is one of the main graph; so where an arm reads it first, the number has to be taken
there, too. An integer in a global variable, in an attribute of a module or of a class, or in what
a module holds is a constant to Dynamo, and where each call counts it, each call is compiled. Such a
counter becomes an input as soon as a trace has stored another number.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, product
from types import ModuleType
from typing import Any, Final

from bcmend.dynamo import compat, hooks
from bcmend.dynamo.models import containers, methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.trace_state import Phase, at_the_end
from bcmend.dynamo.values import object_behind
from bcmend.tracing.numbers import size_questions
from bcmend.tracing.sites import body_states, capture_mode
from bcmend.tracing.sites.phi import OpenContents


@hooks.around(
    compat.VariableBuilder, methods.WRAP_FLOAT, "floats read first in an arm", gate=hooks.of_builder
)
def _wrap_float(inner: Any, self: Any, value: float) -> Any:
    output = self.tx.output
    tracers = output.tracers
    output.tracers = [output.root_tracer]
    try:
        return inner(self, value)
    finally:
        output.tracers = tracers


#: The expressions by which a trace finds what may be an integer that is an input.
_READ: Final[Slot[set[str]]] = Slot(set, rolls_back=False)


@hooks.around(compat.builder, methods.IS_DYNAMIC_SOURCE, "integers that calls count", gate=None)
def _is_dynamic(inner: Any, name: str, *more: Any, **named: Any) -> bool:
    """Return whether an integer, by the expression that Dynamo finds it by, is to be an input."""
    if inner(name, *more, **named):
        return True
    tx = size_questions.translator_of_this_thread()
    if tx is None or not (_may_vary() and capture_mode.in_mended_code(tx)):
        return False
    output = tx.output
    if not _READ.of(output):
        at_the_end(output, Phase.CHECK, lambda module: _note_counted(output))
    _READ.of(output).add(name)
    return name in body_states.state_of(output.root_tx.f_code).counted


def _may_vary() -> bool:
    """Return whether Dynamo makes inputs of integers that have changed, as it does by default."""
    settings = compat.dynamo_config
    return bool(settings.automatic_dynamic_shapes and not settings.specialize_int)


def _note_counted(output: compat.OutputGraph) -> None:
    """Note what was read, and holds another integer now."""
    read = _READ.of(output)
    counted = body_states.state_of(output.root_tx.f_code).counted
    counted.update(
        name
        for name, value, before in chain(_stored(output), _kept(output, read))
        if name in read and _is_another(value, before)
    )


#: An expression by which Dynamo finds something, its value at the end (``None`` where the data
#: decide about it), and the one at the start.
_Place = tuple[str, compat.VariableTracker | None, object]


def _stored(output: compat.OutputGraph) -> Iterator[_Place]:
    """Return the variables and attributes that were stored to and were there before the call."""
    for owner, stored in output.side_effects.store_attr_mutations.items():
        found = _expression(owner)
        if found is None or isinstance(owner.mutation_type, compat.AttributeMutationNew):
            continue
        if isinstance(owner, compat.NewGlobalVariable):
            for name, new in stored.items():
                yield found, new, output.global_scope.get(name)
            continue
        starts, value = [found], object_behind(owner)
        if isinstance(value, ModuleType):  # its own functions find it by another expression
            aliases = output.import_sources.items()
            starts += [f"G[{alias!r}]" for alias, name in aliases if name == value.__name__]
        for start, (name, new) in product(starts, stored.items()):
            yield f"{start}.{name}", new, getattr(value, "__dict__", {}).get(name)


def _kept(output: compat.OutputGraph, read: set[str]) -> Iterator[_Place]:
    """Return the items of the lists and dictionaries that were read, and were changed."""
    effects = output.side_effects
    for variable in effects.id_to_variable.values():
        is_open = isinstance(variable, OpenContents)
        source = variable.source
        if source is None or not (is_open or effects.is_modified(variable)):
            continue
        found = _expression(variable)
        if not any(name.startswith(f"{found}[") for name in read):
            continue
        items = _items(containers.contents_of(variable) or variable)
        before = output.resolve_source_value(source)
        known = before.items() if isinstance(before, dict) else enumerate(before)
        for key, value in known:
            if key in items:
                yield f"{found}[{key!r}]", None if is_open else items[key], value


def _expression(variable: compat.VariableTracker) -> str | None:
    """Return the expression by which Dynamo finds what a model stands for, if there is one."""
    try:
        return None if variable.source is None else str(variable.source.name)
    except NotImplementedError:  # a cell, which is found by more than an expression
        return None


def _items(contents: compat.VariableTracker) -> dict[Any, compat.VariableTracker]:
    """Return the values of a dictionary or a list by their keys that are constants."""
    held = vars(contents).get("items", ())
    if not isinstance(held, dict):
        return dict(enumerate(held))
    models = ((containers.key_model(key), value) for key, value in held.items())
    return {
        model.as_python_constant(): value
        for model, value in models
        if isinstance(model, compat.ConstantVariable)
    }


def _is_another(value: compat.VariableTracker | None, before: object) -> bool:
    """Return whether an integer may be another one; what is no constant is decided by the data."""
    if not isinstance(value, compat.ConstantVariable):
        return type(before) is int
    return type(value.value) is type(before) is int and value.value != before
