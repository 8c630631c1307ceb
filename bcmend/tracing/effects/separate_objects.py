"""Objects from before the call of which it matters that they are two, or one, in later calls.

Dynamo guards that an object found in two places is found in both again. It does not guard that two
objects are two, as it does of tensors: where a later call finds one list in both places, what is
appended in one of them is missing in the other, and ``is`` says what was true when it was traced.

So the objects that a call changes are guarded to be none of the others of their class that it
reads, and objects that it compares to be two. See docs/upstream.md, "No guard says that two lists
are two"; this can go when ``test_no_guard_says_that_two_lists_are_two`` in
``tests/tracing/backends/test_faults_of_torch.py`` fails.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from bcmend.dynamo import compat, handlers, hooks
from bcmend.dynamo.models import methods
from bcmend.dynamo.slots import Slot
from bcmend.dynamo.values import Value, constant

_PURPOSE: Final = "objects that have to stay two"

#: Models of what is guarded otherwise, or has an identity only while it is traced.
_NOT_ASKED: Final = (compat.TensorVariable, compat.CellVariable, compat.NewGlobalVariable)

#: The sources of objects of which a call asked whether they are one.
_COMPARED: Final[Slot[set[tuple[compat.Source, compat.Source]]]] = Slot(set, rolls_back=False)


@dataclass(frozen=True, slots=True)
class Apart:
    """Objects of one class, by their sources: those changed are none of the others, nor equal."""

    changed: tuple[compat.Source, ...]
    others: tuple[compat.Source, ...]

    def expression(self, name_of: Any) -> str:
        """Return the condition in Python, where ``name_of`` has the expression of a source."""
        changed = [name_of(each) for each in self.changed]
        others = [name_of(each) for each in self.others]
        if len(changed) + len(others) == 2:
            return " is not ".join([*changed, *others])
        parts = [f"len({_identities(changed)}) == {len(changed)}"] if len(changed) > 1 else []
        if others:
            parts.append(f"{_identities(changed)}.isdisjoint({_identities(others)})")
        return " and ".join(parts)


def _identities(names: Iterable[str]) -> str:
    return "{" + ", ".join(f"id({name})" for name in names) + "}"


@hooks.around(compat.OutputGraph, methods.COMPILE_SUBGRAPH, _PURPOSE, gate=None, place=2)
def _compile_subgraph(
    inner: Any, output: compat.OutputGraph, *arguments: Any, **keywords: Any
) -> Any:
    for apart in _found(output.side_effects, _COMPARED.of(output)):
        first = apart.changed[0]
        compat.install_guard(compat.Guard(first, functools.partial(_APART, apart=apart)))
    return inner(output, *arguments, **keywords)


def _APART(builder: compat.GuardBuilderBase, guard: compat.Guard, *, apart: Apart) -> None:
    assert isinstance(builder, compat.GuardBuilder)
    code = [apart.expression(lambda source: builder.arg_ref(source.name))]
    builder.add_python_lambda_leaf_guard_to_root(code, code)


def _found(
    effects: compat.SideEffects, compared: set[tuple[compat.Source, compat.Source]]
) -> Iterator[Apart]:
    """Yield what is to be guarded, each class of objects by itself."""
    for one, other in compared:
        yield Apart((one,), (other,))
    kinds = {id(each): type(each) for each in effects.keepalive}
    groups: dict[type, tuple[list[compat.Source], list[compat.Source]]] = {}
    for identity, model in effects.id_to_variable.items():
        kind = kinds.get(identity)
        if model.source is None or kind is None or isinstance(model, _NOT_ASKED):
            continue
        groups.setdefault(kind, ([], []))[not effects.is_modified(model)].append(model.source)
    for changed, others in groups.values():
        if changed and len(changed) + len(others) > 1:
            yield Apart((*changed,), (*others,))


def _tracer(*_: object) -> Any:
    return compat.translator_tls.current_tx


@hooks.around(compat.object_protocol, methods.COMPARE_IDENTITY, _PURPOSE, gate=_tracer)
def _compare(inner: Any, one: Value, other: Value) -> Value | None:
    """Note of which objects a call asks whether they are one: ``is``, ``==`` without a method.

    Of tuples Dynamo does not know it: it does not track them, for nothing changes them.
    """
    output = compat.translator_tls.current_tx.output
    first, second = one.source, other.source
    if one is not other and first and second:
        are_tuples = all(isinstance(each, compat.TupleVariable) for each in (one, other))
        if are_tuples and _are_one(output, first, second):
            compat.install_guard(compat.Guard(first, functools.partial(_ONE, other=second)))
            return constant(True)
        tracked = output.side_effects.id_to_variable.values()
        if are_tuples or {id(one), id(other)} <= {*map(id, tracked)}:
            _COMPARED.of(output).add((first, second))
    found: Value | None = inner(one, other)
    return found


def _are_one(output: compat.OutputGraph, one: compat.Source, other: compat.Source) -> bool:
    try:
        found: Any = output.resolve_source_value(one)
        return found is output.resolve_source_value(other)
    except (LookupError, AttributeError, NameError, TypeError) as error:
        handlers.break_graph(
            "which object a tuple is", f"{one.name}, {other.name}", f"It is not found: {error!r}"
        )


def _ONE(builder: compat.GuardBuilderBase, guard: compat.Guard, *, other: compat.Source) -> None:
    assert isinstance(builder, compat.GuardBuilder)
    code = [f"{builder.arg_ref(guard)} is {builder.arg_ref(other.name)}"]
    builder.add_python_lambda_leaf_guard_to_root(code, code)
